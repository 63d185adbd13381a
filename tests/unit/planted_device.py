"""A device whose times are known, to calibrate."""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adrenoc.lab.calibrate.facts import differences
from adrenoc.lab.calibrate.measure import (
    DeviceFacts,
    HostOperation,
    Measure,
    MeasureRow,
    MicroKernel,
    ProbeError,
    TimedWork,
    calibrate,
)
from adrenoc.lab.calibrate.session import (
    MEASURES,
    Calibration,
    listed_for,
    measured_of,
    target_toml,
)
from adrenoc.lab.tune.session import TrialResult

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
        "max_work_item_sizes": [1024, 1024, 64],
        "local_memory_bytes": 32768,
        "max_allocation_bytes": 1 << 30,
        "max_parameter_bytes": 1024,
    },
    "extensions": ["cl_khr_fp16", "cl_khr_integer_dot_product", "cl_khr_subgroups"],
}
DEVICE = DeviceFacts.from_facts(FACTS)
LAUNCH_US = 5.0
BY_NAME = {measure.name: measure for measure in MEASURES}


class Planted:
    """Takes `LAUNCH_US`, and `ns` for each piece of work of the measures that it was given."""

    def __init__(self, ns: Callable[[str], float], *, clock_mhz: float = 0.0) -> None:
        self.ns, self.clock_mhz = ns, clock_mhz
        self.work: dict[int, tuple[str, float]] = {}
        self.kept: list[MicroKernel | HostOperation] = []
        self.now_s = 0.0
        self.noise = itertools.repeat(1.0)
        self.requests: list[str] = []
        self.outputs: dict[str, np.ndarray] = {}
        """What kernels write, by the measure."""
        self.refused: set[str] = set()
        """Measures whose kernels do not run."""

    def measure(self, name: str) -> Measure:
        """A measure whose kernels this device knows."""
        real = BY_NAME[name]

        def kernels(device: DeviceFacts, scale: int) -> tuple[TimedWork, ...]:
            probes = real.kernels(device, scale)
            self.kept += [probe.kernel for probe in probes]  # so that no id comes again
            self.work |= {id(probe.kernel): (name, probe.work) for probe in probes}
            return probes

        return dataclasses.replace(real, kernels=kernels)

    def run(
        self, kernels: Sequence[MicroKernel | HostOperation], *, output: bool = False
    ) -> TrialResult:
        """Seven rounds of planted times."""
        self.requests.append(self.work[id(kernels[0])][0])
        times = tuple(tuple(self._time_us(k) * next(self.noise) for _ in range(7)) for k in kernels)
        self.now_s += sum(map(sum, times)) * 1e-6
        name, _ = self.work[id(kernels[-1])]
        if name in self.refused:
            raise ProbeError("build: no such thing")
        written = self.outputs.get(name) if output else None
        return TrialResult(times_us=times, clock_mhz=self.clock_mhz, output=written)

    def clock(self) -> float:
        """Seconds that the kernels took."""
        return self.now_s

    def _time_us(self, kernel: MicroKernel | HostOperation) -> float:
        name, work = self.work[id(kernel)]
        if name == "launch.queue" or name in self.outputs or name in self.refused:
            return LAUNCH_US
        return LAUNCH_US + work * self.ns(name) * 1e-3

    def rows(
        self, *names: str, budget_s: float = 1e9, device: DeviceFacts = DEVICE, **more
    ) -> list[MeasureRow]:
        """What is measured of it."""
        measures = [self.measure(name) for name in names]
        return list(calibrate(self, device, measures, budget_s=budget_s, clock=self.clock, **more))


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
NS = {"latency.texel": 150 / 0.9, "latency.buffer.64k": 300 / 0.9}


def planted_ns(name: str) -> float:
    return 1.0 / RATES[name] if name in RATES else NS[name]


def calibrate_planted(
    facts: dict[str, Any] = FACTS, device: Planted | None = None, *, others: Sequence[str] = ()
) -> Calibration:
    planted = device or Planted(planted_ns, clock_mhz=900.0)
    described = DeviceFacts.from_facts(facts)
    names = (*RATES, *NS, "launch.queue", *others)
    rows = planted.rows(*names, device=described)
    listed = listed_for(described)
    measured = dataclasses.replace(
        measured_of(described, listed, rows), base=listed.name, date=datetime.date(2026, 12, 1)
    )
    return Calibration(
        measured=measured,
        listed=listed,
        toml=target_toml(measured),
        differences=differences(measured.values, listed),
    )
