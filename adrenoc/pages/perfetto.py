"""A run as a trace that Perfetto and Chrome open: JSON of trace events.

Two processes: the host (what it did when, by its own clock) and the device (each kernel of the
profiled run, by the device's clock).  The two clocks have no common zero: the device's last kernel
is set to end where the host's wait for it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from adrenoc.base.text.spelling import printable, printable_json
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.profile import TimedLaunch
from adrenoc.device.result import RunResult

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
        *_kernels(result),
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


def _kernels(result: RunResult) -> Iterator[dict[str, Any]]:
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
