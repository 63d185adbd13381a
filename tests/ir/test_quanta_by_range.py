"""Dynamic quantisations are the roundings whose quantum is of the range of what they round.

Others have a factor that is computed, too: gates, norms, and the quantum of an earlier rounding.
What is done for them is told as what it is.
"""

from pathlib import Path

import numpy as np
import pytest

from adrenoc.compile.pipeline.stage import graph_of
from tests.host.run_op import Ops
from tests.ir.planning import plan

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
    q = ops("QuantizeLinear", x, scale, zero)
    return ops("DequantizeLinear", q, scale, zero)


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
    two = ops("Concat", sums, sums, axis=1)
    y = ops("Mul", two, ops("Mul", scale, ops.const(0.004)))
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
    y = ops("MatMul", ops("Mul", whole, unit), ops.weight(32, 32))
    assert _told(ops, y, tmp_path)
