"""Which constants halves can hold."""

from __future__ import annotations

import numpy as np
import pytest

from adrenoc.ir.half import explain_not_half

LARGE, SMALL = "half ends at 65504", "half loses digits below 6.1e-05"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([0.0, 1.0], ""),
        ([0.0, 0.0], ""),
        ([], ""),
        ([65504.0], ""),
        ([1e6, 1e-9], f"its largest value is 1e+06: {LARGE}"),
        ([-3.4e38, 0.0], f"its largest value is 3.4e+38: {LARGE}"),
        ([np.inf, 1.0], ""),
        ([np.nan, -np.inf], ""),
        ([-np.inf, np.nan, -1e6], f"its largest value is 1e+06: {LARGE}"),
        ([1e-9, 0.5], ""),
        ([2.0**-14], ""),
        ([-6e-5, 1e-7], f"its largest value is 6e-05: {SMALL}"),
    ],
)
def test_the_largest_value_decides(values: list[float], reason: str) -> None:
    assert explain_not_half(np.array(values, np.float32)) == reason


def test_what_is_computed_of_it_may_be_larger() -> None:
    weights = np.full(3, 3e4, np.float32)
    assert not explain_not_half(weights)
    assert LARGE in explain_not_half(weights, 2.25)


def test_halves_hold_halves() -> None:
    assert not explain_not_half(np.full(3, 6e-8, np.float16))


def test_integers_are_no_constants_of_half() -> None:
    assert not explain_not_half(np.full(3, 10**6))
