"""Figures of planted devices: what is measured of a device whose times are known."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.lab.calibrate.calibrate import MOST_REQUESTS, MeasureRow
from adrenoc.lab.calibrate.facts import TargetValue, derive
from adrenoc.lab.calibrate.measure import (
    DeviceFacts,
    MicroKernel,
    NoisyError,
    ProbeError,
    doubt_of,
    slope,
    spread_of,
)
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
