"""What leaves the range of half by its own formula, and what half would make equal."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops], str]

_BEYOND = "half ends at 65504"


def _held(ops: Ops, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
    """A tensor between kernels."""
    return ops("MaxPool", ops.input(*shape, low=low, high=high), kernel_shape=[1, 1])


def _by_distance(ops: Ops) -> str:
    """Features weighted by one over their distance, some of which are zero."""
    distance = ops("Relu", _held(ops, 1, 3, 6, 5))
    weight = ops("Div", ops.const(1.0), ops("Add", distance, ops.const(1e-8)))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(1)))


def _by_reciprocal(ops: Ops) -> str:
    distance = ops("Relu", _held(ops, 1, 3, 6, 5))
    weight = ops("Reciprocal", ops("Max", distance, ops.const(1e-10)))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(1)))


def _by_exponentials(ops: Ops) -> str:
    """A softmax without the largest subtracted, as linear attention has it."""
    weight = ops("Exp", _held(ops, 1, 8, 6, 5, low=-20.0, high=20.0))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(2)))


def _log_of_sum(ops: Ops) -> str:
    total = ops("ReduceSum", ops("Exp", _held(ops, 1, 8, 6, 5, low=5.0, high=20.0)), ops.ints(1))
    scaled = ops("MaxPool", ops("Mul", total, ops.const(3.0)), kernel_shape=[1, 1])
    return ops("Log", scaled)


def _weighted(*extents: int) -> Build:
    """A convolution with weights that are not negative adds up large numbers, in any dimension."""

    def build(ops: Ops) -> str:
        one = [1] * len(extents)
        x = ops("MaxPool", ops.input(1, 8, *extents, low=5.0, high=20.0), kernel_shape=one)
        total = ops("Conv", ops("Exp", x), ops.const(np.full((4, 8, *one), 0.5)))
        return ops("Log", ops("MaxPool", total, kernel_shape=one))

    return build


LARGE: dict[str, Build] = {
    "by_distance": _by_distance,
    "by_exponentials": _by_exponentials,
    "by_reciprocal": _by_reciprocal,
    "log_of_sum": _log_of_sum,
    "weighted_1d": _weighted(30),
    "weighted_2d": _weighted(6, 5),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_numbers_between_kernels_do_not_overflow(ops, device, name):
    ops.output(ops("Relu", LARGE[name](ops)))
    ops.check(device, "mixed", tolerance=2e-2)
    assert any(d.taken == "float32" for d in ops.decisions)


def _elu(ops: Ops) -> str:
    return ops("Elu", _held(ops, 1, 8, 6, 5))


def _gaussian(ops: Ops) -> str:
    x = _held(ops, 1, 8, 6, 5)
    return ops("Exp", ops("Mul", ops("Mul", x, x), ops.const(-4.0)))


def _softmax_by_hand(ops: Ops) -> str:
    x = _held(ops, 1, 8, 6, 5)
    weight = ops("Exp", ops("Sub", x, ops("ReduceMax", x, ops.ints(1))))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(1)))


BOUNDED: dict[str, Build] = {
    "elu": _elu,
    "gaussian": _gaussian,
    "gelu": lambda ops: ops("Mul", x := _held(ops, 1, 8, 6, 5), ops("Erf", x)),
    "mish": lambda ops: ops("Mul", x := _held(ops, 1, 8, 6, 5), ops("Tanh", ops("Softplus", x))),
    "sigmoid": lambda ops: ops("Sigmoid", _held(ops, 1, 8, 6, 5)),
    "softmax_by_hand": _softmax_by_hand,
    "softplus": lambda ops: ops("Softplus", _held(ops, 1, 8, 6, 5)),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_stays_within_half_costs_nothing(ops, device, name):
    ops.output(ops("MaxPool", BOUNDED[name](ops), kernel_shape=[1, 1]))
    ops.check(device, "mixed", tolerance=2e-3)
    assert not any(_BEYOND in d.reason for d in ops.decisions)


@pytest.mark.parametrize("form", ("divided", "multiplied"))
@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_vectors_of_zeros_have_a_length_kept_from_zero(ops, device, form, preset):
    x = ops.input(1, 8, 6, 5)
    values = np.random.default_rng(0).standard_normal((1, 8, 6, 5)).astype(np.float32)
    values[:, :, 2] = 0
    ops.given(x, values)
    length = ops("Max", ops("ReduceL2", x, ops.ints(1)), ops.const(1e-12))
    if form == "divided":
        ops.output(ops("Div", x, length))
    else:
        ops.output(ops("Mul", x, ops("Reciprocal", length)))
    ops.check(device, "mixed", tolerance=2e-3)


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_peaks_are_found_once(ops, device, preset):
    """Scores of neighbours that are one number in half: only the larger one is a peak."""
    scores = 0.9 + np.random.default_rng(0).permutation(160).reshape(1, 2, 8, 10) * 1e-5
    x = ops.input(1, 2, 8, 10)
    ops.given(x, np.log(scores / (1 - scores)).astype(np.float32))
    score = ops("Sigmoid", x)
    pooled = ops("MaxPool", score, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    peaks = ops("Where", ops("Equal", score, pooled), score, ops.const(0.0))
    ops.output(peaks)
    ops.check(device, preset, tolerance=1e-3)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_the_place_of_the_largest_needs_no_float32(ops, device):
    x = _held(ops, 1, 8, 6, 5)
    ops.output(ops("ArgMax", ops("Sigmoid", x), axis=1))
    ops.run(device, "mixed")
    assert not any("tells its numbers apart" in d.reason for d in ops.decisions)
