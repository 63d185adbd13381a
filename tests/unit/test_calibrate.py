"""Calibration: planted devices measured again, measures by kernels' texts, and resumed runs."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import OutputError, RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.lab.calibrate.facts import TargetValue, derive
from adrenoc.lab.calibrate.measure import (
    MOST_REQUESTS,
    DeviceFacts,
    HostOperation,
    MeasureRow,
    MicroKernel,
    NoisyError,
    ProbeError,
    doubt_of,
    slope,
    spread_of,
)
from adrenoc.lab.calibrate.measures import driver
from adrenoc.lab.calibrate.measures.rates import chain
from adrenoc.lab.calibrate.session import MEASURES
from adrenoc.lab.tune.session import TrialResult
from adrenoc.target.target import load_target
from tests.unit.planted_device import (
    BY_NAME,
    DEVICE,
    FACTS,
    LAUNCH_US,
    NS,
    RATES,
    Planted,
    planted_ns,
)


def kept_again(path: Path) -> Path:
    """A copy of what a killed command left."""
    copy = path.with_name(f"{path.name} again")
    copy.write_bytes(path.read_bytes())
    return copy


def as_planted(**more: float) -> tuple[TargetValue, ...]:
    device = Planted(planted_ns, clock_mhz=900.0)
    rows = device.rows(*RATES, *NS, "launch.queue")
    listed = load_target("adreno:750")
    return derive(rows, DEVICE, listed.performance, listed.cost)


@pytest.mark.parametrize("name", sorted({*RATES} - {"memory.read"}))
def test_a_rate_is_that_of_the_device_whatever_a_launch_takes(name):
    (row,) = Planted(planted_ns).rows(name)
    assert row.value == pytest.approx(RATES[name], rel=1e-9)
    assert (row.spread, row.status) == (pytest.approx(0.0, abs=1e-9), "measured")


@pytest.mark.parametrize("name", sorted(NS))
def test_a_wait_is_that_of_the_device(name):
    (row,) = Planted(planted_ns).rows(name)
    assert row.value == pytest.approx(NS[name], rel=1e-9)


def test_memory_has_its_launch_in_it():
    (row,) = Planted(planted_ns).rows("memory.read")
    whole_us = 32768 * 1024 / 54.0 / 1e3
    assert row.value == pytest.approx(54.0 * whole_us / (whole_us + LAUNCH_US))


def test_values_are_what_was_planted():
    values = {value.key: value.value for value in as_planted()}
    dram = values.pop("performance.dram_gb_per_s")
    assert dram == pytest.approx(54.0, rel=0.02)  # it has the launch in it
    assert values == {
        "performance.compute_units": 6,
        "performance.clock_mhz": 900,
        "performance.fp32_fma_lanes": 1536,
        "performance.fp16_rate": 2.0,
        "performance.texels_per_clock": 96.0,
        "performance.launch_us": LAUNCH_US,
        "cost.pipes.bytes_per_clock": 64.0,
        "cost.pipes.local_read_clocks": 8.0,
        "cost.pipes.local_bytes_per_clock": 128.0,
        "cost.pipes.local_by_width": 1.0,
        "cost.pipes.texture_latency_clocks": 150,
        "cost.pipes.buffer_latency_clocks": 300,
    }


@pytest.mark.parametrize(("wide", "says"), [(8.0, "by bytes"), (16.0, "by reads")])
def test_local_memory_says_what_it_charges(wide, says):
    rates = {**RATES, "local.float4": 0.9 * 12 * wide}
    rows = Planted(lambda name: 1 / rates[name], clock_mhz=900.0).rows(
        "local.half4", "local.float4"
    )
    listed = load_target("adreno:750")
    (value,) = [
        v
        for v in derive(rows, DEVICE, listed.performance, listed.cost)
        if v.key == "cost.pipes.local_read_clocks"
    ]
    assert value.value == 8.0
    assert says in value.how


def test_work_grows_until_it_can_be_timed_and_stops_when_it_is_stable():
    device = Planted(planted_ns)
    device.rows("mad.float4")
    assert 2 <= len(device.requests) <= 6
    longest = max(work for _, work in device.work.values()) * planted_ns("mad.float4") * 1e-3
    assert 400 < longest < 50_000
    slow = Planted(lambda _: 10.0)
    slow.rows("mad.float4")
    assert len(slow.requests) == 2  # once to see that it is long enough, once to measure


def test_what_varies_is_measured_again_and_says_so():
    device = Planted(planted_ns)
    device.noise = itertools.cycle([1.0, 1.3, 1.1, 0.9, 1.6])
    (row,) = device.rows("memory.read")
    assert row.samples == 7 * MOST_REQUESTS
    assert row.spread > 0.15
    assert row.doubt == pytest.approx(doubt_of(row.spread, row.samples))


def test_times_that_say_nothing_are_no_figure():
    device = Planted(planted_ns)
    device.noise = itertools.cycle([1000.0] * 7 + [1.0] * 7)
    (row,) = device.rows("latency.texel")
    assert (row.status, row.value) == ("failed", None)
    assert "too noisy" in row.reason
    with pytest.raises(NoisyError):
        slope(BY_NAME["latency.texel"].kernels(DEVICE, 1), (2.0, 1.0))


def test_rounds_that_chance_has_favoured_are_no_measurement():
    """More work took longer in some rounds alone: to keep those would be to choose a figure."""
    device = Planted(planted_ns)
    device.noise = itertools.cycle([1.0, 1000.0, 1.0, 1.0, 1000.0, 1.0, 1.0, *[1.0] * 7])
    (row,) = device.rows("latency.texel")
    assert row.status == "failed"
    assert "of 70 rounds say nothing" in row.reason
    assert row.value is None


@pytest.mark.parametrize("time_us", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_times_that_cannot_be(time_us):
    device = Planted(planted_ns)
    device.run = lambda kernels, *, output=False: TrialResult(
        times_us=((time_us,) * 7,) * len(kernels), clock_mhz=time_us, temperature_c=time_us
    )
    (row,) = device.rows("memory.read")
    assert (row.status, row.value, row.clock_mhz, row.temperature_c) == ("failed", None, 0.0, 0.0)


def test_one_sample_tells_of_no_spread():
    row = MeasureRow(name="x", title="x", unit="", status="measured", value=1.0, samples=1)
    assert row.doubt == 1.0
    value = TargetValue(key="performance.launch_us", value=1.0, how="", rows=(row,))
    assert not value.is_certain


def test_a_device_without_something_is_asked_for_none_of_it():
    bare = DeviceFacts.from_facts({**FACTS, "extensions": [], "images": {}})
    device = Planted(planted_ns)
    names = ("mad.half", "texel.half4.cached", "latency.texel")
    rows = device.rows(*names, device=bare)
    assert {row.status for row in rows} == {"skipped"}
    assert all(row.reason and row.value is None for row in rows)
    assert not device.requests


def _breaking_at(name: str, error: Exception) -> Planted:
    """A device that raises an error in place of one measurement."""
    device = Planted(planted_ns)
    run = device.run

    def breaks(kernels: Sequence[MicroKernel], *, output: bool = False) -> TrialResult:
        if device.work[id(kernels[0])][0] == name:
            raise error
        return run(kernels, output=output)

    device.run = breaks
    return device


def test_one_that_fails_does_not_end_the_others():
    device = _breaking_at("latency.texel", ProbeError("timeout: no end within 20 s"))
    rows = device.rows("mad.float", "latency.texel", "launch.queue")
    assert [row.status for row in rows] == ["measured", "failed", "measured"]
    assert rows[1].reason == "timeout: no end within 20 s"


def test_a_device_that_leaves_keeps_what_was_measured():
    device = _breaking_at("latency.texel", RemoteError("no device is there", hint="adrenoc doctor"))
    rows = device.rows("mad.float", "latency.texel", "launch.queue")
    assert [row.status for row in rows] == ["measured", "left out", "left out"]
    with pytest.raises(RemoteError):
        device.rows("latency.texel", "mad.float")


def test_a_budget_that_is_spent_leaves_the_rest_out():
    rows = Planted(lambda _: 10.0).rows("mad.float", "mad.float4", "latency.texel", budget_s=0.01)
    assert [row.status for row in rows] == ["measured", "left out", "left out"]
    assert "budget" in rows[-1].reason


def test_spread_and_doubt():
    assert spread_of([1.0]) == 0.0
    assert spread_of([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert doubt_of(0.54, 25) == pytest.approx(0.1)


def test_a_calibration_that_was_killed_goes_on(tmp_path):
    """Its rows are those of one that was not, and no row is measured twice."""
    names = (*RATES, *NS, "launch.queue")
    whole = Planted(planted_ns).rows(*names)
    kept = tmp_path / "kept"
    first = Planted(planted_ns)
    rows = []

    def kill(row: MeasureRow) -> None:
        rows.append(row)
        if len(rows) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.rows(*names, resume=Resume(kept), say=kill)
    second = Planted(planted_ns)
    later = second.rows(*names, resume=Resume(kept_again(kept)))
    assert [replace(row, time_s=0) for row in later] == [replace(row, time_s=0) for row in whole]
    assert not set(first.requests) & set(second.requests)
    # What it took is spent.
    spent_s = sum(row.time_s for row in rows)
    late = Planted(planted_ns).rows(*names, resume=Resume(kept_again(kept)), budget_s=spent_s)
    assert [row.status for row in late] == ["measured"] * 6 + ["left out"] * (len(names) - 6)


def test_rows_of_another_device_are_not_taken(tmp_path):
    Planted(planted_ns).rows("latency.texel", resume=Resume(tmp_path / "kept"))
    other = DeviceFacts.from_facts({**FACTS, "driver": "another"})
    device = Planted(planted_ns)
    device.rows("latency.texel", resume=Resume(kept_again(tmp_path / "kept")), device=other)
    assert device.requests


def test_names_of_measures_are_of_one_form_and_differ():
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert all(measure.title and measure.title[0].islower() for measure in MEASURES)
    for measure in MEASURES:
        if not measure.lacks(DEVICE):
            for probe in measure.kernels(DEVICE, 1):
                if isinstance(probe.kernel, HostOperation):
                    assert "operation" in probe.kernel.words
                    continue
                assert "__kernel void probe(" in probe.kernel.source
                assert probe.kernel.arguments[-1].value is None
                for threads, group in zip(probe.kernel.threads, probe.kernel.group, strict=True):
                    assert threads % group == 0


def test_a_chain_goes_through_all():
    following, at, seen = chain(100), 0, set()
    for _ in range(100):
        seen.add(at)
        at = int(following[at])
    assert (len(seen), at) == (100, 0)


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        (driver.TIES.astype(np.float16), "to the nearest, ties to even"),
        (np.array([1, 1 + 2**-10, -1, 1], np.float16), "towards zero"),
        (np.array([1, 2, 3, 4], np.float16), "in a way that no rule describes: 1, 2, 3, 4"),
    ],
)
def test_rounding_is_told_by_what_came_out(stored, word):
    assert driver.rounding(stored)[1] == word


def _times(kernel: MicroKernel | HostOperation) -> int:
    """How often its loop runs, in all threads."""
    assert isinstance(kernel, MicroKernel)
    (iterations,) = [t.value[0] for t in kernel.arguments if t.shape == (4,) and t.dtype == "int32"]
    width, height, depth = kernel.threads
    return int(iterations) * width * height * depth


@pytest.mark.parametrize(
    ("name", "words", "each"),
    [
        ("mad.float", " = mad(", 1),
        ("mad.float4", " = mad(", 4),
        ("mad.half", " = mad(", 1),
        ("mad.half4", " = mad(", 4),
        ("texel.half4.cached", "read_imagef(", 1),
        ("texel.float4.cached", "read_imagef(", 1),
        ("local.half4", "^= kept[", 1),
        ("local.float4", "+= kept[", 1),
        ("buffer.thread", "sum += data[", 16),
    ],
)
def test_the_work_of_a_launch_is_what_its_text_does(name, words, each):
    for scale in (1, 5):
        for probe in BY_NAME[name].kernels(DEVICE, scale):
            written = probe.kernel.source.count(words)
            assert written > 0
            assert probe.work == written * each * _times(probe.kernel)


def test_memory_counts_what_is_read():
    write, read = BY_NAME["memory.read"].kernels(DEVICE, 1)
    assert write.kernel.arguments[-1] == read.kernel.arguments[0]  # what is read was written
    (words,) = re.findall(r"i < (\d+)u", read.kernel.source)
    assert read.work == 16 * int(words) == 32 << 20


def _do(resume: Resume, *pieces: str) -> list[str]:
    """The pieces that had to be done; each gives its own name, twice."""
    done = []
    for piece in pieces:
        came = resume.take(piece)
        if came is None:
            done.append(piece)
            came = 2 * piece
            resume.put(piece, came)
        assert came == 2 * piece
    return done


def _left_by(folder: Path, name: str, *pieces: str) -> Path:
    """What a command that did these leaves when it is killed."""
    path = folder / name
    _do(Resume(path), *pieces)
    left = folder / f"{name} left"
    left.write_bytes(path.read_bytes())
    return left


def test_it_goes_on_where_it_was_killed(tmp_path):
    path = _left_by(tmp_path, "kept", "a", "b")
    resume = Resume(path)
    assert _do(resume, "a", "b", "c") == ["c"]
    assert resume.taken == 2
    path.with_suffix(".later").write_bytes(path.read_bytes())
    later = Resume(path.with_suffix(".later"))
    assert _do(later, "a", "b", "c", "d") == ["d"]
    later.finish()
    assert not path.with_suffix(".later").exists()


def test_from_where_the_work_is_another_one_it_takes_no_more(tmp_path):
    path = _left_by(tmp_path, "kept", "a", "b", "c")
    assert _do(Resume(path), "a", "x", "c") == ["x", "c"]
    later = _left_by(tmp_path, "other", "a", "x", "c")
    assert path.read_bytes() == later.read_bytes()


@pytest.mark.parametrize("torn", [b'["c", "3', b'["c", "3"]', b"\x80\n", b'["c", 3]\n', b"\n"])
def test_a_line_that_is_not_whole_is_done_again(torn, tmp_path):
    path = _left_by(tmp_path, "kept", "a", "b")
    path.write_bytes(path.read_bytes() + torn)
    assert _do(Resume(path), "a", "b", "c") == ["c"]
    assert path.read_bytes() == _left_by(tmp_path, "other", "a", "b", "c").read_bytes()


def test_nothing_is_there_before_something_is_done(tmp_path):
    resume = Resume(tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_size == 0
    resume.finish()
    assert not (tmp_path / "kept").exists()
    without = Resume(None)
    assert _do(without, "a", "a") == ["a", "a"]
    without.finish()


def test_a_file_of_somebody_else_stays_as_it_is(tmp_path):
    path = tmp_path / "thesis.tex"
    path.write_text("x\n")
    with pytest.raises(OutputError, match="is not what an interrupted command"):
        Resume(path)
    assert path.read_text() == "x\n"


def test_two_commands_do_not_share_one(tmp_path):
    first = Resume(tmp_path / "kept")
    with pytest.raises(OutputError, match="another command is at work"):
        Resume(tmp_path / "kept")
    first.finish()
