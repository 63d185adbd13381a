"""Quanta and whole numbers: dynamic quantisations, doubles that scale, products on the GPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
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
from tests.models import graph, write

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


GATES = {
    "squeeze and excitation in floats": "a = GlobalAveragePool(y) b = Conv(a, w) g = Sigmoid(b)",
    "largest pixels": "a = ReduceMax <keepdims = 1>(y, pixels) g = Sigmoid(a)",
    "largest channels": """a = ReduceMax <keepdims = 1>(y, channels)
                           b = Conv <pads = [1, 1, 1, 1]>(a, window) g = Sigmoid(b)""",
    # A softmax over the means of channels, as of selective kernels, written out.
    "shares": """a = GlobalAveragePool(y) b = ReduceMax <keepdims = 1>(a, channels) c = Sub(a, b)
                 d = Exp(c) e = ReduceSum <keepdims = 1>(d, channels) g = Div(d, e)""",
    "an inverse size": """a = Mul(y, y) b = ReduceMean <keepdims = 1>(a, channels)
                          c = Add(b, least) d = Sqrt(c) g = Reciprocal(d)""",
}


@pytest.mark.parametrize("gate", GATES)
def test_a_factor_that_is_computed_makes_no_dynamic_quantisation(gate, tmp_path):
    ops = Ops(seed=4)
    y = _quantised(ops, ops.input(1, 16, 24, 20))
    y = _quantised(ops, ops("Conv", y, _bytes(ops, 16, 16, 3, 3), pads=[1] * 4))
    consts = {"pixels": [2, 3], "channels": [1], "least": 1e-5}
    weights = {"w": ops.weight(16, 16, 1, 1), "window": ops.weight(1, 1, 3, 3)}
    y = _quantised(ops, ops.text(GATES[gate] + " z = Mul(y, g)", y=y, **weights, **consts))
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


BY = {
    "the largest number, for all or a token": "unit = Div(largest, signed)",
    "the ends": """most = ReduceMax <keepdims = 1>(x, axes)
                   least = ReduceMin <keepdims = 1>(x, axes)
                   range = Sub(most, least) unit = Div(range, unsigned)""",
    # As frameworks fold one axis at a time.
    "the largest of largest numbers": """rows = ReduceMax <keepdims = 1>(size, two)
                                         all = ReduceMax <keepdims = 1>(rows, one)
                                         unit = Div(all, signed)""",
    # As of block floating point.
    "a power of two": """a = Div(largest, signed) b = Log(a) c = Div(b, log2) d = Ceil(c)
                         unit = Pow(base, d)""",
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("axes", [[0, 1, 2], [2]])
def test_a_quantum_by_the_range_makes_one(by, axes, tmp_path):
    """As programs write it that have no operator for it."""
    ops = Ops(seed=4)
    x = ops("MatMul", ops.input(1, 24, 32), ops.weight(32, 32))
    x = ops("Add", x, ops("Relu", ops("MatMul", x, ops.weight(32, 32))))
    y = ops.text(
        f"""size = Abs(x) largest = ReduceMax <keepdims = 1>(size, axes) {BY[by]}
            parts = Div(x, unit) near = Round(parts) whole = Clip(near, lowest, signed)
            again = Mul(whole, unit) y = MatMul(again, w)""",
        **{"x": x, "w": ops.weight(32, 32), "axes": axes, "one": [1], "two": [2]},
        **{"signed": 127.0, "lowest": -127.0, "unsigned": 255.0, "log2": np.log(2.0), "base": 2.0},
    )
    assert _told(ops, y, tmp_path)


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


def imported(folder: Path, nodes: str) -> tvm.IRModule:
    """The module, which is held against onnxruntime."""
    nodes = "d = Cast <to = 11>(x) f = Cast <to = 11>(z)" + nodes
    model = graph(nodes, {"x": (2, 5), "z": (2, 5)}, ["y"], HELD)
    found, module = check(write(model, folder))
    told = any("in double computed in float32" in d.taken for d in simplify(found.module)[1])
    assert told == (doubles(module) == 0)
    return module


SCALED = "a = Mul(d, m) b = Div(a, e) r = Round(b)"
NARROW = {
    "a factor of two constants": f"{SCALED} y = Cast <to = 1>(r)",
    "a factor by row": f"{SCALED} c = Mul(r, by_row) s = Round(c) y = Cast <to = 1>(s)",
    "a sum of whole numbers": f"{SCALED} t = Round(f) u = Add(r, t) y = Cast <to = 1>(u)",
    "a product of a sum with a constant": """g = Add(f, shift) h = Mul(d, g) i = Round(h)
                                             y = Cast <to = 1>(i)""",
}
WIDE = {
    "what is not rounded": "a = Mul(d, m) y = Cast <to = 1>(a)",
    "a difference of products": """a = Mul(d, third) b = Mul(f, third) c = Sub(a, b)
                                   r = Round(c) y = Cast <to = 1>(r)""",
    "a constant of more digits in a sum": "c = Add(d, third) r = Round(c) y = Cast <to = 1>(r)",
    "what is read in double, too": f"{SCALED} s = Sin(b) t = Add(r, s) y = Cast <to = 1>(t)",
    "an output in double": f"{SCALED} y = Identity(r)",
}


@pytest.mark.parametrize("name", [*NARROW, *WIDE])
def test_what_is_rounded_alone_needs_no_doubles(tmp_path, name):
    assert (doubles(imported(tmp_path, {**NARROW, **WIDE}[name])) == 0) == (name in NARROW)


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
