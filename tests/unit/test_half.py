"""Which constants halves can hold."""

import numpy as np
import pytest

from adrenoc.ir.half import explain_not_half, largest_by_axes, range_of

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


def test_ranges_of_halves_are_those_of_numbers() -> None:
    """As bits they are told in a hundredth of the time."""
    draw = np.random.default_rng(3)
    for _ in range(300):
        values = draw.standard_normal(draw.integers(1, 7)) * draw.choice([1e-7, 1.0, 1e4])
        values[0] = draw.choice([values[0], 0.0, -0.0, np.inf, -np.inf, np.nan])
        sign = draw.choice([-1, 0, 1])
        halves = (np.abs(values) * sign if sign else values).astype(np.float16)
        wanted = float(halves.min()), float(halves.max())
        assert np.array_equal(range_of(halves), wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("axes", [(), (2,), (0, 2, 3), (1, 2, 3), (2, 3)])
def test_the_largest_size_along_axes(dtype: str, axes: tuple[int, ...]) -> None:
    draw = np.random.default_rng(7)
    for odd in (0, np.nan, np.inf, -np.inf, -128):
        values = draw.standard_normal((4, 5, 3, 2)) * 30
        values[draw.random(values.shape) < 0.1] = odd if np.isfinite(odd) or dtype != "int8" else 0
        values = values.astype(dtype)
        wanted = np.abs(values.astype(np.float64)).max(axis=axes)
        assert np.array_equal(largest_by_axes(values, axes), wanted, equal_nan=True)


def test_a_constant_is_looked_at_once_while_it_lives() -> None:
    first = np.arange(5, dtype=np.float32)
    assert range_of(first) == (0.0, 4.0)
    del first
    for size in range(2, 40):
        assert range_of(np.arange(size, dtype=np.float32)) == (0.0, size - 1.0)
