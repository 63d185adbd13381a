"""One calibration: reach the device, measure, derive, and write what was found as a target file,
which `--device FILE.toml` takes.

A budget ends the table of measures anywhere, so what matters most comes first: what right results
hang on, which takes little time, and then what estimates reckon with. Micro-kernels run as a
tuner's trials (`adrenoc.lab.tune.farm`), one at a time, for builds are timed too. A session that
breaks, or does not end in time, is a `ProbeError`, and the next request opens another.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from adrenoc.lab.calibrate.facts import (
    EXTENSION,
    Difference,
    Fact,
    TargetValue,
    derive,
    differences,
    find_facts,
)
from adrenoc.lab.calibrate.measure import (
    FAILED,
    NAME,
    THREADS,
    DeviceFacts,
    HostOperation,
    KernelArgument,
    Measure,
    MeasureRow,
    MicroKernel,
    ProbeError,
    calibrate,
)
from adrenoc.lab.calibrate.measures.driver import (
    BORDER_MEASURES,
    EXTENSION_MEASURES,
    FEATURE_MEASURES,
    FUNCTION_MEASURES,
    NUMBER_MEASURES,
)
from adrenoc.lab.calibrate.measures.rates import (
    LATENCY_MEASURES,
    LOCAL_SIZE_MEASURES,
    PERCENTS,
    RATE_MEASURES,
    row_name,
    share_bytes,
)
from adrenoc.lab.tune.farm import TrialQueue
from adrenoc.lab.tune.session import ABSENT, DevicePlace, MeasureJob, Session, TrialResult
from adrenoc.lab.tune.tasks import Argument, Variant
from adrenoc.lab.tune.tuner import local_server
from adrenoc.target.cost import Cost
from adrenoc.target.device_set import load_listed
from adrenoc.target.gpu_file import OwnFile, clamp_value
from adrenoc.target.sourced import LEAST
from adrenoc.target.target import Target

_HELD = "held to what kernels are written for"
_MOST_LAYERS = 2048
_HALVES, _DOT, _OWN_DOT = (
    f"{EXTENSION}{name}"
    for name in ("cl_khr_fp16", "cl_khr_integer_dot_product", "cl_qcom_dot_product8")
)
_LARGEST = "buffer.largest"
_MOST_LETTERS = 300
_ANY = "adreno"
"""What stands for all GPUs."""
_WAVES = tuple(float(1 << power) for power in range(11))


@dataclass(frozen=True, kw_only=True)
class MeasuredTarget:
    """A device, the listed one that stands beside it, what was measured and what follows."""

    device: DeviceFacts
    base: str
    cost: Cost
    """The table of the listed one."""
    date: datetime.date
    rows: tuple[MeasureRow, ...]
    values: tuple[TargetValue, ...]
    facts: tuple[Fact, ...] = ()

    @property
    def source(self) -> str:
        """Return what every value is from."""
        return f"measured on {self.device.with_driver}, {self.date.isoformat()}"


def base_of(target: Target) -> str:
    """Return the listed device that a file has to build on to be like a target."""
    if target.own is not None:
        return OwnFile.base(target.own.parse()) or _ANY
    return _ANY if target.name == "host" else re.sub("^host:(?=a|sm)", "adreno:", target.name)


def target_toml(measured: MeasuredTarget) -> str:
    """Return the file: `base` for all that no driver and no measurement tells."""
    device = measured.device
    lines = [
        "# Written by adrenoc device calibrate; for --device FILE.toml, or host:FILE.toml here.",
        f'title = "{device.name}, as measured"',
        f'base = "{measured.base}"',
        "",
        "[sources]",
        f'measured = "{measured.source}"',
        f'driver = "what driver {device.shown_driver} of {device.name} says, {measured.date}"',
        "",
        "[limits]",
        *_limits(measured),
    ]
    for section in ("performance", "cost.pipes"):
        own = [value for value in measured.values if value.key.rpartition(".")[0] == section]
        if own:
            lines += ["", f"[{section}]", *(_line(value, measured.cost) for value in own)]
    wave = next((row for row in measured.rows if row.name == "wave" and row.is_measured), None)
    if wave is not None and wave.value in _WAVES and "[performance]" in lines:
        at = lines.index("[performance]") + 1
        lines.insert(
            at, f'wave_sizes = {{ value = [{int(wave.value or 0)}], source = "@measured" }}'
        )
    for section, told in (
        ("[extensions]", list(_extensions(measured.rows))),
        ("[measured]  # what no estimate reckons with yet", list(_figures(measured.rows))),
    ):
        if told:
            lines += ["", section, *told]
    lines += _quirks(measured)
    return "\n".join(lines) + "\n"


def _line(value: TargetValue, cost: Cost) -> str:
    key = value.key.rpartition(".")[2]
    text = "@measured" if value.rows else "@driver"
    spread = f", spread {100 * value.spread:.1f} %" if value.rows else ""
    kept = clamp_value(value.key, value.value, cost)
    bound = "" if kept == value.value else f"; {value.value:g} is beyond what a file may say"
    line = f'{key} = {{ value = {_number(kept)}, source = "{text}{spread}: {value.how}{bound}" }}'
    if value.is_certain:
        return line
    return f"# too uncertain to reckon with, so that the base's stands: {line}"


def _number(value: float | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _limits(measured: MeasuredTarget) -> Iterable[str]:
    device, cost = measured.device, measured.cost
    refused = {row.name: row for row in measured.rows if row.status == FAILED}
    told: Sequence[tuple[str, int]] = (
        ("image2d_max_width_texels", device.image_width),
        ("image2d_max_height_texels", device.image_height),
        ("image_max_array_layers", min(device.image_layers, _MOST_LAYERS)),
        ("image_pitch_align_texels", device.image_pitch_texels),
        ("max_read_image_args", device.read_images),
        ("max_write_image_args", device.write_images),
        ("max_kernel_args_bytes", device.max_parameter_bytes),
        ("max_work_group_size", device.max_work_group_size),
        ("local_mem_bytes", device.local_memory_bytes),
        ("max_alloc_bytes", device.max_allocation_bytes),
    )
    for key, seen in told:
        if key == "max_alloc_bytes" and _LARGEST in refused:
            yield f"# {key}: the driver says {seen}, and it failed, so that the base's stands"
        elif key == "local_mem_bytes" and (local := _find_local(measured)):
            yield (
                f'local_mem_bytes = {{ value = {local[0]}, source = "@measured: {local[1]}" }}'
                if local[0]
                else "# local_mem_bytes: no kernel could share any, so that none does, by a quirk"
            )
        elif seen > 0:
            kept = clamp_value(f"limits.{key}", seen, cost)
            held = "" if kept == seen else f", which says {seen}; {_HELD}"
            yield f'{key} = {{ value = {kept}, source = "@driver{held}" }}'
    if sides := device.max_work_item_sizes:
        within = [min(side, device.max_work_group_size) for side in sides]
        yield f'max_work_item_sizes = {{ value = {within}, source = "@driver" }}'
    halves = next((row for row in measured.rows if row.name == _HALVES), None)
    if halves is not None and _was_tried(halves):
        works = str(_works(halves)).lower()
        yield f'fp16 = {{ value = {works}, source = "@measured: {_say_extension(halves)}" }}'
    else:
        is_listed = str(not device.lacks("cl_khr_fp16")).lower()
        yield f'fp16 = {{ value = {is_listed}, source = "@driver: cl_khr_fp16" }}'
    version = "3.0" if device.c_version >= 300 else "2.0"
    yield f'opencl_c = {{ value = "{version}", source = "@driver: {device.c_version}" }}'


def _find_local(measured: MeasuredTarget) -> tuple[int, str] | None:
    """Return how much of the local memory a kernel can share, and how that was seen. It is None
    where all can be shared, or nobody asked."""
    device, rows = measured.device, {row.name: row for row in measured.rows}
    tried = {p: rows[row_name(p)] for p in PERCENTS if row_name(p) in rows}
    best = max((percent for percent, row in tried.items() if _works(row)), default=0)
    fails = [p for p, row in tried.items() if p > best and _was_tried(row) and not _works(row)]
    if not fails:
        return None
    kept, too_much = share_bytes(device, best), share_bytes(device, min(fails))
    told = f"a kernel could share {kept}, and not {too_much}, of the {device.local_memory_bytes} "
    return kept, told + "bytes that the driver says"


def _extensions(rows: Sequence[MeasureRow]) -> Iterator[str]:
    """Yield the extensions that were tried: what is listed and does not work is not there."""
    tried = sorted(
        (row for row in rows if row.name.startswith(EXTENSION) and _was_tried(row)),
        key=lambda row: row.name,
    )
    # Kernels take the standard's dot products wherever a compiler has their name.
    is_dot_wrong = any(row.name == _DOT and not _works(row) for row in tried)
    for row in tried:
        name = row.name.removeprefix(EXTENSION)
        works, told = _works(row), _say_extension(row)
        if row.name == _OWN_DOT and is_dot_wrong:
            works, told = False, f"{told}, but kernels would take {_DOT.removeprefix(EXTENSION)}"
        yield f'{name} = {{ value = {str(works).lower()}, source = "@measured: {told}" }}'


def _was_tried(row: MeasureRow) -> bool:
    return row.is_measured or row.status == FAILED


def _works(row: MeasureRow) -> bool:
    return row.is_measured and row.value == 1.0


def _say_extension(row: MeasureRow) -> str:
    name = row.name.removeprefix(EXTENSION)
    return f"{name} works" if _works(row) else f"{name} is listed, but does not work"


def _figures(rows: Sequence[MeasureRow]) -> Iterator[str]:
    """Yield each figure that was measured, whether or not a key follows from it."""
    for row in rows:
        if row.value is None or not row.is_measured or row.name.startswith(EXTENSION):
            continue
        is_answer = not row.unit and row.value in (0.0, 1.0)
        if not (is_answer or row.value >= LEAST):
            continue
        value = _number(row.value == 1.0 if is_answer else float(f"{row.value:.4g}"))
        spread = f"spread {100 * row.spread:.1f} %" if row.samples > 1 else ""
        state = row.state.replace("°C", "C")
        how = ", ".join(filter(None, ("@measured", spread, state)))
        told = "; ".join(filter(None, (row.figure, row.title)))
        yield f'"{row.name}" = {{ value = {value}, source = {_text(f"{how}: {told}")} }}'


def _quirks(measured: MeasuredTarget) -> Iterator[str]:
    """Yield what compilations are to do without, once for each word with all that says so."""
    for word in dict.fromkeys(fact.avoid for fact in measured.facts if fact.avoid):
        saying = [fact for fact in measured.facts if fact.avoid == word]
        seen = "; ".join(f"{fact.key}: {fact.measured}" for fact in saying)
        yield from _quirk(word, saying[0].means, seen, f'avoid = ["{word}"]')
    local = _find_local(measured)
    if local is not None and not local[0]:
        text = "No kernel that shares local memory runs, or is right."
        yield from _quirk("local-memory", text, local[1], "local_bytes_below = 1")


def _quirk(name: str, text: str, seen: str, change: str) -> tuple[str, ...]:
    told = (f"text = {_text(text)}", f"source = {_text(f'@measured: {seen}')}", change)
    return ("", "[[quirks]]", f'name = "measured-{name}"', *told)


def _text(text: str) -> str:
    """Return a TOML text of one line; JSON's are TOML's too."""
    return json.dumps(" ".join(text.split())[:_MOST_LETTERS])


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
        where one was refused, or broke the device; RemoteError where no device is there."""
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
        """Measure a job; a device that left, as after a reset, gets time to come back. Raises
        ProbeError where it was refused, or broke the device; RemoteError where no device came, or
        another one."""
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
    """Measure a device; `say` hears of each row, and how many there are in all. Raises RemoteError
    where the device cannot be reached, or went away for good; DeviceError where it runs no kernel
    at all."""
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
        output = KernelArgument(shape=(THREADS,), dtype="float32")
        try:
            bench.run([MicroKernel(source=_HELLO, arguments=(output,))])
        except ProbeError as error:
            raise DeviceError(
                f"the device runs not even an empty kernel: {error}", hint="adrenoc doctor"
            ) from error
        yield bench, DeviceFacts.from_facts(bench.facts), scratch


def pick_measures(only: tuple[str, ...]) -> tuple[Measure, ...]:
    """Return the measures whose names hold one of these parts."""
    return tuple(m for m in MEASURES if not only or any(part in m.name for part in only))


def listed_for(device: DeviceFacts) -> Target:
    """Return the listed GPU that a device calls itself, or what stands for all."""
    return load_listed(adreno_number(device.facts))


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
