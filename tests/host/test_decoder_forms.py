"""Decoders as exporters write them: positions, halves, the rotation apart, standard operators."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_zoo.containers import write_litertlm, write_task
from model_zoo.tflite_decoders import TFLiteDecoder, make_tflite_decoder

from adrenoc.check.generation import check_tokens
from adrenoc.device.generate import Decoder
from adrenoc.device.run import local_place
from tests.commands import succeed
from tests.host.decoder_bundles import (
    DecoderShape,
    avoid_kernels,
    generate_tokens,
    make_decoder_bundle,
    write_decoder,
    write_tokenizer,
)

PROMPT = (3, 5, 7, 11, 2, 9, 44)
COUNT = 24 - len(PROMPT) + 1
"""Tokens until the context is full."""
TINY = {"layers": 1, "context": 24}
JOINED = "computed where keys are written and queries are read"


def turn_by_another_table(model: Path) -> None:
    """Queries and keys each turn by a table of their own: no attention rotates so."""
    proto = onnx.load(model)
    table = next(one for one in proto.graph.initializer if one.name == "cos_cache")
    other = onnx.TensorProto()
    other.CopyFrom(table)
    other.name = "other_cos"
    proto.graph.initializer.append(other)
    node = next(one for one in proto.graph.node if one.op_type == "RotaryEmbedding")
    node.input[2] = other.name
    onnx.save(proto, model)


def divide_by_roots(model: Path) -> None:
    """x * (1 / root) becomes x / root, and a power a product, as other exporters write norms."""
    proto = onnx.load(model)
    roots = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "Reciprocal"}
    assert roots
    for node in proto.graph.node:
        if node.op_type == "Mul" and node.input[1] in roots:
            node.op_type = "Div"
            node.input[1] = roots[node.input[1]]
        elif node.op_type == "Pow":
            node.op_type = "Mul"
            node.input[1] = node.input[0]
    onnx.save(proto, model)


def hold_two_graphs(model: Path) -> None:
    """As optimum merges a graph for a first call, without a past, with the one behind a past."""
    proto = onnx.load(model)
    graph = proto.graph
    pasts = {port.name: port for port in graph.input if port.name.startswith("past")}
    first = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    made = {name for node in first for name in node.output}
    renamed = {name: f"first/{name}" for name in (*made, *pasts)}
    for node in first:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    extents = [[d.dim_value or 1 for d in p.type.tensor_type.shape.dim] for p in pasts.values()]
    empty = [
        onnx.numpy_helper.from_array(np.zeros((1, heads, 0, head), np.float32), renamed[name])
        for name, (_, heads, _, head) in zip(pasts, extents, strict=True)
    ]
    outputs = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in graph.output]
    for port in outputs:
        port.name = renamed[port.name]
    make = onnx.helper.make_graph
    sides = {
        "then_branch": make(list(graph.node), "with_past", [], list(graph.output)),
        "else_branch": make(first, "no_past", [], outputs, initializer=empty),
    }
    ports = [port.name for port in graph.output]
    choice = onnx.helper.make_node("If", ["use_cache_branch"], ports, "optimum::if", **sides)
    del graph.node[:]
    graph.node.append(choice)
    graph.input.append(onnx.helper.make_tensor_value_info("use_cache_branch", 9, [1]))
    onnx.checker.check_model(proto)
    onnx.save(proto, model)


def bound_scores(model: Path) -> None:
    """As transformers' OPT and XGLM have it: masked scores are the lowest number at least."""
    proto = onnx.load(model)
    nodes = []
    for node in proto.graph.node:
        if node.op_type == "Softmax":
            bounded = f"{node.input[0]}/bounded"
            nodes.append(onnx.helper.make_node("Max", [node.input[0], "lowest"], [bounded]))
            node.input[0] = bounded
        nodes.append(node)
    assert len(nodes) > len(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    lowest = np.array(np.finfo(np.float32).min)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(lowest, "lowest"))
    onnx.save(proto, model)


def count_positions(model: Path) -> None:
    """As NLLB's decoders have it: each token that is no padding is one behind the last such one."""
    proto = onnx.load(model)
    make, nodes = onnx.helper.make_node, []
    constants = {"padding": np.array(0), "along": np.array(1), "one": np.array(1)}
    for node in proto.graph.node:
        if list(node.output) != ["places/at"]:
            nodes.append(node)
            continue
        nodes += [
            make("Equal", ["input_ids", "padding"], ["places/padded"]),
            make("Not", ["places/padded"], ["places/real"]),
            make("Cast", ["places/real"], ["places/each"], to=onnx.TensorProto.INT64),
            make("CumSum", ["places/each", "along"], ["places/counted"]),
            make("Add", ["places/counted", "past/length"], ["places/behind"]),
            make("Mul", ["places/behind", "places/each"], ["places/kept"]),
            make("Sub", ["places/kept", "one"], ["places/at"]),
        ]
    assert len(nodes) == len(proto.graph.node) + 6
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    held = (onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    proto.graph.initializer.extend(held)
    onnx.save(proto, model)


def halve_inside(model: Path) -> None:
    """As onnxruntime's converter writes halves between inputs and outputs that stay floats."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    proto = float16.convert_float_to_float16(onnx.load(model), keep_io_types=True)
    assert [n.op_type for n in proto.graph.node if "past_key_values.0.key" in n.input] == ["Cast"]
    onnx.save(proto, model)


COUNTED = "positions counted by tokens"
BOUNDED = "bounded from below"
CAST = "halves between floats"
FUSED, BIASED, MERGED, DIVIDED = "norms inside", "biased apart", "merged", "divided by roots"
CASES = {
    "positions inside": (DecoderShape(**TINY, positions=True), ""),
    "rotated apart": (DecoderShape(**TINY, rotary_apart=True, packed=False), JOINED),
    "by another table": (DecoderShape(**TINY, rotary_apart=True), "computed apart"),
    "halves": (DecoderShape(**TINY, half=True), ""),
    "halves, apart": (
        DecoderShape(
            **TINY, kind="llama", half=True, rotary_apart=True, zeros=True, embedding_bits=4
        ),
        JOINED,
    ),
    "weights that a node opens": (DecoderShape(**TINY, qdq=True), ""),
    FUSED: (DecoderShape(**TINY, fused_norms=True), ""),
    "sinks, some windows": (
        DecoderShape(
            **{**TINY, "layers": 2}, kind="llama", sinks=True, alternating=True, window=6, seed=2
        ),
        "",
    ),
    "caches that slide": (
        DecoderShape(**{**TINY, "layers": 2}, alternating=True, window=6, slides=True, seed=1),
        "",
    ),
    "biases along the rows": (DecoderShape(**TINY, kind="llama", slopes=True), ""),
    "a cache of nibbles": (DecoderShape(**TINY, cache_bits=4, open_heads=True), ""),
    BIASED: (DecoderShape(**TINY, kind="llama", biased="qv", packed=False, bits=8), ""),
    "heads in one row": (
        DecoderShape(
            **{**TINY, "kv_heads": 4},
            **{"plain": 14, "multi_head": True, "kind": "learned", "window": 7, "biased": "qkv"},
        ),
        "",
    ),
    "spelt out, a window": (
        DecoderShape(**TINY, plain=14, bits=0, kind="llama", window=6, softcap=3.0),
        JOINED,
    ),
    "spelt out, learned positions": (
        DecoderShape(**TINY, plain=14, kind="learned", bits=0, kv_heads=4),
        "",
    ),
    COUNTED: (DecoderShape(**TINY, plain=14, bits=0, kind="learned"), ""),
    BOUNDED: (DecoderShape(**TINY, plain=14, bits=0, kind="learned"), ""),
    CAST: (DecoderShape(**TINY, plain=14, bits=0, kind="llama"), JOINED),
    DIVIDED: (DecoderShape(**TINY, plain=14, bits=0), JOINED),
    MERGED: (DecoderShape(**TINY, plain=14, bits=0, kind="llama"), JOINED),
    "latent": (DecoderShape(**TINY, plain=17, bits=0, kind="llama", latent=24), ""),
    "latent, in halves": (
        DecoderShape(**{**TINY, "layers": 2}, plain=17, bits=0, kind="llama", half=True, latent=20),
        "",
    ),
    "latent, the standard's attention": (
        DecoderShape(**TINY, plain=23, bits=0, kind="llama", latent=24),
        "computed apart",
    ),
    "the standard's attention": (DecoderShape(**TINY, plain=23, bits=0), JOINED),
    "the standard's in 4 bits and halves": (
        DecoderShape(**TINY, plain=23, kind="llama", half=True, window=5),
        JOINED,
    ),
}


_NIGHTLY = (
    "positions inside",
    "rotated apart",
    "halves, apart",
    "heads in one row",
    "spelt out, a window",
    "latent, in halves",
    "latent, the standard's attention",
    "the standard's in 4 bits and halves",
)
"""Each thing that they have, another has too."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.nightly if case in _NIGHTLY else ()) for case in CASES],
)
def test_tokens_are_the_references(device, tmp_path, case):
    shape, rotations = CASES[case]
    model = write_decoder(tmp_path, shape)
    if case == "by another table":
        turn_by_another_table(model)
    if case == BOUNDED:
        bound_scores(model)
    if case == COUNTED:
        count_positions(model)
    if case == DIVIDED:
        divide_by_roots(model)
    if case == CAST:
        halve_inside(model)
    if case == MERGED:
        hold_two_graphs(model)
    bundle, decisions = make_decoder_bundle(model, "fp32")
    told = {d["taken"] for d in decisions if d["subject"].endswith(" rotations")}
    assert told == ({rotations} if rotations else set())
    if case == BIASED:
        assert "computed with those beside them" in {d["taken"] for d in decisions}
    branches = [d["taken"] for d in decisions if d["subject"] == "use_cache_branch"]
    assert branches == ["is true: the then branch alone is compiled"] * (case == MERGED)
    if case == DIVIDED:
        norms = {
            "5 norms": "are one operator each",
            "2 norms of heads": "computed by the attention",
        }
        assert norms.items() <= {d["subject"]: d["taken"] for d in decisions}.items()
    with local_place(bundle, "") as place:
        tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, COUNT)
    # onnxruntime rounds each tensor of a model in halves to halves.
    tolerance = 4e-3 if shape.half or case == CAST else 1e-5
    if case == FUSED:  # which onnxruntime computes on other machines alone
        (tmp_path / "apart").mkdir()
        model = write_decoder(tmp_path / "apart", replace(shape, fused_norms=False))
    found = check_tokens(model, PROMPT, tokens, rows, tolerance=tolerance)
    found.raise_if_failed()
    assert found.near <= 1
    assert len(set(tokens)) > 3  # logits that are flat would show nothing


def test_targets_that_avoid_the_kernels_generate_by_loop_nests(device, tmp_path, monkeypatch):
    avoid_kernels(monkeypatch, "append_rows", "cached_attention", "n_bits")
    model = write_decoder(tmp_path, DecoderShape(**TINY))
    bundle, _ = make_decoder_bundle(model, "fp32")
    with local_place(bundle, "") as place:
        tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, 4)
    check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5).raise_if_failed()


FORMS = {
    "plain": TFLiteDecoder(layers=1),
    "four bits in blocks": TFLiteDecoder(transposed=True, bits=4, block=32, lengths=(4, 16)),
    "capped": TFLiteDecoder(layers=1, mask_given=False, cap=20.0, composite=True, bits=8),
    "window": TFLiteDecoder(layers=1, mask_given=False, window=7, transposed=True, bits=4),
}
PROMPT_TFLITE = (3, 5, 7, 11, 2, 9, 44, 23, 1, 60)


@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_those_of_litert(device, tmp_path, form):
    model = tmp_path / "m.tflite"
    model.write_bytes(make_tflite_decoder(FORMS[form]))
    bundle, decisions = make_decoder_bundle(model, "fp32")
    assert any(d["taken"] == "read and write their caches in place" for d in decisions)
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT_TFLITE, 16)
        found = check_tokens(model, PROMPT_TFLITE, tokens, rows, tolerance=1e-5)
        assert (found.equal, found.near) == (16, 0)
        found.raise_if_failed()
        assert len(set(tokens)) > 4  # logits that are flat would show nothing
        # A run of a prompt that is filled up, up to the last row, and one token at a time.
        whole = [*PROMPT_TFLITE, *tokens][:21]
        left = [3 * n % 97 for n in range(decoder.rows - 21)]
        decoder.rewind(0)
        decoder.take_in([*whole, *left])
        caches = {name: decoder.read_cache(name) for name in bundle.manifest.states}
        decoder.rewind(0)
        for token in [*whole, *left]:
            decoder.take_in([token])
        for name, rows_of_runs in caches.items():
            one_by_one = decoder.read_cache(name)
            np.testing.assert_allclose(rows_of_runs, one_by_one, atol=1e-5 * np.ptp(one_by_one))


def test_containers_are_opened(device, tmp_path):
    model = make_tflite_decoder(FORMS["plain"])
    text = write_tokenizer(tmp_path / "elsewhere.json", 97).read_bytes()
    said: list[dict[str, Any]] = []
    for name in ("m.task", "m.litertlm"):
        ends = [one["tokens"][7] for one in said]
        whole = write_task(model) if not said else write_litertlm(model, tokenizer=text, ends=ends)
        (tmp_path / name).write_bytes(whole)
        bundle = str(tmp_path / f"{name}.adrenoc")
        compile_it = ["compile", str(tmp_path / name), "--device", "host", "--preset", "fp32"]
        done = succeed(*compile_it, "--prefill", "4", "-o", bundle)
        run = ["run", bundle, "--prompt-ids", "3,5,7,2,9", "--check", str(tmp_path / name)]
        done = succeed(*run, "--max-tokens", "12", "--json")
        said.append(json.loads(done.output))
    tokens = said[0]["tokens"]
    assert said[0]["check"]["equal"] == len(tokens) == 12
    assert said[1]["tokens"] == tokens[: tokens.index(tokens[7]) + 1]
    assert said[1]["ended"] == "end"
    # The tokeniser of the container came into the bundle.
    run = ["run", bundle, "--prompt", "w3 w5 w7 w2 w9", "--max-tokens", "12", "--json"]
    done = succeed(*run)
    assert json.loads(done.output)["text"].split() == [f"w{t}" for t in said[1]["tokens"]]
