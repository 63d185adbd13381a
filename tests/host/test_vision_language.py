"""Vision-language models in parts: text alone goes through the embedding and the decoder."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from model_zoo.decoder_shape import DecoderShape
from model_zoo.make_decoders import make_decoder
from onnx import TensorProto, helper

from adrenoc.base.errors import ModelFormatError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.importers.containers import find_embedding
from tests.commands import ask, refuse, succeed

ROWS = "inputs_embeds"


def split_decoder(shape: DecoderShape) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The embedding of a decoder, and the decoder without it."""
    decoder = make_decoder(shape)
    graph = decoder.graph
    (lookup,) = (n for n in graph.node if "input_ids" in n.input and n.op_type != "Shape")
    (tokens,) = (value for value in graph.input if value.name == "input_ids")
    tables = [one for one in graph.initializer if one.name in lookup.input]
    element = helper.np_dtype_to_tensor_dtype(shape.float_type)
    rows = helper.make_tensor_value_info(ROWS, element, ["batch_size", "sequence", shape.hidden])
    given = lookup.output[0]
    for node in graph.node:
        node.input[:] = [ROWS if name in (given, "input_ids") else name for name in node.input]
    graph.node.remove(lookup)
    lookup.input[:] = ["input_ids" if name == ROWS else name for name in lookup.input]
    lookup.output[:] = [ROWS]
    embedding = helper.make_model(
        helper.make_graph([lookup], "embed_tokens", [tokens], [rows], tables),
        opset_imports=decoder.opset_import,
        ir_version=decoder.ir_version,
    )
    for table in tables:
        graph.initializer.remove(table)
    graph.input.remove(tokens)
    graph.input.insert(0, rows)
    return embedding, decoder


def round_table(embedding: onnx.ModelProto) -> None:
    """Bytes in the table and one scale, as onnxruntime's quantize_dynamic has it."""
    graph = embedding.graph
    (table,) = graph.initializer
    values = onnx.numpy_helper.to_array(table)
    scale = abs(values).max() / 127
    numbers = (values / scale).round().astype("int8")
    table.CopyFrom(onnx.numpy_helper.from_array(numbers, table.name))
    for name, value in (("scale", values.dtype.type(scale)), ("zero", numbers.dtype.type(0))):
        graph.initializer.append(onnx.numpy_helper.from_array(value, f"{table.name}/{name}"))
    (node,) = graph.node
    node.output[:] = ["numbers"]
    opened = ["numbers", f"{table.name}/scale", f"{table.name}/zero"]
    graph.node.append(helper.make_node("DequantizeLinear", opened, [ROWS]))


def write_parts(
    folder: Path, shape: DecoderShape, embedding: onnx.ModelProto, decoder: onnx.ModelProto
) -> None:
    """Both models with the configuration of their makers one folder up."""
    (folder / "onnx").mkdir(parents=True)
    onnx.save(embedding, folder / "onnx" / "embed_tokens.onnx")
    onnx.save(decoder, folder / "onnx" / "decoder_model_merged.onnx")
    text = {"max_position_embeddings": shape.context}
    config = {"text_config": text, "eos_token_id": shape.vocabulary - 1}
    (folder / "config.json").write_text(json.dumps(config))


def store_halves(embedding: onnx.ModelProto) -> None:
    """Rows in float16, as where parts are of different numbers."""
    (rows,) = embedding.graph.output
    rows.type.tensor_type.elem_type = TensorProto.FLOAT16
    (table,) = embedding.graph.initializer
    values = onnx.numpy_helper.to_array(table).astype("float16")
    table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))


PATCH, SIDE = 4, 12
"""Pixels of a patch, and of an image, on a side: nine rows."""


def make_encoder(shape: DecoderShape) -> onnx.ModelProto:
    """Pictures to rows, as SmolVLM's vision encoder has it: those of zeros alone are left out.

    [1, 1, 3, H, W] and a mask of pixels to [1, rows, hidden].
    """
    draw = np.random.default_rng(9)
    weights = {
        "patches": draw.normal(size=(24, 3, PATCH, PATCH)) * 0.3,
        "projector": draw.normal(size=(24, shape.hidden)) * 0.3,
    }
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    encoder (float[batch, images, 3, height, width] pixel_values,
             bool[batch, images, height, width] pixel_attention_mask)
        => (float[images, rows, {shape.hidden}] image_features)
        <int64[4] pictures = {{-1, 3, {SIDE}, {SIDE}}}, int64[4] masks = {{-1, 1, {SIDE}, {SIDE}}},
         int64[3] flat = {{0, 24, -1}}, float zero = {{0}}, int64[3] axes = {{1, 2, 3}},
         int64 all = {{{3 * SIDE * SIDE}}}> {{
      each = Reshape (pixel_values, pictures)
      dark = Equal (each, zero)
      counts = Cast <to = 7> (dark)
      count = ReduceSum <keepdims = 0> (counts, axes)
      empty = Equal (count, all)
      real = Not (empty)
      found = NonZero (real)
      places = Transpose (found)
      kept = GatherND (each, places)
      mask = Reshape (pixel_attention_mask, masks)
      kept_mask = GatherND (mask, places)
      there = Cast <to = 1> (kept_mask)
      masked = Mul (kept, there)
      seen = Conv <strides = [{PATCH}, {PATCH}]> (masked, patches)
      wide = Tanh (seen)
      columns = Reshape (wide, flat)
      rows = Transpose <perm = [0, 2, 1]> (columns)
      image_features = MatMul (rows, projector)
    }}"""
    model = onnx.parser.parse_model(text)
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    return model


PROMPT = (3, 5, 7, 11, 2, 9, 44)
COUNT = 12
CASES = {
    "spelt out": DecoderShape(layers=1, context=32, plain=14, bits=0, kind="llama"),
    "a table of bytes": DecoderShape(layers=1, context=32, plain=14, bits=0, kind="llama"),
    "a table of halves": DecoderShape(layers=1, context=32),
    "an older embedding": DecoderShape(layers=1, context=32),
    "a table of blocks": DecoderShape(layers=1, context=32, embedding_bits=4),
    "short convolutions": DecoderShape(layers=2, context=32, conv_taps=3),
    "three positions": DecoderShape(layers=1, context=32, streams=True),
}
"""As SmolVLM and LLaVA have it, the same in int8, in two precisions, in q4, LFM2-VL, Qwen2-VL."""


def step_apart(
    folder: Path, prompt: tuple[int, ...], count: int, pictures: np.ndarray | None = None
) -> list[int]:
    """Greedy tokens of onnxruntime: one model after the other, each token by itself.

    Tokens below zero are rows of `pictures`, -1 the first.
    """
    embedding, decoder = (
        onnxruntime.InferenceSession(folder / "onnx" / f"{name}.onnx")
        for name in ("embed_tokens", "decoder_model_merged")
    )
    states: dict[str, np.ndarray] = {}
    for port in decoder.get_inputs():
        if port.name.startswith("past"):
            extents = [one if isinstance(one, int) else int(at == 0) for at, one in
                       enumerate(port.shape)]  # fmt: skip
            states[port.name] = np.zeros(extents, np.float32)
    names = [port.name for port in decoder.get_outputs()]
    takes = {port.name: port for port in decoder.get_inputs()}
    tokens, logits = list(prompt), np.zeros(0)
    while len(tokens) < len(prompt) + count:
        for at in range(len(tokens) - 1 if logits.size else 0, len(tokens)):
            (rows,) = embedding.run(None, {"input_ids": np.array([[max(tokens[at], 0)]])})
            if tokens[at] < 0 and pictures is not None:
                rows = pictures[None, -1 - tokens[at]][None]
            feeds = {ROWS: rows.astype(np.float32), **states}
            feeds["attention_mask"] = np.ones((1, at + 1), np.int64)
            if "position_ids" in takes:
                streams = takes["position_ids"].shape[:-2]
                feeds["position_ids"] = np.full((*streams, 1, 1), at, np.int64)
            made = dict(zip(names, decoder.run(names, feeds), strict=True))
            states = {name: made[_next_of(name, names)] for name in states}
            logits = made["logits"][0, -1]
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def _next_of(name: str, names: list[str]) -> str:
    return next(
        new
        for old, present in (("past_key_values", "present"), ("past", "present"))
        if (new := name.replace(old, present, 1)) in names
    )


@pytest.mark.parametrize("case", CASES)
def test_text_alone_is_that_of_onnxruntime(device, tmp_path, case):
    shape, folder = CASES[case], tmp_path / "model"
    embedding, decoder = split_decoder(shape)
    if case == "a table of bytes":
        round_table(embedding)
    if case == "a table of halves":
        store_halves(embedding)
    if case == "an older embedding":
        embedding.opset_import[0].version = 13
    write_parts(folder, shape, embedding, decoder)
    bundle = tmp_path / "b.adrenoc"
    words = ["compile", folder, "--device", "host", "--preset", "fp32", "-o", bundle]
    made = ask(*words, "--prefill", 4)
    assert open_bundle(bundle).manifest.end_tokens == (shape.vocabulary - 1,)
    told = {one["subject"]: one["taken"] for one in made["decisions"]}
    assert told[ROWS] == "looked up by embed_tokens.onnx"
    assert told["context"] == f"{shape.context} rows"
    run = ["run", bundle, "--prompt-ids", ",".join(map(str, PROMPT)), "--max-tokens", COUNT]
    model = folder / "onnx" / "decoder_model_merged.onnx"
    said = ask(*run, "--check", model)
    assert said["check"]["equal"] == COUNT
    assert said["check"]["max_error"] < 1e-5
    assert said["tokens"] == step_apart(folder, PROMPT, COUNT)
    assert len(set(said["tokens"])) > 3  # logits that are flat would show nothing


def test_another_embedding_is_another_model(device, tmp_path):
    shape = DecoderShape(layers=1, context=32)
    parts = split_decoder(shape)
    write_parts(tmp_path / "a", shape, *parts)
    round_table(parts[0])
    write_parts(tmp_path / "b", shape, *parts)
    bundles = [tmp_path / f"{name}.adrenoc" for name in "ab"]
    for bundle in bundles:
        succeed("compile", bundle.with_suffix(""), "--device", "host", "-o", bundle)
    assert len({open_bundle(bundle).manifest.model.sha256 for bundle in bundles}) == 2


def test_an_embedding_that_takes_more_is_refused(tmp_path):
    shape = DecoderShape(layers=1, context=32)
    embedding, decoder = split_decoder(shape)
    more = embedding.graph.input.add()
    more.CopyFrom(embedding.graph.output[0])
    more.name = "image_features"
    write_parts(tmp_path / "a", shape, embedding, decoder)
    assert "takes 'input_ids', 'image_features'" in refuse(
        ModelFormatError, "compile", tmp_path / "a", "--no-cache"
    )


def test_the_embedding_of_the_decoders_numbers_is_taken(tmp_path):
    for ending in ("", "_fp16", "_q4"):
        (tmp_path / f"embed_tokens{ending}.onnx").touch()
    found = {
        ending: find_embedding(tmp_path / f"decoder{ending}.onnx") for ending in ("_q4", "_q8")
    }
    names = ("embed_tokens_q4.onnx", "embed_tokens.onnx")
    assert found == dict(zip(("_q4", "_q8"), (tmp_path / n for n in names), strict=True))
    assert find_embedding(tmp_path / "embed_tokens_q4.onnx") is None
