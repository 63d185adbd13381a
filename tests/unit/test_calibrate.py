"""Figures of planted devices: what is measured of a device whose times are known."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.calibrate.calibrate import MOST_REQUESTS, Row, calibrate
from adrenoc.calibrate.derive import Value, derive
from adrenoc.calibrate.device import Device, plain
from adrenoc.calibrate.differences import differences
from adrenoc.calibrate.measure import Measure, NoisyError, Probe, doubt_of, slope, spread_of
from adrenoc.calibrate.measures import numbers
from adrenoc.calibrate.measures.latency import chain
from adrenoc.calibrate.micro_kernel import Answers, MicroKernel, ProbeError
from adrenoc.calibrate.page import calibration_html
from adrenoc.calibrate.session import Calibration, listed_for
from adrenoc.calibrate.table import MEASURES
from adrenoc.calibrate.target_file import Measured, base_of, target_toml
from adrenoc.errors import RemoteError, TargetError
from adrenoc.target.own_file import check_output_name
from adrenoc.target.target import load_target

FACTS: dict[str, Any] = {
    "name": "QUALCOMM Adreno(TM) 750",
    "driver": "OpenCL 3.0 QUALCOMM build: 0800.40 Compiler E031.45.02.06",
    "version": "OpenCL 3.0 Adreno(TM) 750",
    "type": "gpu",
    "c_version": 300,
    "images": {
        "max_width": 16384,
        "max_height": 16384,
        "max_layers": 2048,
        "max_read_arguments": 128,
        "max_write_arguments": 64,
        "pitch_alignment_texels": 64,
    },
    "limits": {
        "compute_units": 6,
        "clock_mhz": 1,
        "max_work_group_size": 1024,
        "local_memory_bytes": 32768,
        "max_allocation_bytes": 1 << 30,
        "max_parameter_bytes": 1024,
    },
    "extensions": ["cl_khr_fp16", "cl_khr_integer_dot_product", "cl_khr_subgroups"],
}
DEVICE = Device.of(FACTS)
LAUNCH_US = 5.0
BY_NAME = {measure.name: measure for measure in MEASURES}


class Planted:
    """Takes `LAUNCH_US`, and `ns` for each piece of work of the measures that it was given."""

    def __init__(self, ns: Callable[[str], float], *, clock_mhz: float = 0.0) -> None:
        self.ns, self.clock_mhz = ns, clock_mhz
        self.work: dict[int, tuple[str, float]] = {}
        self.kept: list[MicroKernel] = []
        self.now_s = 0.0
        self.noise = itertools.repeat(1.0)
        self.requests: list[str] = []

    def measure(self, name: str) -> Measure:
        """A measure whose kernels this device knows."""
        real = BY_NAME[name]

        def kernels(device: Device, scale: int) -> tuple[Probe, ...]:
            probes = real.kernels(device, scale)
            self.kept += [probe.kernel for probe in probes]  # so that no id comes again
            self.work |= {id(probe.kernel): (name, probe.work) for probe in probes}
            return probes

        return dataclasses.replace(real, kernels=kernels)

    def run(self, kernels: Sequence[MicroKernel], *, output: bool = False) -> Answers:
        """Seven rounds of planted times."""
        self.requests.append(self.work[id(kernels[0])][0])
        times = tuple(tuple(self._time_us(k) * next(self.noise) for _ in range(7)) for k in kernels)
        self.now_s += sum(map(sum, times)) * 1e-6
        name, lines = self.work[id(kernels[-1])]
        build_ms = 40.0 + lines * self.ns(name) * 1e-6 if name == "build.line" else 0.0
        return Answers(times_us=times, build_ms=build_ms, clock_mhz=self.clock_mhz)

    def clock(self) -> float:
        """Seconds that the kernels took."""
        return self.now_s

    def _time_us(self, kernel: MicroKernel) -> float:
        name, work = self.work[id(kernel)]
        if name == "launch.queue":
            return LAUNCH_US
        return LAUNCH_US + work * self.ns(name) * 1e-3

    def rows(self, *names: str, budget_s: float = 1e9, device: Device = DEVICE) -> list[Row]:
        """What is measured of it."""
        measures = [self.measure(name) for name in names]
        return list(calibrate(self, device, measures, budget_s=budget_s, clock=self.clock))


RATES = {
    # 10^9 a second on a device of 900 MHz and 12 micro shader processors
    "mad.float": 0.9 * 1536,
    "mad.float4": 0.9 * 1536,
    "mad.half": 0.9 * 1536,
    "mad.half4": 0.9 * 3072,
    "texel.half4.cached": 0.9 * 96,
    "texel.float4.cached": 0.9 * 48,
    "local.half4": 0.9 * 12 * 16,  # a wave of 128 in eight clocks
    "local.float4": 0.9 * 12 * 8,
    "memory.read": 54.0,
    "buffer.thread": 0.9 * 12 * 64,
}
NS = {"latency.texel": 150 / 0.9, "latency.buffer.64k": 300 / 0.9, "barrier": 40.0}


def planted_ns(name: str) -> float:
    return 1.0 / RATES[name] if name in RATES else NS[name]


def as_planted(**more: float) -> tuple[Value, ...]:
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


def test_memory_is_a_curve_and_its_end():
    (row,) = Planted(planted_ns).rows("memory.read")
    assert [x for x, _ in row.curve] == [16, 64, 256, 1024, 4096, 32768]
    whole_us = 32768 * 1024 / 54.0 / 1e3
    assert row.value == pytest.approx(54.0 * whole_us / (whole_us + LAUNCH_US))
    assert row.value == row.curve[-1][1]


def test_a_line_of_a_build():
    (row,) = Planted(lambda name: 7000.0).rows("build.line")
    assert row.value == pytest.approx(7.0)


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
    (row,) = device.rows("barrier")
    assert (row.status, row.value) == ("failed", None)
    assert "too noisy" in row.reason
    with pytest.raises(NoisyError):
        slope(BY_NAME["barrier"].kernels(DEVICE, 1), (2.0, 1.0))


def test_rounds_that_chance_has_favoured_are_no_measurement():
    """More work took longer in some rounds alone: to keep those would be to choose a figure."""
    device = Planted(planted_ns)
    device.noise = itertools.cycle([1.0, 1000.0, 1.0, 1.0, 1000.0, 1.0, 1.0, *[1.0] * 7])
    (row,) = device.rows("barrier")
    assert row.status == "failed"
    assert "of 70 rounds say nothing" in row.reason
    assert row.value is None


@pytest.mark.parametrize("time_us", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_times_that_cannot_be(time_us):
    device = Planted(planted_ns)
    device.run = lambda kernels, *, output=False: Answers(  # type: ignore[method-assign]
        times_us=((time_us,) * 7,) * len(kernels), clock_mhz=time_us, temperature_c=time_us
    )
    (row,) = device.rows("memory.write")
    assert (row.status, row.value, row.clock_mhz, row.temperature_c) == ("failed", None, 0.0, 0.0)


def test_one_sample_tells_of_no_spread():
    row = Row(name="x", title="x", unit="", status="measured", value=1.0, samples=1)
    assert row.doubt == 1.0
    value = Value(key="performance.launch_us", value=1.0, how="", rows=(row,))
    assert not value.is_certain


@pytest.mark.parametrize("size", [0, 3, 4096, 64])
def test_a_wave_is_one_that_a_target_can_have(tmp_path, size):
    done = _calibration()
    wave = Row(name="wave", title="", unit="", status="measured", value=float(size))
    measured = dataclasses.replace(done.measured, rows=(*done.measured.rows, wave))
    path = tmp_path / "phone.toml"
    path.write_text(target_toml(measured))
    assert load_target(str(path)).performance.wave_sizes == ((64,) if size == 64 else (64, 128))


def test_a_device_without_something_is_asked_for_none_of_it():
    bare = Device.of({**FACTS, "extensions": [], "images": {}})
    device = Planted(planted_ns)
    names = ("mad.half", "mad.bytes", "texel.half4.cached", "latency.texel", "texel.bytes", "wave")
    rows = device.rows(*names, device=bare)
    assert {row.status for row in rows} == {"skipped"}
    assert all(row.reason and row.value is None for row in rows)
    assert not device.requests


def test_one_that_fails_does_not_end_the_others():
    device = Planted(planted_ns)
    run = device.run

    def breaks(kernels: Sequence[MicroKernel], *, output: bool = False) -> Answers:
        if device.work[id(kernels[0])][0] == "barrier":
            raise ProbeError("timeout: no end within 20 s")
        return run(kernels, output=output)

    device.run = breaks  # type: ignore[method-assign]
    rows = device.rows("mad.float", "barrier", "launch.queue")
    assert [row.status for row in rows] == ["measured", "failed", "measured"]
    assert rows[1].reason == "timeout: no end within 20 s"


def test_a_device_that_leaves_keeps_what_was_measured():
    device = Planted(planted_ns)
    run = device.run

    def leaves(kernels: Sequence[MicroKernel], *, output: bool = False) -> Answers:
        if device.work[id(kernels[0])][0] == "barrier":
            raise RemoteError("no device is there", hint="adrenoc doctor")
        return run(kernels, output=output)

    device.run = leaves  # type: ignore[method-assign]
    rows = device.rows("mad.float", "barrier", "launch.queue")
    assert [row.status for row in rows] == ["measured", "left out", "left out"]
    with pytest.raises(RemoteError):
        device.rows("barrier", "mad.float")


def test_a_budget_that_is_spent_leaves_the_rest_out():
    rows = Planted(lambda _: 10.0).rows("mad.float", "mad.float4", "barrier", budget_s=0.01)
    assert [row.status for row in rows] == ["measured", "left out", "left out"]
    assert "budget" in rows[-1].reason


def test_spread_and_doubt():
    assert spread_of([1.0]) == 0.0
    assert spread_of([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert doubt_of(0.54, 25) == pytest.approx(0.1)


def _calibration(facts: dict[str, Any] = FACTS, device: Planted | None = None) -> Calibration:
    planted = device or Planted(planted_ns, clock_mhz=900.0)
    described = Device.of(facts)
    rows = planted.rows(*RATES, *NS, "launch.queue", "copy.host", device=described)
    listed = listed_for(described)
    measured = Measured(
        device=described,
        base=listed.name,
        cost=listed.cost,
        date=datetime.date(2026, 12, 1),
        rows=tuple(rows),
        values=derive(rows, described, listed.performance, listed.cost),
    )
    return Calibration(
        measured=measured,
        listed=listed,
        toml=target_toml(measured),
        differences=differences(measured.values, listed),
    )


def test_the_file_is_a_target(tmp_path):
    done = _calibration()
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    target = load_target(str(path))
    assert target.performance.fp32_fma_lanes == 1536
    assert target.performance.launch_us == LAUNCH_US
    assert target.cost.pipes.local_read_clocks == 8.0
    assert target.measured_as == "750"
    source = target.source_of("performance.launch_us")
    assert source is not None
    for part in ("measured on QUALCOMM Adreno(TM) 750", "E031.45.02.06", "2026-12-01", "spread"):
        assert part in source
    assert load_target(f"host:{path}").host
    # What the base knows and nobody measured stays.
    assert target.limits.max_work_group_size == 1023
    assert target.performance.registers_vec4_per_fiber_slot == 96


def test_differences_of_more_than_a_fifth_are_named():
    found = {difference.key: difference for difference in _calibration().differences}
    launch = found["performance.launch_us"]
    assert launch.ratio == pytest.approx(5 / 12)
    assert "a launch costs less" in launch.means
    assert found["performance.texels_per_clock"].means == ""  # as listed
    assert found["performance.dram_gb_per_s"].means == ""


def test_a_value_that_may_be_anything_is_left_to_the_base(tmp_path):
    device = Planted(planted_ns, clock_mhz=900.0)
    device.noise = itertools.cycle([1.0, 9.0, 3.0, 40.0, 17.0, 1.5])
    done = _calibration(device=device)
    launch = next(d for d in done.differences if d.key == "performance.launch_us")
    assert not launch.is_certain
    assert "the listed value stands" in launch.means
    path = tmp_path / "noisy.toml"
    path.write_text(done.toml)
    assert (
        load_target(str(path)).performance.launch_us
        == load_target("adreno:750").performance.launch_us
    )
    assert "# too uncertain" in done.toml


@pytest.mark.parametrize(
    "name",
    [
        'x"\n[options]\nndk = "/tmp',
        "@measured",
        "\\u0041\\",
        "\x1b[2J\u202e",
        "a" * 5000,
        "",
        None,
        7,
    ],
)
def test_names_from_outside_are_names(tmp_path, name):
    done = _calibration({**FACTS, "name": name, "driver": name})
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    target = load_target(str(path))
    assert target.options == ()
    assert "<script" not in calibration_html(done)


def test_facts_from_outside_may_be_anything():
    for facts in (
        {},
        {"limits": 3, "images": None, "extensions": 5},
        {"limits": {"compute_units": "x"}},
    ):
        device = Device.of(facts)
        assert device.compute_units == 1
        assert device.image_width == 0
    assert plain("a\x00b") == "a?b"


def test_a_device_beyond_all_bounds_still_makes_a_target(tmp_path):
    limits = {key: 1 << 44 for key in FACTS["limits"]} | {"compute_units": 7, "clock_mhz": 0}
    huge = {**FACTS, "name": "Thing", "version": "", "limits": limits}
    fast = Planted(lambda name: 1e-9)
    path = tmp_path / "phone.toml"
    path.write_text(_calibration(huge, fast).toml)
    assert load_target(str(path)).limits.local_mem_bytes == 1 << 24
    assert "which says 17592186044416" in path.read_text()


def test_the_page_holds_all_and_asks_nobody():
    page = calibration_html(_calibration({**FACTS, "name": "<script>alert(1)</script>"}))
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<svg") == 1  # of the one curve
    for name in (*RATES, *NS, "copy.host"):
        assert name in page


def test_names_of_measures_are_of_one_form_and_differ():
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert all(measure.title and measure.title[0].islower() for measure in MEASURES)
    for measure in MEASURES:
        if not measure.lacks(DEVICE):
            for probe in measure.kernels(DEVICE, 1):
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
        (numbers.TIES.astype(np.float16), "to the nearest, ties to even"),
        (np.array([1, 1 + 2**-10, -1, 1], np.float16), "towards zero"),
        (np.array([1, 2, 3, 4], np.float16), "in a way that no rule describes: 1, 2, 3, 4"),
    ],
)
def test_rounding_is_told_by_what_came_out(stored, word):
    assert numbers.rounding(stored)[1] == word


def test_the_listed_gpu_is_what_a_device_calls_itself():
    assert listed_for(DEVICE).name == "adreno:a750"
    assert (
        listed_for(Device.of({**FACTS, "version": "Adreno(TM) 999", "name": "x"})).name == "adreno"
    )
    assert listed_for(Device.of({"name": "NVIDIA H200"})).name == "adreno"


@pytest.mark.parametrize("name", ["device.json", "a b.toml", "-x.toml"])
def test_a_file_that_could_not_be_given_is_not_written(tmp_path, name):
    with pytest.raises(TargetError):
        check_output_name(Path(tmp_path / name))


def _times(kernel: MicroKernel) -> int:
    """How often its loop runs, in all threads."""
    (turns,) = [t.value[0] for t in kernel.arguments if t.shape == (4,) and t.dtype == "int32"]
    width, height, depth = kernel.threads
    return int(turns) * width * height * depth


@pytest.mark.parametrize(
    ("name", "words", "each"),
    [
        ("mad.float", " = mad(", 1),
        ("mad.float4", " = mad(", 4),
        ("mad.half", " = mad(", 1),
        ("mad.half4", " = mad(", 4),
        ("mad.bytes", "+= dot_4x8packed_uu_uint(", 4),
        ("texel.half4.cached", "read_imagef(", 1),
        ("texel.float4.window", "read_imagef(", 1),
        ("texel.float4.streamed", "read_imagef(", 1),
        ("local.byte", "^= kept[", 1),
        ("local.float", "+= kept[", 1),
        ("local.half4", "^= kept[", 1),
        ("local.float4", "+= kept[", 1),
        ("buffer.thread", "sum += data[", 16),
        ("buffer.uniform", "sum += data[", 16),
        ("buffer.halves", "sum += vload_half4(", 8),
    ],
)
def test_the_work_of_a_launch_is_what_its_text_does(name, words, each):
    for scale in (1, 5):
        for probe in BY_NAME[name].kernels(DEVICE, scale):
            written = probe.kernel.source.count(words)
            assert written > 0
            assert probe.work == written * each * _times(probe.kernel)


@pytest.mark.parametrize(("name", "ways"), [("memory.read", 1), ("memory.copy", 2)])
def test_memory_counts_each_way(name, ways):
    probes = BY_NAME[name].kernels(DEVICE, 1)
    for probe in probes[1::2]:
        (turns,) = re.findall(r"turn < (\d+)u", probe.kernel.source)
        assert probe.work == ways * int(turns) * probe.x * 1024


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("host", "adreno"),
        ("adreno", "adreno"),
        ("host:750", "adreno:a750"),
        ("adreno:sm8650", "adreno:sm8650"),
        ("host:h100", "host:h100"),
    ],
)
def test_a_file_builds_on_what_it_stands_beside(name: str, base: str, tmp_path: Path) -> None:
    assert base_of(load_target(name)) == base
    path = tmp_path / "own.toml"
    path.write_text(f'title = "t"\nbase = "{base}"\n')
    assert base_of(load_target(str(path))) == base
