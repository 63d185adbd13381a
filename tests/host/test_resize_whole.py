"""Resizes of whole numbers equal onnxruntime's: what is cut off shows each last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_op import Ops

_MODES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
_SIZES = (((1, 1), (9, 11)), ((5, 7), (3, 4)), ((5, 7), (8, 9)), ((4, 4), (12, 20)))


def _equal(ops: Ops, device: Any, preset: str) -> None:
    seen = ops.run(device, preset)
    wrong = {
        name: int((seen[name] != expected).sum())
        for name, expected in ops.reference().items()
        if not np.array_equal(seen[name], expected)
    }
    assert not wrong


@pytest.mark.parametrize(
    ("preset", "dtype"), (("fp32", np.int8), ("mixed", np.uint8), ("fp16", np.int32))
)
def test_linear_resizes_of_whole_numbers_are_exact(device: Any, preset: str, dtype: Any) -> None:
    ops = Ops()
    low, high = max(np.iinfo(dtype).min, -128), min(np.iinfo(dtype).max, 255)
    for mode in _MODES:
        for source, target in _SIZES:
            x = ops.whole_input(1, 2, *source, count=2, dtype=dtype)
            values = np.random.default_rng(5).integers(low, high + 1, (1, 2, *source))
            ops.given(x, values.astype(dtype))
            sizes = ops.ints(1, 2, *target)
            attrs = {"mode": "linear", "coordinate_transformation_mode": mode}
            ops.output(ops("Resize", x, "", "", sizes, **attrs))
    _equal(ops, device, preset)


def test_nearest_elements_are_those_of_floats(device: Any) -> None:
    """Where a sample lies on an element in thirds and ninths, the last bit says which it is."""
    ops = Ops()
    x = ops.whole_input(1, 2, 5, 7, count=127, dtype=np.uint8)
    for mode in _MODES:
        for rounding in ("floor", "ceil", "round_prefer_floor"):
            attrs = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
            ops.output(ops("Resize", x, "", "", ops.ints(1, 2, 8, 9), **attrs))
    _equal(ops, device, "fp32")


def test_other_resizes_of_whole_numbers_do_not_lose_their_shares(device: Any) -> None:
    """Along three axes there are matrices of fractions, which must not be cut to integers."""
    ops = Ops()
    x = ops.whole_input(1, 2, 3, 4, 5, count=200, dtype=np.uint8)
    sizes = ops.ints(1, 2, 6, 8, 10)
    ops.output(ops("Resize", x, "", "", sizes, mode="linear"))
    (seen,) = ops.run(device, "fp32").values()
    (expected,) = ops.reference().values()
    assert np.abs(seen.astype(int) - expected.astype(int)).max() <= 1
