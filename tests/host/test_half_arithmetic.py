"""Preset fp16 multiplies halves in long products alone; all else computes in float, as mixed does.

What is compared has been rounded to halves before, so that errors are those of the operator.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.host.run_op import Ops

Map = Callable[[Ops, str], str]


def _held(ops: Ops, values: Any) -> str:
    """A tensor between kernels that holds these values, rounded to half."""
    values = np.asarray(values, np.float16).astype(np.float32)
    name = ops.input(*values.shape)
    ops.given(name, values)
    return ops("MaxPool", name, kernel_shape=[1, 1])


def _square_root_of_square(ops: Ops, x: str) -> str:
    return ops("Sqrt", ops("Pow", x, ops.const(2.0)))


def _to_unit_length(ops: Ops, x: str) -> str:
    return ops("Div", x, ops("Sqrt", ops("Add", ops("Mul", x, x), ops.const(1.0))))


def _ratio(ops: Ops, x: str) -> str:
    twice = ops("Mul", x, ops.const(2.0))
    return ops(
        "Div", ops("Mul", twice, twice), ops("Add", ops("Mul", twice, twice), ops.const(1.0))
    )


def _hard_swish(ops: Ops, x: str) -> str:
    gate = ops("Clip", ops("Add", x, ops.const(3.0)), ops.const(0.0), ops.const(6.0))
    return ops("Div", ops("Mul", x, gate), ops.const(6.0))


def _gelu(ops: Ops, x: str) -> str:
    cube = ops("Mul", ops.const(0.044715), ops("Mul", x, ops("Mul", x, x)))
    inner = ops("Tanh", ops("Mul", ops.const(0.79788), ops("Add", x, cube)))
    return ops("Mul", ops("Mul", x, ops.const(0.5)), ops("Add", inner, ops.const(1.0)))


MAPS: tuple[Map, ...] = (
    _square_root_of_square,
    _to_unit_length,
    _ratio,
    _hard_swish,
    _gelu,
    lambda ops, x: ops("Softplus", x),
    lambda ops, x: ops("Mish", x),
    lambda ops, x: ops("Sigmoid", x),
    lambda ops, x: ops("Tanh", x),
    lambda ops, x: ops("Mul", ops("Mul", x, x), ops.const(1e-5)),
    lambda ops, x: ops("Clip", x, ops.const(-1e6), ops.const(3e38)),
    lambda ops, x: ops("Log", ops("Add", ops("Relu", x), ops.const(1e-9))),
)


def test_maps_of_large_numbers_do_not_overflow(ops, device):
    x = _held(ops, np.linspace(-3e4, 3e4, 256).reshape(1, 8, 4, 8))
    for make in MAPS:
        ops.output(make(ops, x))
    ops.check(device, "fp16", tolerance=1e-3)


def test_an_epilogue_may_leave_the_range_of_half_on_its_way(ops, device):
    x = _held(ops, np.random.default_rng(0).uniform(-3000.0, 3000.0, (1, 8, 16, 16)))
    result = ops("Conv", x, ops.weight(8, 8, 1, 1))
    ops.output(ops("Mul", ops("Mul", result, result), ops.const(1e-4)))
    ops.check(device, "fp16", tolerance=4e-3)


def test_long_scans_count_on(ops, device):
    x = _held(ops, np.ones((1, 1, 1, 5000)))
    ops.output(ops("Relu", ops("CumSum", x, ops.ints(3))))
    ops.check(device, "fp16", tolerance=1e-3)


def test_sums_that_are_scaled_down_may_be_large(ops, device):
    x = _held(ops, np.random.default_rng(0).uniform(-3e4, 3e4, (1, 8, 6, 5)))
    ops.output(ops("Mul", ops("ReduceL1", x, ops.ints(1)), ops.const(1e-3)))
    ops.output(ops("ReduceLogSum", ops("Abs", x), ops.ints(1)))
    ops.check(device, "fp16", tolerance=1e-3)


def test_long_products_of_activations_may_be_large_on_their_way(ops, device):
    """The first half of the products sums to more than a half holds; the second takes it back."""
    random = np.random.default_rng(0)
    right = random.uniform(0.5, 1.5, (1, 2, 512, 16))
    right[:, :, 256:] *= -1
    right -= right.mean(axis=2, keepdims=True)
    a = _held(ops, 500 + random.normal(0.0, 20.0, (1, 2, 20, 512)))
    ops.output(ops("Relu", ops("MatMul", a, _held(ops, right))))
    ops.check(device, "fp16", tolerance=2e-2)
