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
from tests.ir.planning import operators
from tests.models import parse_nodes, write
from tests.stock_tvm import run_on_cpu

SMALL = DecoderShape(layers=1, context=24, bits=0, kind="llama", plain=14, hidden=32, mlp=32)


def read(model: onnx.ModelProto, folder: Path, tokens: int = 4, rows: int = 24) -> Imported:
    path = write(model, folder)
    form = find_decoder(path)
    assert form is not None
    plan = plan_decoder(form, rows, (tokens,))
    shapes = next(s for s in plan.buckets if dict(s)["input_ids"] == (1, tokens))
    return import_model(path, shapes=dict(shapes), caches=plan.caches)


def _refused(model: onnx.ModelProto, folder: Path, said: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=said):
        read(model, folder)


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
    _refused(model, tmp_path, "hides other rows than those after each")
    _refused(bias_scores(squared=True), tmp_path, "hangs on more than how far a row lies")


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
    _refused(model, tmp_path, "2 of 2 caches are read by no attention")


def bias_scores(*, squared: bool) -> onnx.ModelProto:
    """A decoder that adds a tenth of each row's number, or of its square, to its scores."""
    model = make_decoder(SMALL)
    made = node_of(model, "mask")
    made.output[0] = "plain"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.1), "slope"))
    times = "twice" if squared else "once"
    biased = (
        "rows = Cast <to = 1>(others) once = Mul(rows, slope) twice = Mul(rows, once) "
        f"mask = Add(plain, {times})"
    )
    _insert(model, list(model.graph.node).index(made) + 1, biased, others="mask/others")
    return model


def _insert(model: onnx.ModelProto, at: int, nodes: str, **names: str) -> None:
    """Put nodes before node `at`; `names` are what their text cannot spell."""
    for node in reversed(parse_nodes(nodes)):
        node.input[:] = [names.get(name, name) for name in node.input]
        model.graph.node.insert(at, node)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (
            "[look_at] most = ReduceMax <keepdims = 1>(K) new = Add(old, most)",
            "beside attention read caches: 'look_at",
        ),
        (
            "length = Cast <to = 1>(L) new = Div(old, length)",
            "'length'; expected attention alone to",
        ),
    ],
    ids=["other readers of a cache", "what else hangs on the past"],
)
def test_what_else_reads_caches_is_refused(tmp_path, nodes, said):
    model = make_decoder(SMALL)
    joined = node_of(model, "/model/layers.0/attn/joined")
    at = list(model.graph.node).index(joined)
    _insert(model, at, nodes, K="present.0.key", L="all/length", old=joined.input[0])
    joined.input[0] = "new"
    _refused(model, tmp_path, said)


def test_attention_of_another_form_is_refused_for_all_caches(tmp_path):
    model = make_decoder(SMALL)
    node_of(model, "/model/layers.0/attn/weights").op_type = "LogSoftmax"
    _refused(model, tmp_path, r"2 of 2 caches .*'present.0.key', 'pres")


def test_layers_that_share_a_cache_are_refused(tmp_path):
    """As those of Gemma 3n, the last of which have no keys and values of their own."""
    model = make_decoder(replace(SMALL, layers=2))
    for node in model.graph.node:
        if node.name.startswith("/model/layers.1/") or "/model/layers.1/" in node.output[0]:
            names = [name.replace("present.1.", "present.0.") for name in node.input]
            node.input[:] = names
    _refused(model, tmp_path, "2 caches are each read by several")


def test_all_that_is_not_covered_is_said_at_once(tmp_path):
    model = make_decoder(replace(SMALL, layers=3))
    node_of(model, "mask/causal").op_type = "GreaterOrEqual"
    node_of(model, "/model/layers.1/attn/weights").op_type = "LogSoftmax"
    said = (
        r"2 of 6 caches are .*'present\.1\.key'.*; the mask of 2 attentions, "
        r"'/model/layers\.0/attn/out', '/model/layers\.2/attn/out', hides other rows"
    )
    _refused(model, tmp_path, said)


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
    _refused(model, tmp_path, "2 of 2 caches are read by no attention")


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
    _refused(model, tmp_path, "hides other rows than those after each")


op = relax.op
RNG = np.random.default_rng(2)
SHAPE = (2, 5, 12)

Emit = Callable[[relax.Expr], relax.Expr]
Build = Callable[[Emit, relax.Expr], relax.Expr]


def const(value: object) -> relax.Expr:
    return relax.const(np.asarray(value, np.float32))


GAINS = const(RNG.uniform(0.5, 1.5, 12))
OFFSETS = const(RNG.uniform(-0.5, 0.5, (1, 1, 12)))


def statistics(
    emit: Emit, x: relax.Expr, axes: tuple[int, ...] = (-1,), epsilon: float = 1e-3
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The mean, the difference to it, and the variance with epsilon."""
    mean = emit(op.mean(x, list(axes), True))
    centred = emit(x - mean)
    return mean, centred, emit(op.mean(centred * centred, list(axes), True) + const(epsilon))


def by_keras(emit: Emit, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(emit, x)
    scale = emit(op.rsqrt(raised) * GAINS)
    return x * scale + (op.negative(mean) * scale + OFFSETS)


def by_tensorflow(emit: Emit, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(emit, x)
    scale = emit(op.rsqrt(raised) * GAINS)
    return x * scale + (OFFSETS - mean * scale)


def by_torch(emit: Emit, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(emit, x)
    return centred / op.sqrt(raised) * GAINS + OFFSETS


def by_square(emit: Emit, x: relax.Expr) -> relax.Expr:
    mean = emit(op.mean(x, [-1], True))
    again = emit(x - mean)
    raised = const(1e-3) + op.mean(op.power(x - mean, const(2)), [-1], True)
    return GAINS * again * op.rsqrt(raised)


def without_kept_axes(emit: Emit, x: relax.Expr) -> relax.Expr:
    centred = emit(x - op.expand_dims(op.mean(x, [2], False), [2]))
    spread = op.mean(centred * centred, [2], False)
    return centred * op.rsqrt(op.expand_dims(spread, [2]) + const(1e-3))


def over_two_axes(emit: Emit, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(emit, x, (1, 2))
    return centred * op.rsqrt(raised) * GAINS


def simplified(build: Build) -> tvm.IRModule:
    """The simplified module, proven to compute the same as before."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, x))
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


def _gains_of_rows(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Gains along other axes stay apart."""
    rows = const(RNG.uniform(0.5, 1.5, (1, 5, 1)))
    mean, _, raised = statistics(emit, x)
    scale = emit(op.rsqrt(raised) * rows)
    return x * scale + (rows - mean * scale)


def _beside(emit: Emit, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(emit, x)
    normed = emit(centred * op.rsqrt(raised))
    return op.concat(relax.Tuple([normed, centred]), 0)


def _twice(emit: Emit, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(emit, x)
    normed = emit(centred * op.rsqrt(raised))
    return op.matmul(normed + OFFSETS, op.permute_dims(normed * GAINS, [0, 2, 1]))


@pytest.mark.parametrize(
    ("build", "made"),
    [
        (_gains_of_rows, {"multiply": 1, "add": 1}),
        (_beside, {"mean": 1, "subtract": 1, "concat": 1}),
    ],
)
def test_what_else_hangs_on_a_norm_stays(build, made):
    assert operators(simplified(build)) == {"nn.layer_norm": 1, **made}


def test_two_norms_of_one_tensor():
    assert operators(simplified(_twice))["nn.layer_norm"] == 2


def _other_mean(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Centred by the mean along one axis, scaled by the spread along another."""
    _, _, raised = statistics(emit, x, (1,))
    _, centred, _ = statistics(emit, x, (2,))
    return centred * op.rsqrt(raised)


def _other_sign(emit: Emit, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(emit, x)
    return (x + mean) * op.rsqrt(raised)


def _other_gains(emit: Emit, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(emit, x)
    scale = emit(op.rsqrt(raised))
    return x * (scale * GAINS) - mean * scale


def _squared(emit: Emit, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(emit, x)
    scale = emit(op.rsqrt(raised))
    return centred * scale * scale


def _read_beside(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The deviation is computed all the same."""
    _, centred, raised = statistics(emit, x)
    scale = emit(op.rsqrt(raised))
    return centred * scale * op.exp(scale)


@pytest.mark.parametrize("build", [_other_mean, _other_sign, _other_gains, _squared, _read_beside])
def test_what_only_looks_like_a_norm_stays(build):
    assert "nn.layer_norm" not in operators(simplified(build))
