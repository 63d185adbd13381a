from __future__ import annotations

import numpy as np
import pytest

from adrenoc.families.shared import rounding
from adrenoc.families.shared.rounding import round_constant


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 7, 64, 65])
def test_parts_are_what_the_whole_is(
    rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounding, "PART_ELEMENTS", rows * 12)
    constant = np.random.default_rng(0).standard_normal((65, 3, 4)).astype(np.float32)
    constant[[3, 40], 1, 2] = 3e38, 7e4
    held: list[int] = []

    def squared(part: np.ndarray) -> np.ndarray:
        held.append(len(part))
        return np.repeat(part.astype(np.float64) ** 2, 2, axis=-1)

    made = round_constant(constant, dtype, squared)
    assert max(held) == min(rows, 65)
    whole = round_constant(squared(constant), dtype)
    np.testing.assert_array_equal(made.value, whole.value)
    assert made.value.dtype == dtype
    assert (made.lost, made.largest) == (whole.lost, whole.largest)
    assert made.lost == (4 if dtype == "float16" else 0)


def test_without_rows_the_other_extents_are_right() -> None:
    made = round_constant(np.zeros((0, 3), np.float32), "float16", lambda part: part[:, :2])
    assert made.value.shape == (0, 2)


def test_what_was_infinite_before_is_not_lost() -> None:
    made = round_constant(np.array([np.inf, 1e6, -np.nan, 2.0]), "float16")
    assert (made.lost, made.largest) == (1, 1e6)
