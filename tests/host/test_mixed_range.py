"""Activations of a thousand in half textures: their squares are beyond half, so no tensor may
hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from run_op import Ops

Norm = Callable[[Ops, str], str]


def _by_hand(ops: Ops, x: str) -> str:
    """A layer norm as exporters of older opsets write it."""
    centred = ops("Sub", x, ops("ReduceMean", x, ops.ints(-1)))
    variance = ops("ReduceMean", ops("Pow", centred, ops.const(2.0)), ops.ints(-1))
    deviation = ops("Sqrt", ops("Add", variance, ops.const(1e-5)))
    return ops("Div", centred, deviation)


def _by_two_products(ops: Ops, x: str) -> str:
    """The length of a vector, its square written as a product."""
    squares = ops("ReduceSum", ops("Mul", x, x), ops.ints(1))
    return ops("Div", x, ops("Sqrt", squares))


def _computed_factor(ops: Ops, x: str) -> str:
    """A layer norm with a factor that no constant holds: it runs in parts."""
    factor = ops("Sigmoid", ops.input(5))
    return ops("LayerNormalization", x, factor, ops.input(5))


NORMS: dict[str, Norm] = {
    "by_hand": _by_hand,
    "by_two_products": _by_two_products,
    "computed_factor": _computed_factor,
    "instance": lambda ops, x: ops("InstanceNormalization", x, ops.weight(8), ops.weight(8)),
    "layer": lambda ops, x: ops("LayerNormalization", x, ops.weight(5), ops.weight(5)),
    "lp_1": lambda ops, x: ops("LpNormalization", x, axis=1, p=1),
    "lp_2": lambda ops, x: ops("LpNormalization", x, axis=1, p=2),
    "mean_variance": lambda ops, x: ops("MeanVarianceNormalization", x, axes=[0, 2, 3]),
    "reduce_l1": lambda ops, x: ops("ReduceL1", x, ops.ints(1)),
    "reduce_l2": lambda ops, x: ops("ReduceL2", x, ops.ints(1)),
    "reduce_l2_space": lambda ops, x: ops("ReduceL2", x, ops.ints(2, 3)),
    "log_of_sum_of_squares": lambda ops, x: ops("Log", ops("ReduceSumSquare", x, ops.ints(1))),
}


@pytest.mark.parametrize("name", NORMS)
def test_squares_of_large_activations_do_not_overflow(device: Any, name: str) -> None:
    ops = Ops()
    x = ops.input(1, 8, 6, 5, low=-1000.0, high=1000.0)
    # A tensor between kernels: what the norm reads has been stored in half.
    held = ops("MaxPool", x, kernel_shape=[1, 1])
    y = NORMS[name](ops, held)
    ops.output(ops("Relu", y))
    ops.check(device, "mixed")


def test_the_squares_are_computed_within_the_reduction(device: Any) -> None:
    ops = Ops()
    x = ops.input(1, 8, 6, 5)
    ops.output(ops("ReduceSum", ops("Mul", x, x), ops.ints(1)))
    ops.check(device, "mixed")
    assert len(ops.kernels) == 1


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
def test_taps_that_cancel_are_not_rounded(device: Any, preset: str) -> None:
    """What a folded batch norm makes of depthwise weights: large taps with a small sum."""
    ops = Ops()
    x = ops.input(1, 8, 9, 7)
    ops.given(x, np.random.default_rng(0).integers(60, 64, (1, 8, 9, 7)).astype(np.float32))
    taps = np.random.default_rng(1).uniform(-30.0, 30.0, (8, 1, 3, 3))
    taps -= taps.mean(axis=(2, 3), keepdims=True)
    ops.output(ops("Relu", ops("Conv", x, ops.const(taps), group=8)))
    ops.check(device, preset, tolerance=1e-5 if preset == "mixed" else 4e-4)
