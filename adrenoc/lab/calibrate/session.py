"""One calibration: reach the device, measure, derive, and hand back all that a report shows.

A budget ends the table of measures anywhere, so what matters most comes first: what right results
hang on, which takes little time, and then what estimates reckon with.

Micro-kernels run as a tuner's trials (`adrenoc.lab.tune.trial_queue`), one at a time, for builds
are timed too.  A session that breaks, or does not end in time, is a `ProbeError`, and the next
request opens another.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import DeviceError, RemoteError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import sha256_bytes
from adrenoc.base.files.resume import Resume
from adrenoc.device.fit import adreno_number
from adrenoc.device.remote import RemoteAddress
from adrenoc.lab.calibrate.calibrate import MeasureRow, calibrate
from adrenoc.lab.calibrate.facts import Difference, derive, differences, find_facts
from adrenoc.lab.calibrate.measure import (
    NAME,
    THREADS,
    DeviceFacts,
    HostOperation,
    KernelArgument,
    Measure,
    MicroKernel,
    ProbeError,
)
from adrenoc.lab.calibrate.measures.driver import (
    BORDER_MEASURES,
    EXTENSION_MEASURES,
    FEATURE_MEASURES,
)
from adrenoc.lab.calibrate.measures.numbers import FUNCTION_MEASURES, NUMBER_MEASURES
from adrenoc.lab.calibrate.measures.rates import (
    LATENCY_MEASURES,
    LOCAL_SIZE_MEASURES,
    RATE_MEASURES,
)
from adrenoc.lab.calibrate.target_file import MeasuredTarget, base_of, target_toml
from adrenoc.lab.tune.session import ABSENT, DevicePlace, MeasureJob, Session, TrialResult
from adrenoc.lab.tune.tasks import Argument, Variant
from adrenoc.lab.tune.trial_queue import TrialQueue
from adrenoc.lab.tune.tune_model import local_server
from adrenoc.target.device_report import load_listed
from adrenoc.target.target import Target

_PAUSES_S = (1.0, 3.0)
"""Before a device that is not there is asked again."""
_MOST_DETAIL = 200


class Bench:
    """Runs micro-kernels at a place; a context manager.  `scratch` is a folder of its own."""

    def __init__(self, place: DevicePlace, scratch: Path) -> None:
        self._scratch = scratch
        self._serial = 0
        self._results: list[TrialResult] = []
        self._trials = TrialQueue(
            place,
            ended=lambda _, result: self._results.append(result),
            connected=self._check_same_device,
        )
        self.facts: Mapping[str, Any] = {}
        """What the device said of itself when the last session began."""

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._trials.close()

    def run(
        self, kernels: Sequence[MicroKernel | HostOperation], *, output: bool = False
    ) -> TrialResult:
        """Build kernels, run them in turn, and time each; with `output` what the last wrote.

        Operations of the host stand for themselves: no kernel is among them. Raises ProbeError
        where one was refused, or broke the device; RemoteError where no device is there.
        """
        operations = tuple(one.words for one in kernels if isinstance(one, HostOperation))
        if operations:
            return self._measure(MeasureJob(operations=operations))
        variants = [self._variant(k) for k in kernels if isinstance(k, MicroKernel)]
        self._serial += 1
        reference = self._scratch / f"output{self._serial}.npy"
        result = self.launch(variants, reference)
        return replace(result, output=np.load(reference)) if output else result

    def launch(
        self, variants: Sequence[Variant], reference: Path, *, tolerance: float | None = None
    ) -> TrialResult:
        """Build kernels, run them in turn, and time each.

        `reference` gets the output of the last; with a `tolerance` it is there already, and all
        outputs have to be as near to it, relative to its largest value. Raises ProbeError where one
        was refused, or broke the device; RemoteError where no device is there.
        """
        job = MeasureJob(
            variants=tuple(variants),
            reference=reference,
            write_reference=tolerance is None,
            tolerance=tolerance or 0.0,
        )
        return self._measure(job)

    def _measure(self, job: MeasureJob) -> TrialResult:
        """Measure a job; a device that left, as after a reset, gets time to come back.

        Raises ProbeError where it was refused, or broke the device; RemoteError where no device
        came, or another one.
        """
        for pause_s in (*_PAUSES_S, None):
            self._results.clear()
            self._trials.add(replace(job, careful=True, tells_state=True))
            while not self._results:
                self._trials.work()
            result = self._results[0]
            if result.refused != ABSENT or pause_s is None:
                break
            time.sleep(pause_s)
        if result.refused == ABSENT:
            raise RemoteError(f"no device is there: {result.detail}", hint="adrenoc doctor")
        if result.refused:
            raise ProbeError(f"{result.refused}: {_one_line(result.detail)}", result.index)
        return result

    def _check_same_device(self, session: Session) -> None:
        facts, known = session.facts, self.facts
        if known and any(known.get(key) != facts.get(key) for key in ("name", "driver")):
            self._trials.close()
            raise RemoteError(
                f"another device answers now: {facts.get('name')} after {known.get('name')}",
                hint="adrenoc device calibrate --on HOST:PORT, which is one device",
            )
        self.facts = facts

    def _variant(self, kernel: MicroKernel) -> Variant:
        return Variant(
            kernel=NAME,
            source=kernel.source,
            work_items=kernel.threads,
            work_group=kernel.group,
            arguments=tuple(self._argument(tensor) for tensor in kernel.arguments),
        )

    def _argument(self, tensor: KernelArgument) -> Argument:
        file = ""
        if tensor.value is not None:
            # By content: the session keeps what it has under this name.
            told = repr((tensor.shape, tensor.dtype)).encode() + tensor.value.tobytes()
            path = self._scratch / f"{sha256_bytes(told)[:24]}.npy"
            if not path.exists():
                np.save(path, np.asarray(tensor.value, order="C"))
            file = str(path)
        return Argument(shape=tensor.shape, dtype=tensor.dtype, scope=tensor.scope, file=file)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MOST_DETAIL]


_HELLO = "__kernel void probe(__global float* out) { out[get_global_id(0)] = 1.0f; }\n"


@dataclass(frozen=True, kw_only=True)
class DeviceRequest:
    """What to ask of a device, and where it is; `place` None is here.

    `budget_s` is for all, `limit_s` for one question.  `listed` is the device to stand beside,
    found where None; `only` are parts of names of what is asked, all where there is none; `resume`
    has what was asked before it was interrupted.
    """

    place: RemoteAddress | None
    cl_device: str
    budget_s: float
    limit_s: float
    listed: Target | None = None
    only: tuple[str, ...] = ()
    resume: Resume | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Measurements, the target file that they make, and where that differs from what is listed."""

    measured: MeasuredTarget
    listed: Target
    toml: str
    differences: tuple[Difference, ...]


def run_calibration(
    request: DeviceRequest, *, say: Callable[[MeasureRow, int], None] = lambda row, count: None
) -> Calibration:
    """Measure a device; `say` hears of each row, and how many there are in all.

    Raises RemoteError where the device cannot be reached, or went away for good; DeviceError where
    it runs no kernel at all.
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


def measured_of(device: DeviceFacts, listed: Target, rows: Sequence[MeasureRow]) -> MeasuredTarget:
    """Return what follows from rows that were measured now."""
    return MeasuredTarget(
        device=device,
        base=base_of(listed),
        cost=listed.cost,
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        rows=tuple(rows),
        values=derive(rows, device, listed.performance, listed.cost),
        facts=find_facts(rows),
    )


@contextmanager
def opened_bench(request: DeviceRequest) -> Iterator[tuple[Bench, DeviceFacts, Path]]:
    """Open a bench at a place; gives what the device there says of itself and a folder, too. Raises
    RemoteError where the device cannot be reached, DeviceError where it runs no kernel at all."""
    with ExitStack() as stack:
        address = request.place or stack.enter_context(local_server())
        scratch = stack.enter_context(TemporaryFolder("calibrate"))
        place = DevicePlace(server=address, cl_device=request.cl_device, limit_s=request.limit_s)
        bench = stack.enter_context(Bench(place, scratch))
        yield bench, _identify_device(bench), scratch


def pick_measures(only: tuple[str, ...]) -> tuple[Measure, ...]:
    """Return the measures whose names hold one of these parts."""
    return tuple(m for m in MEASURES if not only or any(part in m.name for part in only))


def listed_for(device: DeviceFacts) -> Target:
    """Return the listed GPU that a device calls itself, or what stands for all."""
    return load_listed(adreno_number(device.facts))


def _identify_device(bench: Bench) -> DeviceFacts:
    """Return what the device says of itself, once it ran the smallest of kernels."""
    output = KernelArgument(shape=(THREADS,), dtype="float32")
    try:
        bench.run([MicroKernel(source=_HELLO, arguments=(output,))])
    except ProbeError as error:
        raise DeviceError(
            f"the device runs not even an empty kernel: {error}", hint="adrenoc doctor"
        ) from error
    return DeviceFacts.from_facts(bench.facts)


MEASURES: tuple[Measure, ...] = (
    *BORDER_MEASURES,
    *NUMBER_MEASURES,
    *FUNCTION_MEASURES,
    *EXTENSION_MEASURES,
    *FEATURE_MEASURES,
    *LOCAL_SIZE_MEASURES,
    *RATE_MEASURES,
    *LATENCY_MEASURES,
)
