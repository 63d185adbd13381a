"""What halves hold, what rounding costs, and the search for the smallest set of exact tensors."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.bundle.params import FilterTransform
from adrenoc.check.accuracy.judge_preset import OutOfEffortError, smallest_passing
from adrenoc.check.accuracy.result import Deviation
from adrenoc.check.accuracy.samples import floor_of
from adrenoc.check.inputs import Inputs
from adrenoc.check.trial_inputs import SCALES, scale_inputs, tell_range
from adrenoc.ir import half
from adrenoc.ir.half import explain_not_half, largest_by_axes, range_of, round_constant
from adrenoc.ir.precision_policy import PrecisionPolicy, check_policy, read_policy, write_policy
from adrenoc.kernels.families.shared.context import ByteCosts
from adrenoc.kernels.families.winograd.winograd import winograd
from adrenoc.pages.accuracy_page import floor_text
from adrenoc.target.target import load_target

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
def test_the_largest_value_decides(values, reason):
    assert explain_not_half(np.array(values, np.float32)) == reason


def test_what_is_computed_of_it_may_be_larger():
    weights = np.full(3, 3e4, np.float32)
    assert not explain_not_half(weights)
    assert LARGE in explain_not_half(weights, 2.25)


def test_halves_hold_halves():
    assert not explain_not_half(np.full(3, 6e-8, np.float16))


def test_integers_are_no_constants_of_half():
    assert not explain_not_half(np.full(3, 10**6))


def test_ranges_of_halves_are_those_of_numbers():
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
def test_the_largest_size_along_axes(dtype, axes):
    draw = np.random.default_rng(7)
    for odd in (0, np.nan, np.inf, -np.inf, -128):
        values = draw.standard_normal((4, 5, 3, 2)) * 30
        values[draw.random(values.shape) < 0.1] = odd if np.isfinite(odd) or dtype != "int8" else 0
        values = values.astype(dtype)
        wanted = np.abs(values.astype(np.float64)).max(axis=axes)
        assert np.array_equal(largest_by_axes(values, axes), wanted, equal_nan=True)


def test_a_constant_is_looked_at_once_while_it_lives():
    first = np.arange(5, dtype=np.float32)
    assert range_of(first) == (0.0, 4.0)
    del first
    for size in range(2, 40):
        assert range_of(np.arange(size, dtype=np.float32)) == (0.0, size - 1.0)


MATRIX = winograd(2).weight_transform


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 7, 64, 65])
def test_parts_are_what_the_whole_is(rows, dtype, monkeypatch):
    monkeypatch.setattr(half, "PART_ELEMENTS", rows * 18)
    filters = np.random.default_rng(0).standard_normal((65, 2, 3, 3)).astype(np.float32)
    filters[3, 1] = 3e4  # their sum is beyond half
    filters[40, 1, 2, 2] = 7e4  # and this is it by itself
    held: list[int] = []
    apply = FilterTransform.apply

    def watched(self: FilterTransform, part: np.ndarray) -> np.ndarray:
        held.append(len(part))
        return apply(self, part)

    monkeypatch.setattr(FilterTransform, "apply", watched)
    with np.errstate(over="ignore"):
        made = round_constant(filters, dtype, MATRIX)
        plain = round_constant(filters, dtype)
        whole = apply(FilterTransform.from_matrix(MATRIX), plain.value).astype(dtype)
    assert max(held) == min(rows, 65)
    np.testing.assert_array_equal(made.value, whole)
    assert made.value.dtype == dtype
    assert plain.lost == (1 if dtype == "float16" else 0)
    assert made.lost == (2 if dtype == "float16" else 0)
    assert made.largest == (np.float32(7e4) if dtype == "float16" else 0)


def test_without_rows_the_other_extents_are_right():
    made = round_constant(np.zeros((0, 3, 3, 3), np.float32), "float16", MATRIX)
    assert made.value.shape == (0, 3, 4, 4)


def test_what_was_infinite_before_is_not_lost():
    made = round_constant(np.array([np.inf, 1e6, -np.nan, 2.0]), "float16")
    assert (made.lost, made.largest) == (1, 1e6)


def _floor(ours: float, ideal: float, exact: float) -> tuple[bool, str]:
    made = [Deviation(largest=4 * rms, rms=rms) for rms in (ours, ideal, exact)]
    floor = floor_of(made[0], made[1], made[2], 7)
    return floor.is_of_rounding, floor_text(floor)


def test_what_float32_is_off_by_is_no_floor():
    """A quantised model flips quanta in float32 as in half: rounding to half explains nothing."""
    of_rounding, text = _floor(5e-3, 5e-3, 5e-3)
    assert not of_rounding
    assert text.startswith("none: float32 with nothing rounded to half is off by 2.0e-02 itself")


@pytest.mark.parametrize(
    ("ours", "said"), ((1.1e-3, "rounding alone"), (2e-3, "more than rounding"))
)
def test_a_floor_is_what_rounding_adds(ours, said):
    of_rounding, text = _floor(ours, 1e-3, 1e-6)
    assert of_rounding and text.endswith(said)


def test_what_half_cannot_hold_is_no_floor():
    of_rounding, text = _floor(math.inf, math.inf, 1e-6)
    assert not of_rounding and "half cannot hold" in text


def test_numbers_that_are_not_finite_are_not_blamed_on_half():
    """As where NaN is given, of which a device's maximum may make a number."""
    of_rounding, text = _floor(math.inf, math.inf, math.inf)
    assert not of_rounding and "do the inputs hold such numbers?" in text


def test_floats_that_were_drawn_are_scaled():
    usual = Inputs(x=np.ones(2, np.float32), i=np.ones(2, np.int64), given=np.ones(2, np.float32))
    usual.drawn = frozenset({"x", "i"})
    for scale, one in zip(SCALES, scale_inputs(usual), strict=True):
        assert one["x"].dtype == np.float32
        assert one["x"].tolist() == pytest.approx([scale] * 2)
        assert one["i"].tolist() == one["given"].tolist() == [1, 1]
    usual.drawn = frozenset({"i"})
    assert scale_inputs(usual) == []


def test_what_is_not_finite_here_alone_is_told():
    finite, lost = {"y": np.ones(2)}, {"y": np.array([1, np.inf])}
    assert tell_range([finite] * 3, [finite] * 3).startswith("finite as float32 is on 0.001 to")
    assert "on 10000 times the usual ones `y`" in tell_range([finite, finite, lost], [finite] * 3)
    assert tell_range([lost] * 3, [lost] * 3).startswith("finite as float32 is")


NAMES = tuple(f"n{i:02}" for i in range(40))


@pytest.mark.parametrize(
    "needed", [{"n00"}, {"n39"}, {"n03", "n17"}, {"n00", "n01", "n02"}, {"n05", "n06", "n30"}]
)
def test_the_needed_ones_are_found(needed):
    tried = []

    def passes(chosen: frozenset[str]) -> bool:
        tried.append(chosen)
        return needed <= chosen

    found = smallest_passing(NAMES, passes)
    assert found is not None and found.is_minimal
    assert set(found.chosen) == needed
    assert len(tried) == len(set(tried)) <= 45


def test_either_of_two_is_enough():
    found = smallest_passing(NAMES, lambda chosen: bool(chosen & {"n07", "n21"}))
    assert found is not None and found.chosen == ("n07",)


def test_a_suspect_that_comes_first_takes_two_trials():
    tried = []
    smallest_passing(NAMES, lambda chosen: tried.append(chosen) or "n00" in chosen)
    assert [len(chosen) for chosen in tried] == [40, 1]


def test_what_nothing_mends_has_no_answer():
    assert smallest_passing(NAMES, lambda _: False) is None


@pytest.mark.parametrize("trials", [1, 3, 7])
def test_out_of_time_the_best_so_far_passes(trials):
    left = trials

    def passes(chosen: frozenset[str]) -> bool:
        nonlocal left
        if left == 0:
            raise OutOfEffortError
        left -= 1
        return {"n03", "n17"} <= chosen

    found = smallest_passing(NAMES, passes)
    assert found is not None and not found.is_minimal
    assert {"n03", "n17"} <= set(found.chosen)


POLICY = PrecisionPolicy(
    model_file="net.onnx",
    model_sha256="ab" * 32,
    preset="mixed",
    tolerance=1e-2,
    float32_tensors=("conv1", "probabilities:0"),
    error_before=None,
    error_after=3e-4,
)


def test_a_policy_comes_back(tmp_path):
    path = tmp_path / "policy.json"
    write_policy(POLICY, path)
    assert read_policy(path) == POLICY


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("adrenoc_precision_policy", 2, "of version 2, expected 1"),
        ("model_sha256", 7, "model_sha256 is 7, expected text"),
        ("float32_tensors", "conv1", "expected a list"),
        ("float32_tensors", ["a", "a"], "expected names, each once"),
        ("float32_tensors", [""], "expected names, each once"),
        ("tolerance", None, "expected a finite number"),
        ("tolerance", True, "expected a finite number"),
        ("error_after", -1.0, "expected 0 or more"),
        ("toleranse", 1.0, "unknown key `toleranse`.*tolerance"),
    ],
)
def test_a_damaged_policy_is_refused(tmp_path, key, value, said):
    path = tmp_path / "policy.json"
    write_policy(POLICY, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(PrecisionPolicyError, match=said):
        read_policy(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ('{"adrenoc_precision_policy": 1, "pre', "is not JSON"),
        ("[1]", "is no precision policy"),
        ('{"preset": "mixed"}', "is no precision policy"),
        ('{"adrenoc_precision_policy": 1}', "lacks the key `model_file`"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path, text, said):
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(PrecisionPolicyError, match=said):
        read_policy(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PrecisionPolicyError, match="cannot be read"):
        read_policy(tmp_path / "none.json")


def test_a_policy_of_another_model_or_preset_is_refused():
    path, model = Path("policy.json"), Path("other.onnx")
    digest = POLICY.model_sha256
    check_policy(POLICY, path, model=model, sha256=digest, preset=None)
    check_policy(POLICY, path, model=model, sha256=digest, preset="mixed")
    with pytest.raises(PrecisionPolicyError, match=r"made for net.onnx .* other.onnx has cdcd"):
        check_policy(POLICY, path, model=model, sha256="cd" * 32, preset="mixed")
    with pytest.raises(PrecisionPolicyError, match="made for the preset fp16, seen --preset mixed"):
        check_policy(
            replace(POLICY, preset="fp16"), path, model=model, sha256=digest, preset="mixed"
        )


def said(as_bytes: float, as_floats: float, gpu: str = "adreno:a660") -> str:
    log, costs = DecisionLog(), ByteCosts()
    costs.add(as_bytes, as_floats)
    costs.say(log, load_target(gpu).performance, "fp16")
    (decision,) = log
    return f"{decision.subject}: {decision.taken}; {decision.reason}"


def test_both_figures_are_said_in_ms():
    assert said(84_000, 168_000) == (
        "1 convolutions and products: multiplied as bytes, estimated 0.1 ms; "
        "0.2 ms as fp16 numbers, layer by layer, whose sums are not exact"
    )


def test_where_floats_are_faster_that_is_said():
    assert said(168_000, 84_000).endswith(
        "estimated 0.2 ms; exact; it would take 0.1 ms as fp16 numbers, layer by layer"
    )


def test_without_a_clock_figures_are_clocks():
    assert "estimated 84 kclocks" in said(84_000, 168_000, "adreno:a650")


def test_nothing_is_said_of_no_operator():
    log = DecisionLog()
    ByteCosts().say(log, load_target("adreno:a660").performance, "fp16")
    assert not list(log)
