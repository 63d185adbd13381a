"""One calibration: reach the device, measure, derive, and hand back all that a report shows.

A budget ends the table of measures anywhere, so what matters most comes first: what right results
hang on, which takes little time, and then what estimates reckon with.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import DeviceError
from adrenoc.base.files.resume import Resume
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.device.compiled_for import adreno_number
from adrenoc.device.remote import RemoteAddress
from adrenoc.lab.calibrate.bench import Bench
from adrenoc.lab.calibrate.calibrate import Row, calibrate
from adrenoc.lab.calibrate.derive import derive
from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.facts import Difference, differences, find_facts
from adrenoc.lab.calibrate.measure import THREADS, Measure, MicroKernel, ProbeError, Tensor
from adrenoc.lab.calibrate.measures import (
    borders,
    extensions,
    features,
    functions,
    latency,
    local_size,
    numbers,
    rates,
)
from adrenoc.lab.calibrate.target_file import Measured, base_of, target_toml
from adrenoc.lab.tune.local import local_server
from adrenoc.lab.tune.session import TunerAddress
from adrenoc.target.device_report import load_listed
from adrenoc.target.target import Target

_HELLO = "__kernel void probe(__global float* out) { out[get_global_id(0)] = 1.0f; }\n"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where a device is, and how long all and one request may take; `place` None is here."""

    place: RemoteAddress | None
    cl_device: str
    budget_s: float
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class Request(Reach):
    """What to measure where; `listed` is the device to stand beside, found where None.

    `only` are parts of names of measures, all where there is none.  `resume` has what was measured
    before it was interrupted.
    """

    listed: Target | None = None
    only: tuple[str, ...] = ()
    resume: Resume | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Measurements, the target file that they make, and where that differs from what is listed."""

    measured: Measured
    listed: Target
    toml: str
    differences: tuple[Difference, ...]


def run_calibration(
    request: Request, *, say: Callable[[Row, int], None] = lambda row, count: None
) -> Calibration:
    """Measure a device; `say` hears of each row, and how many there are in all.

    Raises:
        RemoteError: the device cannot be reached, or went away for good.
        DeviceError: it runs no kernel at all.
    """
    measures = pick_measures(request.only)
    with opened_bench(request) as (bench, device, _):
        rows = calibrate(
            bench,
            device,
            measures,
            budget_s=request.budget_s,
            say=lambda row: say(row, len(measures)),
            resume=request.resume,
        )
    listed = request.listed or listed_for(device)
    measured = measured_of(device, listed, rows)
    return Calibration(
        measured=measured,
        listed=listed,
        toml=target_toml(measured),
        differences=differences(measured.values, listed),
    )


def measured_of(device: Device, listed: Target, rows: Sequence[Row]) -> Measured:
    """What follows from rows that were measured now."""
    return Measured(
        device=device,
        base=base_of(listed),
        cost=listed.cost,
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        rows=tuple(rows),
        values=derive(rows, device, listed.performance, listed.cost),
        facts=find_facts(rows),
    )


@contextmanager
def opened_bench(request: Reach) -> Iterator[tuple[Bench, Device, Path]]:
    """A bench at a place, what the device there says of itself, and a folder for its files.

    Raises:
        RemoteError: the device cannot be reached.
        DeviceError: it runs no kernel at all.
    """
    with ExitStack() as stack:
        address = request.place or stack.enter_context(local_server())
        scratch = stack.enter_context(TemporaryFolder("calibrate"))
        place = TunerAddress(
            host=address.where.host,
            port=address.where.port,
            key=address.key,
            tracked=address.tracked,
            device=request.cl_device,
            limit_s=request.limit_s,
        )
        bench = stack.enter_context(Bench(place, scratch))
        yield bench, _identify_device(bench), scratch


def pick_measures(only: tuple[str, ...]) -> tuple[Measure, ...]:
    """The measures whose names hold one of these parts."""
    return tuple(m for m in MEASURES if not only or any(part in m.name for part in only))


def listed_for(device: Device) -> Target:
    """The listed GPU that a device calls itself, or what stands for all."""
    return load_listed(adreno_number(device.facts))


def _identify_device(bench: Bench) -> Device:
    """What the device says of itself, once it ran the smallest of kernels."""
    output = Tensor(shape=(THREADS,), dtype="float32")
    try:
        bench.run([MicroKernel(source=_HELLO, arguments=(output,))])
    except ProbeError as error:
        raise DeviceError(
            f"the device runs not even an empty kernel: {error}", hint="adrenoc doctor"
        ) from error
    return Device.from_facts(bench.facts)


MEASURES: tuple[Measure, ...] = (
    *borders.MEASURES,
    *numbers.MEASURES,
    *functions.MEASURES,
    *extensions.MEASURES,
    *features.MEASURES,
    *local_size.MEASURES,
    *rates.MEASURES,
    *latency.MEASURES,
)
