"""Kernels that store halves call the GPU's own functions: as good as halves can tell."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.host.run_op import Ops

_HALF_EPSILON = 2.0**-11

FORMS: dict[str, Callable[[Ops, str], str]] = {
    "sigmoid": lambda ops, x: ops("Sigmoid", x),
    "swish": lambda ops, x: ops("Mul", x, ops("Sigmoid", x)),
    "spelled": lambda ops, x: ops(
        "Div", ops.const(1.0), ops("Add", ops.const(1.0), ops("Exp", ops("Neg", x)))
    ),
    "tanh": lambda ops, x: ops("Tanh", x),
    "gelu": lambda ops, x: ops(
        "Mul", x, ops("Add", ops("Erf", ops("Div", x, ops.const(2**0.5))), ops.const(1.0))
    ),
    "sixth": lambda ops, x: ops("Div", ops("Mul", x, x), ops.const(6.0)),
}


def _values() -> np.ndarray:
    spread = np.linspace(-30, 30, 9000)
    tiny = np.logspace(-6, 0, 294)
    beyond = [1e3, -1e3, 6e4, -6e4, 88.5, -88.5, 0.0, 44.5, -44.5, 4.0, -4.0, 20.0]
    return np.concatenate([spread, tiny, -tiny, beyond]).astype(np.float16).astype(np.float32)


def _run(device: Any, kind: str, preset: str) -> tuple[np.ndarray, np.ndarray]:
    """What the device stores in between, read by a pool that only moves it, and the reference."""
    ops = Ops()
    x = ops.input(1, 8, 30, 40)
    window = {"kernel_shape": [1, 1], "strides": [2, 2]}
    ops.output(ops("MaxPool", FORMS[kind](ops, x), **window))
    ops.given(x, _values().reshape(1, 8, 30, 40))
    (seen,), (expected,) = ops.run(device, preset).values(), ops.reference().values()
    return seen, expected


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
@pytest.mark.parametrize("kind", FORMS)
def test_they_are_off_by_what_halves_are(device, kind, preset):
    seen, expected = _run(device, kind, preset)
    known = np.abs(expected) < 65504
    off = np.abs(seen - expected)[known]
    # Half of a step for what is stored, as much for a driver's own; sums of one and -1 lose digits.
    allowed = 2 * _HALF_EPSILON * np.abs(expected[known]) + 1e-5
    assert (off <= allowed).all(), f"{(off / allowed).max():.2f}"
    assert not np.isnan(seen).any()


def test_tanh_keeps_its_digits_in_floats(ops, device):
    ops.output(ops("Tanh", x := ops.input(1, 8, 30, 40)))
    special = [math.inf, -math.inf, math.nan, 0.0, 7.9, -8.0]
    spread = np.concatenate([np.linspace(-12, 12, 9000), np.logspace(-30, 0, 594), special])
    values = spread.astype(np.float32)
    ops.given(x, values.reshape(1, 8, 30, 40))
    (seen,) = ops.run(device, "fp32").values()
    expected = np.tanh(values.astype(np.float64))
    known = ~np.isnan(expected)
    off = np.abs(seen.ravel() - expected)
    assert np.isnan(seen.ravel()[~known]).all()
    assert (off[known] <= 5e-7 * np.abs(expected[known])).all()
