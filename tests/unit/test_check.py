"""The judgement on numbers, and policies that hold limits."""

import numpy as np
import pytest

from adrenoc.base.errors import CheckFailedError
from adrenoc.check.verdict import Policy
from adrenoc.device.compare import CheckResult, Uncertainty, compare, default_tolerance, step_of
from tests.unit.verdicts import node, verdict

EXPECTED = np.array([[-1.0, 0.0, 1.0, 3.0]], dtype="float32")


def test_measures_against_the_range():
    result = compare({"y": EXPECTED + np.float32(0.004)}, {"y": EXPECTED}, tolerance=2e-3)
    (tensor,) = result.tensors
    assert tensor.max_error == pytest.approx(0.004, rel=1e-3)
    assert tensor.range_error == pytest.approx(0.001, rel=1e-3)
    assert tensor.rmse == pytest.approx(0.004, rel=1e-3)
    assert tensor.cosine == pytest.approx(1.0, abs=1e-5)
    assert result.passed
    result.raise_if_failed()


def test_names_the_output_that_is_off():
    outputs = {"good": EXPECTED, "bad": EXPECTED * 1.1}
    result = compare(outputs, {"good": EXPECTED, "bad": EXPECTED}, tolerance=1e-2)
    assert [tensor.passed for tensor in result.tensors] == [True, False]
    with pytest.raises(CheckFailedError, match="the output `bad` disagrees"):
        result.raise_if_failed()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_values_never_pass(bad):
    seen = EXPECTED.copy()
    seen[0, 1] = bad
    for outputs, expected in ((seen, EXPECTED), (EXPECTED, seen)):
        result = compare({"y": outputs}, {"y": expected}, tolerance=1e9)
        assert result.tensors[0].bad_values == 1
        assert not result.passed
    assert compare({"y": seen}, {"y": seen}, tolerance=1e-4).passed


def test_infinities_of_other_sign_disagree():
    seen, expected = EXPECTED.copy(), EXPECTED.copy()
    seen[0, 0], expected[0, 0] = np.inf, -np.inf
    assert not compare({"y": seen}, {"y": expected}, tolerance=1e9).passed


def test_a_constant_output_is_measured_by_its_size():
    constant = np.full((4,), 1000.0)
    assert compare({"y": constant + 0.01}, {"y": constant}, tolerance=1e-4).passed
    zero = np.zeros(4)
    assert compare({"y": zero}, {"y": zero}, tolerance=1e-4).passed
    assert not compare({"y": zero + 0.1}, {"y": zero}, tolerance=1e-4).passed


def test_shapes_and_names_must_fit():
    assert not compare({"y": EXPECTED.ravel()}, {"y": EXPECTED}, tolerance=1.0).passed
    assert not compare({"y": EXPECTED}, {"z": EXPECTED}, tolerance=1.0).passed


def test_whole_numbers_do_not_wrap():
    low, high = np.array([0], dtype="uint8"), np.array([255], dtype="uint8")
    assert compare({"y": low}, {"y": high}, tolerance=0.1).tensors[0].max_error == 255.0


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "uint8"])
def test_labels_are_measured_by_the_share_that_differs(dtype):
    """A tie that falls otherwise is no error of the size of its index."""
    wanted = np.tile(np.array([0, 1], dtype), 200)
    seen = wanted.copy()
    seen[7] = 0
    (tensor,) = compare({"y": seen}, {"y": wanted}, tolerance=1e-2).tensors
    assert tensor.range_error == 1 / 400
    assert tensor.passed
    result = compare({"y": seen}, {"y": wanted}, tolerance=1e-4)
    assert result.tensors[0].reason == "off in 2.5e-03 of its labels, expected 1e-04 at most"


def test_quanta_and_whole_numbers_that_are_all_near_are_measured_by_their_range():
    quanta = np.arange(200, dtype="uint8")
    seen = quanta.copy()
    seen[0] = 20
    assert not compare({"y": seen}, {"y": quanta}, tolerance=1e-2).passed
    counts = np.arange(0, 2000, 10, dtype="int64")
    assert compare({"y": counts + 1}, {"y": counts}, tolerance=1e-2).passed


def test_tolerance_follows_the_types():
    assert default_tolerance("float32", "float32") == 1e-4
    assert default_tolerance("float16", "float32") == 1e-2


def test_entries_that_were_not_found_are_no_part_of_an_output():
    wanted = {"y": np.array([[4, 2], [1, 7]], np.int64)}
    rest = np.full((3, 2), -1, np.int64)
    seen = np.concatenate([wanted["y"], rest])
    assert compare({"y": seen}, wanted, tolerance=1e-4).passed
    assert compare({"y": seen.T}, {"y": wanted["y"].T}, tolerance=1e-4).passed
    seen[-1, 0] = 3
    result = compare({"y": seen}, wanted, tolerance=1e-4)
    assert "its shape is [5, 2]" in result.tensors[0].reason


@pytest.mark.parametrize(("dtype", "mark"), [("uint8", 255), ("bool", 0)])
def test_what_marks_them_depends_on_the_type(dtype, mark):
    seen = np.array([1, 1, mark], dtype)
    assert compare({"y": seen}, {"y": seen[:2]}, tolerance=0).passed
    assert not compare({"y": seen[::-1]}, {"y": seen[:2]}, tolerance=0).passed


# How exactly the reference knows its numbers

QUANTA = np.arange(8, dtype=np.float32) * np.float32(0.05)


def _hold(seen: np.ndarray, expected: np.ndarray, known: Uncertainty, **more: float) -> CheckResult:
    return compare({"y": seen}, {"y": expected}, **{"tolerance": 1e-4, **more}, known={"y": known})


def test_one_quantum_is_no_error_of_a_quantised_output():
    seen = QUANTA + np.float32(0.05) * (np.arange(8) == 3)
    step, what = step_of(QUANTA, 0.05)
    known = Uncertainty(step=step, step_is=what)
    result = _hold(seen, QUANTA, known)
    assert result.passed
    assert result.accepted[0].accepted_as == "within one quantum, 0.05"
    assert not compare({"y": seen}, {"y": QUANTA}, tolerance=1e-4).passed
    further = _hold(QUANTA + 0.1, QUANTA, known)
    assert not further.passed
    assert further.accepted == ()


def test_a_number_lies_where_those_of_the_reference_do():
    known = Uncertainty(others=(QUANTA + 0.01, QUANTA - 0.03))
    assert known.spread(QUANTA) == pytest.approx(0.04)
    near = _hold(QUANTA + 0.029, QUANTA, known)
    assert near.accepted[0].accepted_as.startswith("8 of 8 numbers lie where")
    assert near.accepted[0].spread == pytest.approx(0.04)
    assert not _hold(QUANTA + 0.031, QUANTA, known).passed


def _rows(flips: np.ndarray, more: float = 0.0) -> np.ndarray:
    """Sixteen rows of known numbers, and what is added to some of them."""
    rows = np.tile(np.linspace(-1, 1, 8), (16, 1))
    rows[:4] += 0.7 * flips[:, None]
    rows[9, 2:6] += more
    return rows


def test_rows_that_flip_excuse_those_rows_alone():
    """Whatever they do in each draw, and however far."""
    random = np.random.default_rng(0)
    expected = _rows(np.zeros(4))
    moved = tuple(_rows(random.uniform(-1, 1, 4)) for _ in range(6))
    known = Uncertainty(moved=moved)
    flipped = random.uniform(-0.5, 0.5, 4)
    assert _hold(_rows(flipped), expected, known, tolerance=1e-2).passed
    assert not _hold(_rows(flipped, 0.05), expected, known, tolerance=1e-2).passed


def test_one_row_that_one_draw_flips_excuses_no_other():
    expected = _rows(np.zeros(4))
    moved = (_rows(np.array([1.0, 0, 0, 0])), *(_rows(np.zeros(4)) for _ in range(5)))
    seen = _rows(np.zeros(4), 0.05)
    assert not _hold(seen, expected, Uncertainty(moved=moved), tolerance=1e-2).passed


@pytest.mark.parametrize(("times", "passes"), [(1, True), (3, False)])
def test_as_many_numbers_may_flip_as_in_each_draw(times, passes):
    """Roundings that fall otherwise fall otherwise somewhere else in each draw."""
    random = np.random.default_rng(1)
    expected = np.linspace(-1, 1, 4000)

    def flip(share: float) -> np.ndarray:
        return expected + 0.05 * (random.random(expected.size) < share)

    moved = tuple(flip(0.01) for _ in range(6))
    seen = flip(0.01 * times)
    known = Uncertainty(moved=moved, rounds=True)
    assert _hold(seen, expected, known, tolerance=1e-2).passed is passes
    assert not _hold(seen, expected, Uncertainty(moved=moved), tolerance=1e-2).passed


def test_a_reference_that_moves_by_its_whole_range_agrees_with_nothing():
    """Zeros would agree with it, as would its opposite."""
    expected = QUANTA - QUANTA.mean()
    known = Uncertainty(others=(-expected,))
    for seen in (QUANTA * 0, -expected + np.float32(0.01)):
        (tensor,) = _hold(seen, expected, known).tensors
        assert not tensor.passed
        assert "the reference's own results differ by 0.35" in tensor.reason
    assert _hold(expected, expected, known).passed


def test_labels_have_no_range_to_move_by():
    """Of two that are as likely either is right, however far apart their numbers are."""
    expected = np.array([3, 900], np.int64)
    known = Uncertainty(others=(np.array([900, 3], np.int64),))
    assert _hold(expected[::-1], expected, known).passed
    assert not _hold(np.array([3, 40]), expected, known).passed


def test_nothing_excuses_what_is_no_number():
    seen = QUANTA.copy()
    seen[0] = np.nan
    known = Uncertainty(step=9.0, step_is="one quantum", others=(QUANTA + 9, seen))
    assert not _hold(seen, QUANTA, known).passed
    assert not _hold(seen[1:], QUANTA, known).passed


def test_within_the_tolerance_nothing_has_to_be_allowed():
    result = _hold(QUANTA, QUANTA, Uncertainty(step=0.05, step_is="one quantum"))
    assert result.passed
    assert result.accepted == ()


def test_a_step_of_half_is_no_error_of_an_output_in_half():
    expected = np.linspace(-4, 9, 8).astype(np.float16)
    step, what = step_of(expected, 0.0)
    assert step == 2**-7
    known = Uncertainty(step=step, step_is=what)
    near, far = expected + np.float16(2**-7), expected + np.float16(2**-6)
    assert "one step of half" in _hold(near, expected, known).accepted[0].accepted_as
    assert not _hold(far, expected, known).passed
    assert "float steps" in step_of(expected.astype(np.float32), 0.0)[1]


NODES = (
    node("x_NCHW", kind="layout", time_us=1.0),
    node("a", "x_NCHW", time_us=1999.0, bound="texture"),
    node("b", "a", place="buffer", reason="too wide"),
    node("c_rows", "b", place="buffer", kind="layout", is_output=False),
    node("c_cpu", "c_rows", place="buffer", kind="device", time_us=None),
    node("d", "c_cpu", place="cpu", time_us=None, bound=""),
    node("y", "d", place="buffer", is_output=True),
)


def _broken(**limits: float) -> tuple[str, ...]:
    return Policy(**limits).broken_by(verdict(NODES))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_cpu_nodes": 0}, "1 nodes on the CPU, --limit cpu-nodes allows 0: d"),
        (
            {"max_buffer_nodes": 1},
            "2 nodes that write to a buffer, --limit buffer-nodes allows 1: b, c_rows",
        ),
        (
            {"max_copies": 2},
            "3 nodes that only move data, --limit copies allows 2: x_NCHW, c_rows, c_cpu",
        ),
        (
            {"max_memory_mib": 9},
            "10.0 MiB of GPU memory, --limit memory-mib allows 9: 7.0 MiB constants, "
            "2.0 MiB for intermediate tensors (most are alive at a)",
        ),
        (
            {"max_time_ms": 2.0},
            "at least 2.03 ms, --limit time-ms allows 2: the longest is 2 ms at a (texture)",
        ),
    ],
)
def test_each_limit_says_what_breaks_it(limits, said):
    assert _broken(**limits) == (said,)


def test_limits_that_hold_say_nothing():
    assert not _broken()
    assert not _broken(
        max_cpu_nodes=1, max_buffer_nodes=2, max_copies=3, max_memory_mib=10, max_time_ms=2.1
    )


def test_all_broken_limits_are_listed_at_once():
    assert len(_broken(max_cpu_nodes=0, max_copies=0, max_memory_mib=1, max_time_ms=0.1)) == 4


def test_long_lists_are_cut():
    nodes = tuple(node(f"n{i}", kind="copy") for i in range(12))
    (said,) = Policy(max_copies=0).broken_by(verdict(nodes))
    assert said.endswith("n5, n6, n7 and 4 more")


def test_an_unknown_time_breaks_a_limit_on_time():
    nodes = (node("a", time_us=None), node("b", time_us=None))
    (said,) = Policy(max_time_ms=5).broken_by(verdict(nodes))
    assert "the time is not known, as no source gives rates of adreno:a750" in said


def test_a_floor_that_lacks_a_rate_keeps_no_limit():
    """Nobody knows what the bound would be that was left out; what is too long already is so."""
    lacks = verdict(NODES, unknown_rates=("performance.dram_gb_per_s",))
    (said,) = Policy(max_time_ms=5).broken_by(lacks)
    assert "not known beyond 2.03 ms, as no source gives dram_gb_per_s of adreno:a750" in said
    (said,) = Policy(max_time_ms=2.0).broken_by(lacks)
    assert said.startswith("at least 2.03 ms")
