"""A floor of rounding is told from what float32 is off by itself."""

import math

import pytest

from adrenoc.check.accuracy.result import Deviation
from adrenoc.check.accuracy.samples import floor_of
from adrenoc.pages.accuracy_page import floor_text


def _floor(ours: float, ideal: float, exact: float) -> tuple[bool, str]:
    made = [Deviation(largest=4 * rms, rms=rms) for rms in (ours, ideal, exact)]
    floor = floor_of(made[0], made[1], made[2], 7)
    return floor.is_of_rounding, floor_text(floor)


def test_what_float32_is_off_by_is_no_floor() -> None:
    """A quantised model flips quanta in float32 as in half: rounding to half explains nothing."""
    of_rounding, text = _floor(5e-3, 5e-3, 5e-3)
    assert not of_rounding
    assert text.startswith("none: float32 with nothing rounded to half is off by 2.0e-02 itself")


@pytest.mark.parametrize(
    ("ours", "said"), ((1.1e-3, "rounding alone"), (2e-3, "more than rounding"))
)
def test_a_floor_is_what_rounding_adds(ours: float, said: str) -> None:
    of_rounding, text = _floor(ours, 1e-3, 1e-6)
    assert of_rounding and text.endswith(said)


def test_what_half_cannot_hold_is_no_floor() -> None:
    of_rounding, text = _floor(math.inf, math.inf, 1e-6)
    assert not of_rounding and "half cannot hold" in text


def test_numbers_that_are_not_finite_are_not_blamed_on_half() -> None:
    """As where NaN is given, of which a device's maximum may make a number."""
    of_rounding, text = _floor(math.inf, math.inf, math.inf)
    assert not of_rounding and "do the inputs hold such numbers?" in text
