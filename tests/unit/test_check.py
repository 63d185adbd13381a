"""The judgement on numbers."""

from __future__ import annotations

import numpy as np
import pytest

from adrenoc.device.compare import compare, default_tolerance, floors_of
from adrenoc.errors import CheckFailedError

EXPECTED = np.array([[-1.0, 0.0, 1.0, 3.0]], dtype="float32")


def test_measures_against_the_range() -> None:
    result = compare({"y": EXPECTED + np.float32(0.004)}, {"y": EXPECTED}, tolerance=2e-3)
    (tensor,) = result.tensors
    assert tensor.max_error == pytest.approx(0.004, rel=1e-3)
    assert tensor.range_error == pytest.approx(0.001, rel=1e-3)
    assert tensor.rmse == pytest.approx(0.004, rel=1e-3)
    assert tensor.cosine == pytest.approx(1.0, abs=1e-5)
    assert result.passed
    result.raise_if_failed()


def test_names_the_output_that_is_off() -> None:
    outputs = {"good": EXPECTED, "bad": EXPECTED * 1.1}
    result = compare(outputs, {"good": EXPECTED, "bad": EXPECTED}, tolerance=1e-2)
    assert [tensor.passed for tensor in result.tensors] == [True, False]
    with pytest.raises(CheckFailedError, match="the output `bad` disagrees"):
        result.raise_if_failed()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_values_never_pass(bad: float) -> None:
    seen = EXPECTED.copy()
    seen[0, 1] = bad
    for outputs, expected in ((seen, EXPECTED), (EXPECTED, seen)):
        result = compare({"y": outputs}, {"y": expected}, tolerance=1e9)
        assert result.tensors[0].bad_values == 1
        assert not result.passed
    assert compare({"y": seen}, {"y": seen}, tolerance=1e-4).passed


def test_infinities_of_other_sign_disagree() -> None:
    seen, expected = EXPECTED.copy(), EXPECTED.copy()
    seen[0, 0], expected[0, 0] = np.inf, -np.inf
    assert not compare({"y": seen}, {"y": expected}, tolerance=1e9).passed


def test_a_constant_output_is_measured_by_its_size() -> None:
    constant = np.full((4,), 1000.0)
    assert compare({"y": constant + 0.01}, {"y": constant}, tolerance=1e-4).passed
    zero = np.zeros(4)
    assert compare({"y": zero}, {"y": zero}, tolerance=1e-4).passed
    assert not compare({"y": zero + 0.1}, {"y": zero}, tolerance=1e-4).passed


def test_shapes_and_names_must_fit() -> None:
    assert not compare({"y": EXPECTED.ravel()}, {"y": EXPECTED}, tolerance=1.0).passed
    assert not compare({"y": EXPECTED}, {"z": EXPECTED}, tolerance=1.0).passed


def test_whole_numbers_do_not_wrap() -> None:
    low, high = np.array([0], dtype="uint8"), np.array([255], dtype="uint8")
    assert compare({"y": low}, {"y": high}, tolerance=0.1).tensors[0].max_error == 255.0


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "uint8"])
def test_labels_are_measured_by_the_share_that_differs(dtype: str) -> None:
    """A tie that falls otherwise is no error of the size of its index."""
    wanted = np.tile(np.array([0, 1], dtype), 200)
    seen = wanted.copy()
    seen[7] = 0
    (tensor,) = compare({"y": seen}, {"y": wanted}, tolerance=1e-2).tensors
    assert tensor.range_error == 1 / 400
    assert tensor.passed
    result = compare({"y": seen}, {"y": wanted}, tolerance=1e-4)
    assert result.tensors[0].reason == "off in 2.5e-03 of its labels, expected 1e-04 at most"


def test_quanta_and_whole_numbers_that_are_all_near_are_measured_by_their_range() -> None:
    quanta = np.arange(200, dtype="uint8")
    seen = quanta.copy()
    seen[0] = 20
    assert not compare({"y": seen}, {"y": quanta}, tolerance=1e-2).passed
    counts = np.arange(0, 2000, 10, dtype="int64")
    assert compare({"y": counts + 1}, {"y": counts}, tolerance=1e-2).passed


def test_tolerance_follows_the_types() -> None:
    assert default_tolerance("float32", "float32") == 1e-4
    assert default_tolerance("float16", "float32") == 1e-2


def test_entries_that_were_not_found_are_no_part_of_an_output() -> None:
    wanted = {"y": np.array([[4, 2], [1, 7]], np.int64)}
    rest = np.full((3, 2), -1, np.int64)
    seen = np.concatenate([wanted["y"], rest])
    assert compare({"y": seen}, wanted, tolerance=1e-4).passed
    assert compare({"y": seen.T}, {"y": wanted["y"].T}, tolerance=1e-4).passed
    seen[-1, 0] = 3
    result = compare({"y": seen}, wanted, tolerance=1e-4)
    assert "its shape is [5, 2]" in result.tensors[0].reason


@pytest.mark.parametrize(("dtype", "mark"), [("uint8", 255), ("bool", 0)])
def test_what_marks_them_depends_on_the_type(dtype: str, mark: int) -> None:
    seen = np.array([1, 1, mark], dtype)
    assert compare({"y": seen}, {"y": seen[:2]}, tolerance=0).passed
    assert not compare({"y": seen[::-1]}, {"y": seen[:2]}, tolerance=0).passed


# What the reference's own kernels differ by

QUANTA = np.arange(8, dtype=np.float32) * np.float32(0.05)


def test_one_quantum_is_no_error_of_a_quantised_output() -> None:
    seen = QUANTA + np.float32(0.05) * (np.arange(8) == 3)
    floors = floors_of({"y": QUANTA}, {}, {"y": 0.05})
    result = compare({"y": seen}, {"y": QUANTA}, tolerance=1e-4, floors=floors)
    assert result.passed
    assert result.accepted[0].accepted_as == "within one quantum, 0.05"
    assert not compare({"y": seen}, {"y": QUANTA}, tolerance=1e-4).passed
    further = compare({"y": QUANTA + 0.1}, {"y": QUANTA}, tolerance=1e-4, floors=floors)
    assert not further.passed
    assert further.accepted == ()


def test_what_the_reference_is_off_by_itself_is_told_and_allowed() -> None:
    expected = {"y": QUANTA}
    others = {"plain kernels": {"y": QUANTA + 0.1}, "reference kernels": {"y": QUANTA - 0.3}}
    floors = floors_of(expected, others, {"y": 0.05})
    assert (floors["y"].quantum, floors["y"].kernels) == (0.05, "reference kernels")
    assert floors["y"].spread == pytest.approx(0.3)
    near = compare({"y": QUANTA + 0.29}, expected, tolerance=1e-4, floors=floors)
    assert "the reference's reference kernels are off" in near.accepted[0].accepted_as
    assert not compare({"y": QUANTA + 0.31}, expected, tolerance=1e-4, floors=floors).passed


def test_a_reference_that_moves_by_its_whole_range_agrees_with_nothing() -> None:
    """Zeros would agree with it, as would its opposite."""
    expected = {"y": QUANTA - QUANTA.mean()}
    floors = floors_of(expected, {"draws": {"y": -expected["y"]}}, {})
    assert floors["y"].tells_nothing
    for seen in (QUANTA * 0, -expected["y"] + np.float32(0.01)):
        (tensor,) = compare({"y": seen}, expected, tolerance=1e-4, floors=floors).tensors
        assert not tensor.passed
        assert "the reference's draws are off by 0.35, its whole range" in tensor.reason
    same = compare({"y": expected["y"]}, expected, tolerance=1e-4, floors=floors)
    assert same.passed


def test_labels_have_no_range_to_move_by() -> None:
    """Of two that are as likely either is right, however far apart their numbers are."""
    expected = {"y": np.array([3, 900], np.int64)}
    floors = floors_of(expected, {"draws": {"y": np.array([900, 3], np.int64)}}, {})
    assert compare({"y": expected["y"][::-1]}, expected, tolerance=1e-4, floors=floors).passed


def test_a_floor_does_not_hide_what_is_no_number() -> None:
    seen = QUANTA.copy()
    seen[0] = np.nan
    floors = floors_of({"y": QUANTA}, {"plain kernels": {"y": QUANTA + 9}}, {"y": 9.0})
    assert not compare({"y": seen}, {"y": QUANTA}, tolerance=1e-4, floors=floors).passed
    assert not compare({"y": seen[1:]}, {"y": QUANTA}, tolerance=1e-4, floors=floors).passed


def test_within_the_tolerance_nothing_has_to_be_allowed() -> None:
    floors = floors_of({"y": QUANTA}, {}, {"y": 0.05})
    result = compare({"y": QUANTA}, {"y": QUANTA}, tolerance=1e-4, floors=floors)
    assert result.passed
    assert result.accepted == ()
    assert result.tensors[0].floor == floors["y"]


def test_what_other_kernels_of_the_reference_give_is_right() -> None:
    """The reference is off, and we are as far from it as its exact kernels, and a bit more."""
    others = {"plain kernels": {"y": QUANTA + 0.3}}
    seen = {"y": QUANTA + np.float32(0.30001)}
    floors = floors_of({"y": QUANTA}, others, {})
    assert not compare(seen, {"y": QUANTA}, tolerance=1e-4, floors=floors).passed
    result = compare(seen, {"y": QUANTA}, tolerance=1e-4, floors=floors, others=others)
    (tensor,) = result.accepted
    assert tensor.accepted_as == "the same as the reference's plain kernels give"
    assert tensor.floor == floors["y"]
    far = {"y": QUANTA - np.float32(0.30001)}
    assert not compare(far, {"y": QUANTA}, tolerance=1e-4, floors=floors, others=others).passed


def test_a_step_of_half_is_no_error_of_an_output_in_half() -> None:
    expected = np.linspace(-4, 9, 8).astype(np.float16)
    floors = floors_of({"y": expected}, {}, {})
    assert floors["y"].half_step == 2**-7
    near, far = expected + np.float16(2**-7), expected + np.float16(2**-6)
    result = compare({"y": near}, {"y": expected}, tolerance=1e-4, floors=floors)
    assert "one step of half" in result.accepted[0].accepted_as
    assert not compare({"y": far}, {"y": expected}, tolerance=1e-4, floors=floors).passed
    floats = {"y": expected.astype(np.float32)}
    assert floors_of(floats, {}, {})["y"].half_step == 0
