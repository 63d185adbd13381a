"""A run in terminals and on pages: times, launches beside the least they could take, errors; and as
a trace that Perfetto and Chrome open.

A trace has two processes: the host (what it did when, by its own clock) and the device (each kernel
of the profiled run, by the device's clock). The two clocks have no common zero: the device's last
kernel is set to end where the host's wait for it ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adrenoc.base.text.report import (
    Cards,
    Cell,
    Drawing,
    Fields,
    Fold,
    Name,
    Part,
    Share,
    Table,
    Title,
    Verdict,
    page,
    tabulate,
)
from adrenoc.base.text.spelling import (
    Figure,
    count_of,
    dims,
    figure,
    printable,
    printable_json,
    show_bytes,
    show_ms,
)
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.chat import how_to_talk, is_decoder
from adrenoc.device.result import (
    LaunchReport,
    NodeTime,
    ProgramReport,
    RegionRun,
    RunResult,
    Sustained,
    TimedLaunch,
)
from adrenoc.pages.bars import Bar, draw_bars

if TYPE_CHECKING:
    from adrenoc.device.compare import CheckResult, TensorCheck


_SHOWN = 20
"""Rows of launches, kernels and tensors in a terminal."""
_UNTOLD = ("among_others", "trace")
"""What of a result is for checks and for views of its own."""


def run_to_json(result: RunResult, checked: CheckResult | None) -> dict[str, object]:
    """Return a result as plain data for `--json`."""
    told = {name: value for name, value in vars(result).items() if name not in _UNTOLD}
    told["outputs"] = {
        name: {"shape": array.shape, "dtype": str(array.dtype)}
        for name, array in result.outputs.items()
    }
    if checked is not None:
        told["check"] = {
            "passed": checked.passed,
            "tolerance": checked.tolerance,
            "tensors": checked.tensors,
            "note": checked.note,
            "inputs": checked.fed,
        }
    return told


def run_html(bundle: Bundle, result: RunResult, checked: CheckResult | None = None) -> str:
    """Return the whole page. Raises BundleError where the bundle's list of buckets cannot be
    understood."""
    manifest = bundle.manifest
    by = ", whose figures the estimates are by," if _are_estimated(result) else ""
    about = f"{manifest.model.file} for {manifest.target.name}{by} on {result.device}"
    _, *parts = run_parts(bundle, result, checked)
    return page(f"{manifest.name}, a run", *parts, about=about, by="run")


def run_parts(bundle: Bundle, result: RunResult, checked: CheckResult | None) -> Iterator[Part]:
    """Return what is shown of a run; `checked` are outputs, or every layer, beside the reference.
    Raises BundleError where the bundle's list of buckets cannot be understood."""
    names = ("load", "build", "first", "cold", "p50", "p90", "p99")
    times = [(name, show_ms(getattr(result.times, f"{name}_ms"))) for name in names]
    yield Title(text=bundle.manifest.name, detail=f"on {result.device}")
    yield Cards(figures=[*times, ("runs", str(result.times.runs))])
    yield Fields(title="Circumstances", pairs=[*_circumstances(result)])
    yield _regions(result.regions)
    if launches := _list_launches(bundle, result):
        yield from _launch_parts(launches, estimated=_are_estimated(result))
    else:
        yield _kernels(result)
    if checked is not None:
        yield from _errors(checked)
        return
    yield tabulate(
        result.outputs.items(),
        {
            "output": lambda one: one[0],
            "shape": lambda one: dims(one[1].shape),
            "dtype": lambda one: str(one[1].dtype),
        },
        title="Outputs",
    )
    if is_decoder(bundle.manifest):
        how = how_to_talk(bundle.path, bundle.manifest)
        yield Fields(pairs=[("note", f"this was one step; {how} generates tokens")])


def _circumstances(result: RunResult) -> Iterator[tuple[str, str]]:
    if result.driver:
        yield "driver", result.driver
    if result.memory_bytes is not None:
        yield "GPU memory", show_bytes(result.memory_bytes)
    if result.sustained is not None:
        yield "sustained", _tell_sustained(result.sustained)
    if result.programs is not None:
        yield "kernels", _tell_programs(result.programs)
    if result.launching is not None:
        yield "launching", _tell_launching(result.launching)
    yield from (("driver", str(hint)) for hint in result.hints)
    yield from (("GPU", str(state)) for state in result.gpu)
    yield from (("note", note) for note in result.notes)


def _tell_sustained(run: Sustained) -> str:
    return (
        f"p50 {show_ms(run.p50_ms)} ({show_ms(run.begin_p50_ms)} at the begin, "
        f"{show_ms(run.end_p50_ms)} at the end), {run.runs} runs in {run.seconds:.0f} s, "
        f"{run.pause_ms:.0f} ms between them"
    )


def _tell_programs(programs: ProgramReport) -> str:
    damaged = f", {programs.damaged} were kept in a form that is no use" if programs.damaged else ""
    return f"{programs.hits} of {programs.hits + programs.misses} came built{damaged}"


def _tell_launching(launching: LaunchReport) -> str:
    reason = f" ({launching.reason})" if launching.reason else ""
    return (
        f"{launching.launches} kernels by {launching.mode}{reason}: "
        f"{count_of(launching.api_calls, 'OpenCL call')} and {launching.host_ms:.3f} ms of the "
        "host a run"
    )


def _regions(regions: Sequence[RegionRun]) -> Table:
    def of_used(show: Callable[[RegionRun], Cell]) -> Callable[[RegionRun], Cell]:
        return lambda one: show(one) if one.used else None

    return tabulate(
        regions,
        {
            "region": lambda one: one.symbol,
            "runs by": lambda one: (
                f"{one.library} ({one.versions})" if one.used else "texture kernels"
            ),
            "operators": of_used(lambda one: one.operators),
            "copies": of_used(_tell_copies),
            "memory": of_used(lambda one: show_bytes(one.memory_bytes)),
            "CLML": lambda one: show_ms(one.clml_ms),
            "textures": lambda one: show_ms(one.textures_ms),
            "note": lambda one: one.tuning or one.reason,
        },
        title="Regions of OpenCL ML",
    )


def _tell_copies(region: RegionRun) -> str:
    """Tell copies as `4 + 2, 1 shared`: at the border, inside, and tensors that need none."""
    shared = f", {region.shared} shared" if region.shared else ""
    return f"{region.border_copies} + {region.inner_copies}{shared}"


@dataclass(frozen=True, kw_only=True)
class _Spent:
    """What a launch took, or a family of them, of which `known_ms` can be held against `floor_ms`:
    the least that the target's figures allow, None where they tell of none."""

    name: str
    family: str
    time_ms: float
    known_ms: float
    floor_ms: float | None
    launches: int = 1
    place: int = 0
    node: NodeTime


def _list_launches(bundle: Bundle, result: RunResult) -> list[_Spent]:
    families = {
        kernel.name: kernel.family
        for part in (open_buckets(bundle) if result.nodes else ())
        for kernel in part.manifest.kernels
    }
    return [
        _Spent(
            name=node.node,
            family=families.get(node.kernel, ""),
            time_ms=node.time_ms,
            known_ms=0.0 if node.of_roofline is None else node.time_ms,
            floor_ms=None if node.of_roofline is None else node.of_roofline * node.time_ms,
            place=place,
            node=node,
        )
        for place, node in enumerate(result.nodes, 1)
    ]


def _sum_family(launches: Sequence[_Spent]) -> _Spent:
    floors = [one.floor_ms for one in launches if one.floor_ms is not None]
    return replace(
        launches[0],
        name=launches[0].family or "unknown",
        time_ms=sum(one.time_ms for one in launches),
        known_ms=sum(one.known_ms for one in launches),
        floor_ms=sum(floors) if floors else None,
        launches=len(launches),
    )


def _are_estimated(result: RunResult) -> bool:
    """Return whether the target has figures: that of a computer has none."""
    return any(node.of_roofline is not None for node in result.nodes)


def _launch_parts(launches: Sequence[_Spent], *, estimated: bool) -> Iterator[Part]:
    whole_ms = sum(one.time_ms for one in launches)
    times: dict[str, Callable[[_Spent], Cell]] = {
        "time": lambda one: show_ms(one.time_ms),
        "share": lambda one: Share.of(one.time_ms, whole_ms),
    }
    note, title, order = "", "Measured", "Those first that take longest."
    if estimated:
        times["estimated at least"] = lambda one: show_ms(one.floor_ms) or Figure("unknown")
        times["times that"] = lambda one: figure(
            one.known_ms / one.floor_ms if one.floor_ms else None, ".3g"
        )
        note = ", and the dark part is the least that the target's figures allow"
        title = "Estimated and measured"
        order = "Those first that lose most above the least time that the target's figures allow."
    bars = [
        Bar(
            title=f"{one.place}. {one.name}: {show_ms(one.time_ms)}",
            height=one.time_ms,
            part=one.floor_ms or 0.0,
        )
        for one in launches
    ]
    longest = show_ms(max(one.time_ms for one in launches))
    drawn = draw_bars(bars, top=longest, what=f"times of {len(launches)} launches")
    note = f"Each launch in its order: as high as the time that it took{note}."
    yield Drawing(html=drawn, title="Launches", note=note)
    own = [[one for one in launches if one.family == f] for f in {one.family for one in launches}]
    yield tabulate(
        sorted(map(_sum_family, own), key=lambda one: -one.time_ms),
        {"family": lambda one: one.name, "launches": lambda one: one.launches, **times},
        title="Where the time goes",
    )
    yield tabulate(
        sorted(launches, key=lambda one: (one.floor_ms or 0.0) - one.time_ms),
        {
            "": lambda one: one.place,
            "node": lambda one: Name(one.name),
            **times,
            "GFLOPS": lambda one: figure(one.node.gflops, ".1f"),
            "GB/s": lambda one: figure(one.node.gb_per_s, ".1f"),
            "kernel": lambda one: one.node.kernel,
        },
        title=title,
        note=order,
        most=_SHOWN,
    )


def _kernels(result: RunResult) -> Table:
    """Return where launches cannot be told from each other, or were not profiled."""
    whole_ms = sum(kernel.time_ms for kernel in result.kernels)
    return tabulate(
        result.kernels,
        {
            "kernel": lambda one: one.name,
            "launches": lambda one: one.calls,
            "time": lambda one: show_ms(one.time_ms),
            "share": lambda one: Share.of(one.time_ms, whole_ms),
        },
        title="Kernels",
        most=_SHOWN,
    )


def _errors(checked: CheckResult) -> Iterator[Part]:
    """Tell the tensors in the order in which the model makes them; beyond the tolerance first."""
    bad = [tensor for tensor in checked.tensors if not tensor.passed]
    good = [tensor for tensor in checked.tensors if tensor.passed]
    yield _compare(bad, checked, "Errors beyond the tolerance")
    within = _compare(good, checked, "Errors")
    yield Fold(
        title=f"{count_of(len(good), 'tensor')} within the tolerance",
        parts=[within],
        is_open=not bad,
    )
    why = [(tensor.name, tensor.accepted_as or tensor.reason) for tensor in checked.tensors]
    fields = [("inputs", checked.fed), ("reference", checked.note)]
    yield Fields(pairs=[(name, said) for name, said in (*why, *fields) if said])
    verdict = "agrees" if checked.passed else "does not agree"
    told = f"{verdict} with the reference (tolerance {checked.tolerance:.0e})"
    if bad and good:
        told += f", {len(bad)} of {len(checked.tensors)} tensors are beyond it"
    yield Verdict(passed=checked.passed, text=told)


def _compare(tensors: Sequence[TensorCheck], among: CheckResult, title: str) -> Table:
    """List errors; beyond the tolerance those of the reference against itself, too."""
    errors = [tensor.range_error for tensor in among.tensors]
    largest = max((error for error in errors if error < float("inf")), default=0.0)
    own: dict[str, Callable[[TensorCheck], Cell]] = {
        "step": lambda one: figure(one.step, ".2e"),
        "reference's own": lambda one: figure(one.spread, ".2e"),
    }
    return tabulate(
        tensors,
        {
            "output": lambda one: Name(one.name),
            "shape": lambda one: dims(one.shape),
            "max error": lambda one: figure(one.max_error, ".2e"),
            "of the range": lambda one: Share(f"{one.range_error:.2e}", one.range_error, largest),
            "RMSE": lambda one: figure(one.rmse, ".2e"),
            "cosine": lambda one: figure(one.cosine, ".6f"),
            **(own if any(tensor.spread for tensor in among.tensors) else {}),
        },
        title=title,
        note="In the order of the model.",
    )


_HOST, _DEVICE = 1, 2
_MAIN = 1
_GAPS = 1000
"""The track of the device on which nothing runs, after those with kernels."""
_DIGITS = 3
"""Of a microsecond: nanoseconds, as devices count."""


def perfetto_json(bundle: Bundle, result: RunResult) -> str:
    """Return the trace of a run of `bundle`."""
    manifest = bundle.manifest
    about = {
        "bundle": manifest.name,
        "model": manifest.model.file,
        "target": manifest.target.name,
        "preset": manifest.options.preset,
        "device": result.device,
        "driver": result.driver,
        "notes": list(result.notes),
    }
    if result.trace.left_out:
        about["left_out"] = f"{result.trace.left_out} spans were too many to keep"
    events = [
        *_names(_HOST, f"host: {manifest.name}", {_MAIN: "runs"}),
        *_spans(result),
        *_readings(result),
        *_kernel_events(result),
    ]
    whole = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return printable_json(json.dumps(whole, ensure_ascii=False, indent=0)) + "\n"


def _names(process: int, name: str, tracks: dict[int, str]) -> Iterator[dict[str, Any]]:
    both = {"ph": "M", "pid": process}
    yield {**both, "tid": 0, "name": "process_name", "args": {"name": printable(name)}}
    for track, said in tracks.items():
        yield {**both, "tid": track, "name": "thread_name", "args": {"name": said}}
        # Viewers else sort tracks by when they begin.
        yield {**both, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}


def _event(
    process: int, track: int, name: str, start_us: float, end_us: float, **args: Any
) -> dict[str, Any]:
    """Return a span; both ends are rounded, so that what lies within another one still does."""
    start, end = round(start_us, _DIGITS), round(end_us, _DIGITS)
    event = {"name": printable(name), "cat": "adrenoc", "ph": "X", "pid": process, "tid": track}
    event |= {"ts": start, "dur": round(max(0.0, end - start), _DIGITS)}
    return event | ({"args": args} if args else {})


def _spans(result: RunResult) -> Iterator[dict[str, Any]]:
    for span in sorted(result.trace.spans, key=lambda one: (one.start_ms, -one.end_ms)):
        yield _event(_HOST, _MAIN, span.name, span.start_ms * 1000, span.end_ms * 1000)


def _readings(result: RunResult) -> Iterator[dict[str, Any]]:
    for reading in result.trace.readings:
        yield {
            "name": reading.name,
            "cat": "adrenoc",
            "ph": "C",
            "pid": _HOST,
            "tid": 0,
            "ts": round(reading.at_ms * 1000, _DIGITS),
            "args": {"value": reading.value},
        }


def _kernel_events(result: RunResult) -> Iterator[dict[str, Any]]:
    """Yield the launches of the profiled run, and where the device waited between them."""
    launches, profiled = result.trace.launches, result.trace.profiled
    if not launches or profiled is None:
        return
    shift_us = profiled.end_ms * 1000 - max(launch.end_ns for launch in launches) / 1000
    nodes: Sequence[Any] = result.nodes if len(result.nodes) == len(launches) else ()
    tracks = _find_tracks(launches)
    named = {track: "kernels" if track == _MAIN else f"kernels {track}" for track in set(tracks)}
    yield from _names(_DEVICE, f"device: {result.device}", {**named, _GAPS: "waits for the host"})
    for number, (launch, track) in enumerate(zip(launches, tracks, strict=True)):
        args: dict[str, Any] = {"kernel": launch.kernel, "launch": number}
        name = launch.kernel
        if nodes:
            name = nodes[number].node
            args |= {"GFLOPS": nodes[number].gflops, "GB/s": nodes[number].gb_per_s}
            if nodes[number].of_roofline is not None:
                args["of roofline"] = nodes[number].of_roofline
        start, end = (at / 1000 + shift_us for at in (launch.start_ns, launch.end_ns))
        yield _event(_DEVICE, track, name, start, end, **args)
    for start_ns, end_ns in _find_gaps(launches):
        ends = (at / 1000 + shift_us for at in (start_ns, end_ns))
        yield _event(_DEVICE, _GAPS, "gap", *ends)


def _find_tracks(launches: Sequence[TimedLaunch]) -> list[int]:
    """Return a track for each launch, so that those on one do not overlap."""
    ends: list[int] = []
    tracks = [0] * len(launches)
    for number in sorted(range(len(launches)), key=lambda n: launches[n].start_ns):
        launch = launches[number]
        free = next((t for t, end in enumerate(ends) if end <= launch.start_ns), len(ends))
        ends[free:] = [launch.end_ns, *ends[free + 1 :]]
        tracks[number] = free + _MAIN
    return tracks


def _find_gaps(launches: Sequence[TimedLaunch]) -> Iterator[tuple[int, int]]:
    busy_until: int | None = None
    for launch in sorted(launches, key=lambda one: one.start_ns):
        if busy_until is not None and launch.start_ns > busy_until:
            yield busy_until, launch.start_ns
        busy_until = max(launch.end_ns, busy_until or launch.end_ns)
