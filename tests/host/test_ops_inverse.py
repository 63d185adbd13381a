"""Inverses of matrices: in registers up to eight rows, as plain loops beyond."""

import numpy as np
import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

DOMAIN = "com.microsoft"
PRESETS = ("fp32", "mixed", "fp16", "buffer")


def _inverted(ops: Ops, *shape: int, shift: float = 4.0) -> str:
    """Invert what is far enough from singular for halves, with its rows in another order."""
    rows = shape[-1]
    near = ops("Add", ops.input(*shape), ops.const(shift * np.eye(rows, dtype=np.float32)[::-1]))
    return ops("Inverse", near, domain=DOMAIN)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8])
def test_small_matrices_are_one_kernel(ops, device, preset, rows):
    ops.output(ops("Tanh", _inverted(ops, 3, rows, rows)), _inverted(ops, rows, rows))
    ops.output(_inverted(ops, 2, 3, rows, rows))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("inverse") == 3


def test_pivots_are_taken_from_other_rows(ops, device):
    ops.output(_inverted(ops, 5, 5, 5, shift=0.0))
    ops.check(device, "fp32", tolerance=1e-3)


def test_larger_ones_are_plain_loops(ops, device):
    ops.output(_inverted(ops, 2, 11, 11))
    ops.check(device, "fp32")
    assert "inverse" not in ops.kernels
