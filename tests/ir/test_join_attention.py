"""Attention over a growing past that is spelt out: what is found, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from model_zoo.decoder_shape import DecoderShape
from model_zoo.make_decoders import make_decoder

from adrenoc.base.errors import OptionError, UnsupportedOperatorError
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.importers import import_model
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.imported import Imported

SMALL = DecoderShape(layers=1, context=24, bits=0, kind="llama", plain=14, hidden=32, mlp=32)


def read(model: onnx.ModelProto, folder: Path, tokens: int = 4, rows: int = 24) -> Imported:
    path = folder / "model.onnx"
    onnx.save(model, path)
    form = find_decoder(path)
    assert form is not None
    plan = plan_decoder(form, rows, (tokens,))
    shapes = next(s for s in plan.buckets if dict(s)["input_ids"] == (1, tokens))
    return import_model(path, shapes=dict(shapes), caches=plan.caches)


def node_of(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if output in node.output)


@pytest.mark.parametrize("tokens", [1, 4, 23, 24])
def test_a_past_that_grows_is_read_in_place(tmp_path, tokens):
    imported = read(make_decoder(SMALL), tmp_path, tokens)
    told = {d.subject: d.taken for d in imported.decisions}
    assert told["1 attentions"] == "read and write their caches in place"
    assert told["2 rotations"] == "computed where keys are written and queries are read"
    kept = [spec.shape for spec in imported.inputs if spec.name.startswith("past_key")]
    assert kept == [(1, 2, 24, 16)] * 2
    text = imported.module.script()
    assert "softmax" not in text


def test_other_masks_are_refused(tmp_path):
    """A prefix that all tokens see, and a bias that grows with the square of a row's number."""
    model = make_decoder(SMALL)
    node_of(model, "mask/causal").op_type = "GreaterOrEqual"
    with pytest.raises(UnsupportedOperatorError, match="hides other rows than those after each"):
        read(model, tmp_path)
    with pytest.raises(UnsupportedOperatorError, match="hangs on more than how far a row lies"):
        read(bias_scores(squared=True), tmp_path)


@pytest.mark.parametrize("tokens", [1, 4, 23])
def test_biases_along_the_rows_are_tables_by_distance(tmp_path, tokens):
    imported = read(bias_scores(squared=False), tmp_path, tokens)
    told = {d.subject: d.reason for d in imported.decisions}
    assert told["1 attentions"].endswith("; 1 add a bias by how far rows lie apart")


def test_scores_that_are_bounded_with_their_mask_are_refused(tmp_path):
    """A bound behind the mask shows what the mask hides."""
    model = make_decoder(replace(SMALL, softcap=3.0))
    scaled, masked = (f"/model/layers.0/attn/{name}" for name in ("scaled", "masked"))
    node_of(model, masked).input[:] = [scaled, "mask"]
    first = node_of(model, "/model/layers.0/attn/small")
    first.input[0] = masked
    node_of(model, "/model/layers.0/attn/weights").input[0] = "/model/layers.0/attn/capped"
    nodes = sorted(model.graph.node, key=lambda node: node is not node_of(model, masked))
    at = nodes.index(node_of(model, scaled))
    nodes.insert(at, nodes.pop(0))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    with pytest.raises(UnsupportedOperatorError, match="2 of 2 caches are read by no attention"):
        read(model, tmp_path)


def bias_scores(*, squared: bool) -> onnx.ModelProto:
    """A decoder that adds a tenth of each row's number, or of its square, to its scores."""
    model = make_decoder(SMALL)
    made = node_of(model, "mask")
    made.output[0] = "mask/plain"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.1), "slope"))
    at = list(model.graph.node).index(made) + 1
    biased = [
        onnx.helper.make_node("Cast", ["mask/others"], ["mask/far"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Mul", ["mask/far", "slope"], ["mask/once"]),
        onnx.helper.make_node("Mul", ["mask/far", "mask/once"], ["mask/twice"]),
        onnx.helper.make_node(
            "Add", ["mask/plain", "mask/twice" if squared else "mask/once"], ["mask"]
        ),
    ]
    for node in reversed(biased):
        model.graph.node.insert(at, node)
    return model


def test_other_readers_of_a_cache_are_refused(tmp_path):
    model = make_decoder(SMALL)
    joined = node_of(model, "/model/layers.0/attn/joined")
    at = list(model.graph.node).index(joined)
    most = onnx.helper.make_node(
        "ReduceMax", ["present.0.key"], ["most"], keepdims=1, name="look at all keys"
    )
    model.graph.node.insert(at, most)
    added = onnx.helper.make_node("Add", [joined.input[0], "most"], ["with most"])
    model.graph.node.insert(at + 1, added)
    joined.input[0] = "with most"
    with pytest.raises(UnsupportedOperatorError, match="beside attention read caches: 'look at"):
        read(model, tmp_path)


def test_attention_of_another_form_is_refused_for_all_caches(tmp_path):
    model = make_decoder(SMALL)
    node_of(model, "/model/layers.0/attn/weights").op_type = "LogSoftmax"
    with pytest.raises(UnsupportedOperatorError, match=r"2 of 2 caches .*'present.0.key', 'pres"):
        read(model, tmp_path)


def test_layers_that_share_a_cache_are_refused(tmp_path):
    """As those of Gemma 3n, the last of which have no keys and values of their own."""
    model = make_decoder(replace(SMALL, layers=2))
    for node in model.graph.node:
        if node.name.startswith("/model/layers.1/") or "/model/layers.1/" in node.output[0]:
            names = [name.replace("present.1.", "present.0.") for name in node.input]
            node.input[:] = names
    with pytest.raises(UnsupportedOperatorError, match="2 caches are each read by several"):
        read(model, tmp_path)


def test_all_that_is_not_covered_is_said_at_once(tmp_path):
    model = make_decoder(replace(SMALL, layers=3))
    node_of(model, "mask/causal").op_type = "GreaterOrEqual"
    node_of(model, "/model/layers.1/attn/weights").op_type = "LogSoftmax"
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"2 of 6 caches are .*'present\.1\.key'.*; the mask of 2 attentions, "
        r"'/model/layers\.0/attn/out', '/model/layers\.2/attn/out', hides other rows",
    ):
        read(model, tmp_path)


def test_positions_beyond_their_table_ask_for_its_context(tmp_path):
    model = make_decoder(replace(SMALL, kind="learned", kv_heads=4, context=37))
    assert read(model, tmp_path, rows=37).states
    with pytest.raises(OptionError, match=r"has 37 rows, expected at least the context's 200"):
        read(model, tmp_path, rows=200)


def test_heads_that_are_repeated_otherwise_are_refused(tmp_path):
    """Head i of the queries reads head i modulo 2, as no cache is read."""
    model = make_decoder(SMALL)
    for name in ("present.0.key", "present.0.value"):
        node_of(model, f"{name}/one").input[1] = "axis1"
        ones = next(c for c in model.graph.initializer if c.name == f"{name}/ones")
        ones.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 2, 1, 1, 1]), ones.name))
    with pytest.raises(UnsupportedOperatorError, match="2 of 2 caches are read by no attention"):
        read(model, tmp_path)


def test_what_else_hangs_on_the_past_is_refused(tmp_path):
    model = make_decoder(SMALL)
    joined = node_of(model, "/model/layers.0/attn/joined")
    at = list(model.graph.node).index(joined)
    model.graph.node.insert(
        at, onnx.helper.make_node("Cast", ["all/length"], ["length"], to=onnx.TensorProto.FLOAT)
    )
    scaled = onnx.helper.make_node("Div", [joined.input[0], "length"], ["by length"])
    model.graph.node.insert(at + 1, scaled)
    joined.input[0] = "by length"
    with pytest.raises(UnsupportedOperatorError, match="'length'; expected attention alone to"):
        read(model, tmp_path)


def test_an_attention_that_masks_by_itself(tmp_path):
    """It counts the rows of a past that it is given, and no others."""
    model = make_decoder(replace(SMALL, plain=23))
    node = next(node for node in model.graph.node if node.op_type == "Attention")
    node.input[3] = ""
    node.attribute.append(onnx.helper.make_attribute("is_causal", 1))
    told = {d.subject for d in read(model, tmp_path).decisions}
    assert "1 attentions" in told
    pasts, presents = list(node.input[4:]), list(node.output[1:])
    at = list(model.graph.node).index(node)
    for one, (past, present) in enumerate(zip(pasts, presents, strict=True), start=1):
        joined = onnx.helper.make_node("Concat", [past, node.input[one]], [present], axis=2)
        model.graph.node.insert(at, joined)
        node.input[one] = present
    del node.input[3:], node.output[1:]
    with pytest.raises(UnsupportedOperatorError, match="hides other rows than those after each"):
        read(model, tmp_path)
