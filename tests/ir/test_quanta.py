"""Quanta and whole numbers: dynamic quantisations, doubles that scale, products on the GPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from onnxruntime.quantization import quantize_dynamic
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.compile.steps import graph_of
from adrenoc.importers.relax.own import N_BITS, RECURRENT, call_own
from adrenoc.importers.relax.values import dtype_of
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.families.expansion.expansion_plan import reciprocal
from adrenoc.kernels.families.operators import OF_RELAX
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.read.read_graph import read_graph
from adrenoc.passes.rewrites.simplify import simplify
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import load_target
from tests.host.run_op import Ops
from tests.ir.planning import check, plan
from tests.mcu.drawn import drawn_model
from tests.mcu.onnx_models import float_model, write_quantised
from tests.models import graph, parse_nodes, write

DYNAMIC = "dynamic quantisations are computed"


def _told(ops: Ops, output: str, folder: Path) -> list[str]:
    """Of what decisions about dynamic quantisations are."""
    ops.output(output)
    ops.save(folder / "model.onnx")
    state = plan(folder / "model.onnx", until="keep_integers", preset="mixed")
    assert any(graph_of(state).precision(n.output).rounded for n in graph_of(state).nodes)
    return [d.subject for d in state.log if DYNAMIC in d.reason]


def _quantised(ops: Ops, x: str, unit: float = 0.02) -> str:
    scale, zero = ops.const(unit), ops.const(128, np.uint8)
    return ops("DequantizeLinear", ops("QuantizeLinear", x, scale, zero), scale, zero)


def _bytes(ops: Ops, *shape: int) -> str:
    whole = ops.const(np.rint(ops.values(*shape) * 200), np.int8)
    return ops("DequantizeLinear", whole, ops.const(0.00113), ops.const(0, np.int8))


def _excited(ops: Ops, x: str) -> str:
    """Squeeze and excitation in floats."""
    mean = ops("GlobalAveragePool", x)
    return ops("Sigmoid", ops("Conv", mean, ops.weight(16, 16, 1, 1)))


def _largest_pixel(ops: Ops, x: str) -> str:
    return ops("Sigmoid", ops("ReduceMax", x, ops.ints(2, 3), keepdims=1))


def _largest_channel(ops: Ops, x: str) -> str:
    largest = ops("ReduceMax", x, ops.ints(1), keepdims=1)
    return ops("Sigmoid", ops("Conv", largest, ops.weight(1, 1, 3, 3), pads=[1] * 4))


def _shares(ops: Ops, x: str) -> str:
    """A softmax over the means of channels, as of selective kernels, written out."""
    mean = ops("GlobalAveragePool", x)
    largest = ops("ReduceMax", mean, ops.ints(1), keepdims=1)
    power = ops("Exp", ops("Sub", mean, largest))
    return ops("Div", power, ops("ReduceSum", power, ops.ints(1), keepdims=1))


def _inverse_size(ops: Ops, x: str) -> str:
    square = ops("ReduceMean", ops("Mul", x, x), ops.ints(1), keepdims=1)
    return ops("Reciprocal", ops("Sqrt", ops("Add", square, ops.const(1e-5))))


@pytest.mark.parametrize(
    "gate", [_excited, _largest_pixel, _largest_channel, _shares, _inverse_size]
)
def test_a_factor_that_is_computed_makes_no_dynamic_quantisation(gate, tmp_path):
    ops = Ops(seed=4)
    y = _quantised(ops, ops.input(1, 16, 24, 20))
    y = _quantised(ops, ops("Conv", y, _bytes(ops, 16, 16, 3, 3), pads=[1] * 4))
    y = _quantised(ops, ops("Mul", y, gate(ops, y)))
    y = _quantised(ops, ops("Conv", y, _bytes(ops, 16, 16, 3, 3), pads=[1] * 4))
    assert not _told(ops, y, tmp_path)


def test_a_term_of_each_channel_makes_none(tmp_path):
    """As the embedding of a time step is added."""
    ops = Ops(seed=4)
    time = ops("Tanh", ops("MatMul", ops.input(1, 8), ops.weight(8, 32)))
    y = ops("Add", _quantised(ops, ops.input(1, 24, 32)), time)
    y = ops("MatMul", _quantised(ops, y), _bytes(ops, 32, 32))
    assert not _told(ops, _quantised(ops, y), tmp_path)


def test_the_quantum_of_an_earlier_rounding_makes_none(tmp_path):
    """One dynamic quantisation; its sums, with others, are rounded by a fixed quantum next."""
    ops = Ops(seed=4)
    q, scale, zero = ops.several(
        "DynamicQuantizeLinear", [ops.input(1, 24, 32)], ["q", "scale", "zero"]
    )
    weight = ops.const(np.rint(ops.values(32, 32) * 250), np.int8)
    sums = ops("Cast", ops("MatMulInteger", q, weight, zero), to=1)
    y = ops("Mul", ops("Concat", sums, sums, axis=1), ops("Mul", scale, ops.const(0.004)))
    y = ops("Add", y, ops("MatMul", ops.input(1, 1, 8), ops.weight(8, 32)))
    # The input, its least number and the quantum; nothing of what is added behind.
    assert _told(ops, _quantised(ops, y), tmp_path) == ["3 tensors"]


def _by_largest(ops: Ops, x: str, axes: list[int]) -> str:
    """Symmetric, one quantum for all, or one a token."""
    largest = ops("ReduceMax", ops("Abs", x), ops.ints(*axes), keepdims=1)
    return ops("Div", largest, ops.const(127.0))


def _by_ends(ops: Ops, x: str, axes: list[int]) -> str:
    most = ops("ReduceMax", x, ops.ints(*axes), keepdims=1)
    least = ops("ReduceMin", x, ops.ints(*axes), keepdims=1)
    return ops("Div", ops("Sub", most, least), ops.const(255.0))


def _by_steps(ops: Ops, x: str, _axes: list[int]) -> str:
    """A largest number of largest numbers, as frameworks fold one axis at a time."""
    rows = ops("ReduceMax", ops("Abs", x), ops.ints(2), keepdims=1)
    return ops("Div", ops("ReduceMax", rows, ops.ints(1), keepdims=1), ops.const(127.0))


def _by_powers_of_two(ops: Ops, x: str, axes: list[int]) -> str:
    """A power of two, as of block floating point."""
    log = ops("Div", ops("Log", _by_largest(ops, x, axes)), ops.const(np.log(2.0)))
    return ops("Pow", ops.const(2.0), ops("Ceil", log))


@pytest.mark.parametrize("by", [_by_largest, _by_ends, _by_steps, _by_powers_of_two])
@pytest.mark.parametrize("axes", [[0, 1, 2], [2]])
def test_a_quantum_by_the_range_makes_one(by, axes, tmp_path):
    """As programs write it that have no operator for it."""
    ops = Ops(seed=4)
    x = ops("MatMul", ops.input(1, 24, 32), ops.weight(32, 32))
    x = ops("Add", x, ops("Relu", ops("MatMul", x, ops.weight(32, 32))))
    unit = by(ops, x, axes)
    whole = ops("Clip", ops("Round", ops("Div", x, unit)), ops.const(-127.0), ops.const(127.0))
    assert _told(ops, ops("MatMul", ops("Mul", whole, unit), ops.weight(32, 32)), tmp_path)


node = helper.make_node
DOUBLE, FLOAT = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
HELD = {
    "m": np.array(1234567890.0),
    "e": np.array(2.0**33),
    "by_row": np.array([[3.0], [5.0]]),
    "shift": np.array(-7.0),
    "third": np.array(1 / 3),
}


def doubles(module: tvm.IRModule) -> int:
    """How many bindings of the main function are in double."""
    (block,) = module["main"].body.blocks
    return sum(dtype_of(binding.var) == "float64" for binding in block.bindings)


def imported(folder: Path, nodes: list[onnx.NodeProto], *outputs: str) -> tvm.IRModule:
    """The module, which is held against onnxruntime."""
    begin = [node("Cast", ["x"], ["d"], to=DOUBLE), node("Cast", ["z"], ["f"], to=DOUBLE)]
    model = graph([*begin, *nodes], {"x": (2, 5), "z": (2, 5)}, list(outputs), HELD)
    found, module = check(write(model, folder))
    told = any("in double computed in float32" in d.taken for d in simplify(found.module)[1])
    assert told == (doubles(module) == 0)
    return module


SCALED = parse_nodes("a = Mul(d, m) b = Div(a, e) r = Round(b)")
NARROW = {
    "a factor of two constants": [*SCALED, node("Cast", ["r"], ["y"], to=FLOAT)],
    "a factor by row": [
        *SCALED,
        *parse_nodes("c = Mul(r, by_row) s = Round(c)"),
        node("Cast", ["s"], ["y"], to=FLOAT),
    ],
    "a sum of whole numbers": [
        *SCALED,
        *parse_nodes("t = Round(f) u = Add(r, t)"),
        node("Cast", ["u"], ["y"], to=FLOAT),
    ],
    "a product of a sum with a constant": [
        *parse_nodes("g = Add(f, shift) h = Mul(d, g) i = Round(h)"),
        node("Cast", ["i"], ["y"], to=FLOAT),
    ],
}


@pytest.mark.parametrize("name", NARROW)
def test_what_is_rounded_needs_no_doubles(tmp_path, name):
    assert doubles(imported(tmp_path, NARROW[name], "y")) == 0


WIDE = {
    "what is not rounded": [node("Mul", ["d", "m"], ["a"]), node("Cast", ["a"], ["y"], to=FLOAT)],
    "a difference of products": [
        *parse_nodes("a = Mul(d, third) b = Mul(f, third) c = Sub(a, b) r = Round(c)"),
        node("Cast", ["r"], ["y"], to=FLOAT),
    ],
    "a constant of more digits in a sum": [
        *parse_nodes("c = Add(d, third) r = Round(c)"),
        node("Cast", ["r"], ["y"], to=FLOAT),
    ],
    "what is read in double, too": [
        *SCALED,
        *parse_nodes("s = Sin(b) t = Add(r, s)"),
        node("Cast", ["t"], ["y"], to=FLOAT),
    ],
    "an output in double": [*SCALED, node("Identity", ["r"], ["y"])],
}


@pytest.mark.parametrize("name", WIDE)
def test_other_doubles_stay(tmp_path, name):
    assert doubles(imported(tmp_path, WIDE[name], "y")) > 0


@pytest.mark.parametrize("divisor", [2, 3, 5, 7, 11, 23, 64, 90, 255, 361])
def test_quotients_are_exact_up_to_the_most(divisor):
    for most in (divisor, 2 * divisor - 1, 2047, 20000):
        found = reciprocal(divisor, most)
        assert found is not None
        factor, shift = found
        assert most * factor < 1 << 31
        assert all(n * factor >> shift == n // divisor for n in range(most + 1))


def test_there_is_none_where_products_would_not_fit():
    assert reciprocal(7, 1 << 30) is None


Shape = tuple[int, ...]
Case = tuple[Shape, Shape, dict[str, Any]]


def _windows(rank: int) -> list[Case]:
    """Dense, grouped and depthwise convolutions, with strides, dilations, uneven padding."""
    image, window = (9, 10, 8)[:rank], (3, 2, 3)[:rank]
    uneven = [*([1] * rank), *([2] * rank)]
    return [
        ((2, 6, *image), (8, 6, *window), {}),
        ((2, 6, *image), (6, 2, *window), {"groups": 3, "strides": [2] * rank}),
        ((1, 6, *image), (6, 1, *window), {"groups": 6, "padding": uneven}),
        ((1, 6, *image), (4, 6, *window), {"dilation": [2] * rank, "padding": uneven}),
    ]


def _transposed(rank: int) -> list[Case]:
    image, window = (5, 4, 3)[:rank], (3, 2, 3)[:rank]
    return [
        ((2, 6, *image), (6, 4, *window), {}),
        ((1, 6, *image), (6, 2, *window), {"groups": 3, "strides": [2] * rank}),
        ((1, 6, *image), (6, 1, *window), {"groups": 6, "strides": [2] * rank}),
        ((1, 6, *image), (6, 4, *window), {"padding": [1] * (2 * rank)}),
    ]


_MATRICES: list[Case] = [
    ((4, 6), (6, 5), {}),
    ((6,), (6, 5), {}),
    ((2, 3, 4, 6), (3, 6, 5), {}),
    ((2, 1, 6), (1, 6, 1), {}),
]


def _n_bits(x, _weight):
    packed = relax.const(np.full((5, 2, 16), 0x9A, np.uint8))
    scales = relax.const(np.ones((5, 2), np.float32))
    how: dict[str, Any] = {"block": 32, "zero": 8.0, "zeros": False, "bits": 4}
    return call_own(N_BITS, [x, packed, scales], shape=(3, 5), **how)


PRODUCTS: dict[str, tuple[Any, list[Case]]] = {
    "relax.nn.conv1d": (relax.op.nn.conv1d, _windows(1)),
    "relax.nn.conv2d": (relax.op.nn.conv2d, _windows(2)),
    "relax.nn.conv3d": (relax.op.nn.conv3d, _windows(3)),
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d_transpose, _transposed(1)),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d_transpose, _transposed(2)),
    "relax.nn.conv3d_transpose": (relax.op.nn.conv3d_transpose, _transposed(3)),
    N_BITS: (_n_bits, [((3, 64), (1,), {})]),
    "relax.matmul": (relax.op.matmul, _MATRICES),
    "relax.einsum": (lambda x, w: relax.op.einsum([x, w], "ab,bc->ac"), [((4, 6), (6, 5), {})]),
    "relax.outer": (relax.op.outer, [((4,), (6,), {})]),
}
CASES = [(name, case) for name, (_, cases) in PRODUCTS.items() for case in cases]


def _read(make, case: Case, dtype: str):
    builder = relax.BlockBuilder()
    shapes, attributes = case[:2], case[2]
    x, w = (relax.Var(n, relax.TensorType(s, dtype)) for n, s in zip("xw", shapes, strict=True))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            made = builder.emit_output(builder.emit(make(x, w, **attributes)))
        builder.emit_func_output(made)
    everything = {operator.name: "a device without it" for operator in OF_RELAX.values()}
    return read_graph(builder.get(), DecisionLog(), avoided=everything)


def test_the_table_has_every_product():
    # Attention multiplies activations, which are floats; so are the states of a recurrent layer,
    # whose importers write one of quanta out step by step.
    kinds = (Kind.CONVOLUTION, Kind.PRODUCT)
    whole = {name for name, operator in OF_RELAX.items() if operator.kind in kinds}
    assert whole - {RECURRENT} <= PRODUCTS.keys()


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_product_that_no_family_takes_is_a_loop_nest(name, case, dtype):
    graph = _read(PRODUCTS[name][0], case, dtype)
    assert graph.nodes
    assert all(node.body is not None and not node.is_on_cpu for node in graph.nodes)


def test_doubles_are_what_goes_to_the_cpu():
    """The reason that there is: and no form of quantised model computes in doubles."""
    make, cases = PRODUCTS["relax.matmul"]
    assert [node.is_on_cpu for node in _read(make, cases[0], "float64").nodes] == [True]


def _quantised_gpu(kind: str, folder: Path) -> Path:
    form, _, data = kind.partition(" ")
    if form in ("QDQ", "QOperator"):
        return write_quantised(folder, seed=3, form=form, data=data, per_channel=form == "QDQ")
    if form == "dynamic":
        import onnx

        onnx.save(float_model(3), folder / "f.onnx")
        quantize_dynamic(folder / "f.onnx", folder / "m.onnx")
        return folder / "m.onnx"
    (folder / "m.tflite").write_bytes(drawn_model(int(data), operators=12))
    return folder / "m.tflite"


_KINDS = [
    "QDQ QInt8",
    "QDQ QUInt8",
    "QOperator QUInt8",
    "dynamic",
    *(f"drawn {n}" for n in range(4)),
]


@pytest.mark.parametrize("kind", _KINDS)
def test_networks_of_a_gpu_that_can_do_nothing_whole(kind, tmp_path):
    target = load_target("adreno:750")
    words = tuple(f"operator:{operator.name}" for operator in OF_RELAX.values())
    quirk = Quirk(name="nothing", text="whole operators are wrong", source="a test", avoid=words)
    target = replace(target, gpu=replace(target.gpu, quirks=(quirk,)))
    options = resolve_options(target, preset="mixed").options
    start = State(model=_quantised_gpu(kind, tmp_path), target=target, options=options)
    graph = run_stages(start, reporter=SilentReporter(), stop_after="read_graph")[0].graph
    assert not [node.name for node in graph.nodes if node.is_on_cpu]
    assert not any(
        node.op == operator.name for operator in OF_RELAX.values() for node in graph.nodes
    )
