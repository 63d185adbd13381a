"""Attention and layer norms that are spelt out: what is found, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from model_zoo.decoder_shape import DecoderShape
from model_zoo.make_decoders import make_decoder
from tvm import relax

from adrenoc.base.errors import OptionError, UnsupportedOperatorError
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.importers import import_model
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.imported import Imported
from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.import_and_run import operators
from tests.stock_tvm import run_on_cpu

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
    assert "softmax" not in imported.module.script()


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
    nodes.insert(nodes.index(node_of(model, scaled)), nodes.pop(0))
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
    assert "1 attentions" in {d.subject for d in read(model, tmp_path).decisions}
    pasts, presents = list(node.input[4:]), list(node.output[1:])
    at = list(model.graph.node).index(node)
    for one, (past, present) in enumerate(zip(pasts, presents, strict=True), start=1):
        joined = onnx.helper.make_node("Concat", [past, node.input[one]], [present], axis=2)
        model.graph.node.insert(at, joined)
        node.input[one] = present
    del node.input[3:], node.output[1:]
    with pytest.raises(UnsupportedOperatorError, match="hides other rows than those after each"):
        read(model, tmp_path)


op = relax.op
RNG = np.random.default_rng(2)
SHAPE = (2, 5, 12)

Build = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def const(value: object) -> relax.Expr:
    return relax.const(np.asarray(value, np.float32))


GAINS = const(RNG.uniform(0.5, 1.5, 12))
OFFSETS = const(RNG.uniform(-0.5, 0.5, (1, 1, 12)))


def statistics(
    bb: relax.BlockBuilder, x: relax.Expr, axes: tuple[int, ...] = (-1,), epsilon: float = 1e-3
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The mean, the difference to it, and the variance with epsilon."""
    mean = bb.emit(op.mean(x, list(axes), True))
    centred = bb.emit(op.subtract(x, mean))
    variance = bb.emit(op.mean(bb.emit(op.multiply(centred, centred)), list(axes), True))
    return mean, centred, bb.emit(op.add(variance, const(epsilon)))


def by_keras(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    scale = bb.emit(op.multiply(bb.emit(op.rsqrt(raised)), GAINS))
    moved = bb.emit(op.multiply(bb.emit(op.negative(mean)), scale))
    return bb.emit(op.add(bb.emit(op.multiply(x, scale)), bb.emit(op.add(moved, OFFSETS))))


def by_tensorflow(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    scale = bb.emit(op.multiply(bb.emit(op.rsqrt(raised)), GAINS))
    offset = bb.emit(op.subtract(OFFSETS, bb.emit(op.multiply(mean, scale))))
    return bb.emit(op.add(bb.emit(op.multiply(x, scale)), offset))


def by_torch(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(bb, x)
    normed = bb.emit(op.divide(centred, bb.emit(op.sqrt(raised))))
    return bb.emit(op.add(bb.emit(op.multiply(normed, GAINS)), OFFSETS))


def by_square(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean = bb.emit(op.mean(x, [-1], True))
    again = bb.emit(op.subtract(x, mean))
    squared = bb.emit(op.power(bb.emit(op.subtract(x, mean)), const(2)))
    raised = bb.emit(op.add(const(1e-3), bb.emit(op.mean(squared, [-1], True))))
    return bb.emit(op.multiply(bb.emit(op.multiply(GAINS, again)), bb.emit(op.rsqrt(raised))))


def without_kept_axes(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean = bb.emit(op.expand_dims(bb.emit(op.mean(x, [2], False)), [2]))
    centred = bb.emit(op.subtract(x, mean))
    spread = bb.emit(op.mean(bb.emit(op.multiply(centred, centred)), [2], False))
    raised = bb.emit(op.add(bb.emit(op.expand_dims(spread, [2])), const(1e-3)))
    return bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))


def over_two_axes(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(bb, x, (1, 2))
    return bb.emit(op.multiply(bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised)))), GAINS))


def simplified(build: Build) -> tvm.IRModule:
    """The simplified module, proven to compute the same as before."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    before = builder.get()
    after, _ = simplify(before)
    value = (RNG.standard_normal(SHAPE) * 3 + 7).astype(np.float32)
    for a, b in zip(run_on_cpu(before, [value]), run_on_cpu(after, [value]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return after


@pytest.mark.parametrize(
    "build", [by_keras, by_tensorflow, by_torch, by_square, without_kept_axes, over_two_axes]
)
def test_a_norm_is_one_operator(build):
    assert operators(simplified(build)) == {"nn.layer_norm": 1}


def test_gains_along_other_axes_stay_apart():
    rows = const(RNG.uniform(0.5, 1.5, (1, 5, 1)))

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        mean, _, raised = statistics(bb, x)
        scale = bb.emit(op.multiply(bb.emit(op.rsqrt(raised)), rows))
        moved = bb.emit(op.subtract(rows, bb.emit(op.multiply(mean, scale))))
        return bb.emit(op.add(bb.emit(op.multiply(x, scale)), moved))

    assert operators(simplified(build)) == {"nn.layer_norm": 1, "multiply": 1, "add": 1}


def test_what_is_read_beside_the_norm_stays():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        _, centred, raised = statistics(bb, x)
        normed = bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))
        both = relax.Tuple([normed, centred])
        return bb.emit(op.concat(both, 0))

    assert operators(simplified(build)) == {
        "nn.layer_norm": 1,
        "mean": 1,
        "subtract": 1,
        "concat": 1,
    }


def test_two_norms_of_one_tensor():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        _, centred, raised = statistics(bb, x)
        normed = bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))
        first, second = bb.emit(op.add(normed, OFFSETS)), bb.emit(op.multiply(normed, GAINS))
        return bb.emit(op.matmul(first, bb.emit(op.permute_dims(second, [0, 2, 1]))))

    assert operators(simplified(build))["nn.layer_norm"] == 2


def _other_mean(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Centred by the mean along one axis, scaled by the spread along another."""
    _, _, raised = statistics(bb, x, (1,))
    _, centred, _ = statistics(bb, x, (2,))
    return bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))


def _other_sign(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    return bb.emit(op.multiply(bb.emit(op.add(x, mean)), bb.emit(op.rsqrt(raised))))


def _other_gains(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    scale = bb.emit(op.rsqrt(raised))
    scaled = bb.emit(op.multiply(x, bb.emit(op.multiply(scale, GAINS))))
    return bb.emit(op.subtract(scaled, bb.emit(op.multiply(mean, scale))))


def _squared(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(bb, x)
    scale = bb.emit(op.rsqrt(raised))
    return bb.emit(op.multiply(bb.emit(op.multiply(centred, scale)), scale))


def _read_beside(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """The deviation is computed all the same."""
    _, centred, raised = statistics(bb, x)
    scale = bb.emit(op.rsqrt(raised))
    normed = bb.emit(op.multiply(centred, scale))
    return bb.emit(op.multiply(normed, bb.emit(op.exp(scale))))


@pytest.mark.parametrize("build", [_other_mean, _other_sign, _other_gains, _squared, _read_beside])
def test_what_only_looks_like_a_norm_stays(build):
    assert "nn.layer_norm" not in operators(simplified(build))
