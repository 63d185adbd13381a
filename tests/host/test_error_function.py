"""The error function is ours: compilers' own is long."""

import math

import numpy as np
import pytest

from tests.host.run_op import relative_error

MOST_OFF = 5e-7
"""Of a value, as the rational function is in floats."""


def test_small_and_large_numbers_keep_their_digits(ops, device):
    ops.output(ops("Erf", name := ops.input(1, 8, 30, 40)))
    spread = np.linspace(-6, 6, 9000)
    tiny = np.logspace(-30, 0, 588)
    special = [math.inf, -math.inf, math.nan, 0.0, 4.0, -4.0]
    values = np.concatenate([spread, tiny[:297], -tiny[:297], special]).astype(np.float32)
    ops._inputs[name] = values.reshape(1, 8, 30, 40)
    (seen,) = ops.run(device, "fp32").values()
    expected = np.array([math.erf(float(v)) for v in values])
    off = np.abs(seen.ravel() - expected)
    assert np.isnan(seen.ravel()[np.isnan(expected)]).all()
    known = ~np.isnan(expected)
    assert (off[known] <= MOST_OFF * np.abs(expected[known])).all()


@pytest.mark.parametrize("preset", ["fp32", "mixed", "fp16"])
def test_after_a_product(ops, device, preset):
    """GELU as epilogue, of channels that fill no block, and of lanes put together."""
    rng = np.random.default_rng(4)
    weight = ops.const(rng.standard_normal((12, 21)).astype(np.float32) / 3)
    product = ops("Add", ops("MatMul", ops.input(1, 9, 12), weight), ops.const(0.3))
    half = ops("Erf", ops("Mul", product, ops.const(0.5**0.5)))
    gelu = ops("Mul", ops("Mul", product, ops("Add", half, ops.const(1.0))), ops.const(0.5))
    ops.output(gelu)
    ops.output(ops("Erf", ops("Concat", ops.input(1, 3, 4, 5), ops.input(1, 2, 4, 5), axis=1)))
    seen, expected = ops.run(device, preset), ops.reference()
    for name, value in seen.items():
        assert relative_error(value, expected[name]) < (2e-6 if preset == "fp32" else 4e-3)
