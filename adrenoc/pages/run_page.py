"""Show a run as one HTML file: times, launches beside the least that they could take, errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.text.html_page import (
    bar,
    cards,
    cell,
    fold,
    line,
    number,
    page,
    part,
    safe,
    section,
)
from adrenoc.base.text.spelling import count_of, dims, show_bytes, show_ms
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.compare import TensorCheck
from adrenoc.device.profile import NodeTime
from adrenoc.device.result import RunResult

_ESTIMATES = ("estimated at least", "times that")


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A launch as it was measured, and what the target's figures say of it."""

    place: int
    node: NodeTime
    family: str

    @property
    def floor_ms(self) -> float | None:
        share = self.node.of_roofline
        return None if share is None else share * self.node.time_ms

    @property
    def lost_ms(self) -> float:
        """Time above the floor; all of it where there is none."""
        return self.node.time_ms - (self.floor_ms or 0.0)


def run_html(bundle: Bundle, result: RunResult, checked: Sequence[TensorCheck] = ()) -> str:
    """Return the whole page; `checked` are outputs, or every layer, compared with the reference.

    Raises:
        BundleError: the bundle's list of buckets cannot be understood.
    """
    manifest = bundle.manifest
    steps = _steps(bundle, result)
    by = ", whose figures the estimates are by," if _are_estimated(steps) else ""
    about = f"{manifest.model.file} for {manifest.target.name}{by} on {result.device}"
    return page(
        f"{manifest.name}, a run",
        cards(_figures(result)),
        _circumstances(result),
        _timeline(steps),
        _families(steps),
        _worst(steps),
        "" if steps else _kernels(result),
        _errors(checked),
        about=about,
        by="run",
    )


def _steps(bundle: Bundle, result: RunResult) -> tuple[_Step, ...]:
    families = {
        kernel.name: kernel.family
        for part in open_buckets(bundle)
        for kernel in part.manifest.kernels
    }
    return tuple(
        _Step(place=place, node=node, family=families.get(node.kernel, ""))
        for place, node in enumerate(result.nodes, 1)
    )


def _are_estimated(steps: Sequence[_Step]) -> bool:
    """Return whether the target has figures: that of a computer has none."""
    return any(step.floor_ms is not None for step in steps)


def _figures(result: RunResult) -> list[tuple[str, str]]:
    times = result.times
    shown = [
        ("p50", show_ms(times.p50_ms)),
        ("p90", show_ms(times.p90_ms)),
        ("first run", show_ms(times.first_ms)),
        ("cold start", show_ms(times.cold_ms)),
    ]
    if result.memory_bytes is not None:
        shown.append(("GPU memory", show_bytes(result.memory_bytes)))
    if (launching := result.launching) is not None:
        shown += [
            ("launches", str(launching.launches)),
            ("OpenCL calls a run", str(launching.api_calls)),
            ("host a run", show_ms(launching.host_ms)),
        ]
    if result.kernels:
        shown.append(("kernels", show_ms(sum(kernel.time_ms for kernel in result.kernels))))
    return shown


def _circumstances(result: RunResult) -> str:
    facts = [("driver", result.driver)] if result.driver else []
    facts += [("GPU", str(state)) for state in result.gpu if state.is_known]
    facts += [("driver's hints", str(hint)) for hint in result.hints]
    if (launching := result.launching) is not None:
        reason = f": {launching.reason}" if launching.reason else ""
        facts.append(("launched by", f"{launching.mode}{reason}"))
    facts += [("note", note) for note in result.notes]
    return section("Circumstances", ("", ""), [line(cell(a), cell(b)) for a, b in facts])


def _timeline(steps: Sequence[_Step]) -> str:
    if not steps:
        return ""
    bars = [
        Bar(
            title=f"{step.place}. {step.node.node}: {show_ms(step.node.time_ms)}",
            height=step.node.time_ms,
            part=step.floor_ms or 0.0,
        )
        for step in steps
    ]
    longest = show_ms(max(step.node.time_ms for step in steps))
    note = "Each launch in its order: as high as the time that it took"
    if _are_estimated(steps):
        note += ", and the dark part is the least that the target's figures allow"
    drawn = draw_bars(bars, top=longest, what=f"times of {len(steps)} launches")
    return part("Launches", drawn, f"{note}.")


def _families(steps: Sequence[_Step]) -> str:
    whole_ms = sum(step.node.time_ms for step in steps)
    names = sorted({step.family for step in steps})
    sums = []
    for name in names:
        own = [step for step in steps if step.family == name]
        known = [step for step in own if step.floor_ms is not None]
        taken_ms = sum(step.node.time_ms for step in own)
        known_ms = sum(step.node.time_ms for step in known)
        floor_ms = sum(step.floor_ms or 0.0 for step in known)
        sums.append((taken_ms, name, len(own), floor_ms, known_ms))
    estimated = _are_estimated(steps)
    rows = [
        line(
            cell(name or "unknown"),
            number(str(count)),
            bar(taken_ms / whole_ms if whole_ms else 0.0, show_ms(taken_ms)),
            *(_estimate(known_ms, floor_ms if known_ms else None) if estimated else ()),
        )
        for taken_ms, name, count, floor_ms, known_ms in sorted(sums, reverse=True)
    ]
    columns = ("family", "launches", "measured", "", *(_ESTIMATES if estimated else ()))
    return section("Where the time goes", columns, rows)


def _worst(steps: Sequence[_Step]) -> str:
    whole_ms = sum(step.node.time_ms for step in steps)
    estimated = _are_estimated(steps)
    rows = [
        line(
            number(str(step.place)),
            cell(step.node.node),
            cell(step.family),
            bar(step.node.time_ms / whole_ms if whole_ms else 0.0, show_ms(step.node.time_ms)),
            *(_estimate(step.node.time_ms, step.floor_ms) if estimated else ()),
            number(f"{step.node.gflops:.1f}"),
            number(f"{step.node.gb_per_s:.1f}"),
            cell(step.node.kernel),
        )
        for step in sorted(steps, key=lambda step: -step.lost_ms)
    ]
    columns = (
        *("", "node", "family", "measured", "", *(_ESTIMATES if estimated else ())),
        *("GFLOPS", "GB/s", "kernel"),
    )
    if not estimated:
        return section("Measured", columns, rows, "Those first that take longest.")
    note = "Those first that lose most above the least time that the target's figures allow."
    return section("Estimated and measured", columns, rows, note)


def _estimate(time_ms: float, floor_ms: float | None) -> tuple[str, str]:
    """Return the cells below `_ESTIMATES`."""
    times = time_ms / floor_ms if floor_ms else 0.0
    ratio = f"{times:.{2 if times < 10 else 1 if times < 100 else 0}f}" if floor_ms else ""
    return number("unknown" if floor_ms is None else show_ms(floor_ms)), number(ratio)


def _kernels(result: RunResult) -> str:
    """Return where launches cannot be told from each other, or were not profiled."""
    whole_ms = sum(kernel.time_ms for kernel in result.kernels)
    rows = [
        line(
            cell(kernel.name),
            number(str(kernel.calls)),
            bar(kernel.time_ms / whole_ms if whole_ms else 0.0, show_ms(kernel.time_ms)),
        )
        for kernel in result.kernels
    ]
    return section("Kernels", ("kernel", "launches", "measured", ""), rows)


def _errors(checked: Sequence[TensorCheck]) -> str:
    """Return the tensors in the order in which the model makes them; beyond the tolerance first."""
    if not checked:
        return ""
    columns = ("tensor", "shape", "of the range", "", "max error", "RMSE", "cosine", "")
    bad = [_error(tensor, checked) for tensor in checked if not tensor.passed]
    good = [_error(tensor, checked) for tensor in checked if tensor.passed]
    shown = section("Errors beyond the tolerance", columns, bad)
    within = section("Errors", columns, good, "In the order of the model.")
    return shown + fold(
        f"{count_of(len(good), 'tensor')} within the tolerance", within, is_open=not bad
    )


def _error(tensor: TensorCheck, among: Sequence[TensorCheck]) -> str:
    largest = max((t.range_error for t in among if t.range_error < float("inf")), default=0.0)
    share = tensor.range_error / largest if largest else 0.0
    return line(
        cell(tensor.name),
        cell(dims(tensor.shape)),
        bar(share, f"{tensor.range_error:.2e}"),
        number(f"{tensor.max_error:.2e}"),
        number(f"{tensor.rmse:.2e}"),
        number(f"{tensor.cosine:.6f}"),
        cell(tensor.reason, "" if tensor.passed else "bad"),
    )


_WIDTH, _HEIGHT, _LEFT, _TOP = 1100, 180, 64, 12
_WIDEST_BAR = 24.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: the text that a pointer on it shows, its height, and that of its dark part."""

    title: str
    height: float
    part: float = 0.0


def draw_bars(bars: Sequence[Bar], *, top: str, what: str) -> str:
    """Return an SVG from zero up; `top` names the height of the tallest bar, `what` the whole.

    A height that is not finite is as tall as the tallest.
    """
    most = max((bar.height for bar in bars if math.isfinite(bar.height)), default=0.0) or 1.0
    wide = min((_WIDTH - _LEFT) / max(len(bars), 1), _WIDEST_BAR)
    drawn = "".join(
        _draw_bar(bar, _LEFT + wide * place, wide, most) for place, bar in enumerate(bars)
    )
    right = _LEFT + wide * len(bars)
    return (
        f"<svg class='drawn' viewBox='0 0 {_WIDTH} {_HEIGHT + 8}' width='100%' role='img' "
        f"aria-label='{safe(what)}'>"
        f"<text x='0' y='{_TOP + 8}'>{safe(top)}</text><text x='0' y='{_HEIGHT}'>0</text>"
        f"<line x1='{_LEFT}' y1='{_HEIGHT}' x2='{right:.1f}' y2='{_HEIGHT}'/>{drawn}</svg>\n"
    )


def _draw_bar(bar: Bar, x: float, wide: float, most: float) -> str:
    inner = max(wide * 0.85, 0.5)
    whole = min(bar.height, most) / most
    # A part cannot be more than the whole, as of a launch that was faster than thought possible.
    part = min(bar.part, bar.height, most) / most
    return (
        f"<g><title>{safe(bar.title)}</title>"
        f"{_rectangle('whole', x, inner, whole)}{_rectangle('part', x, inner, part)}</g>"
    )


def _rectangle(kind: str, x: float, wide: float, share: float) -> str:
    high = share * (_HEIGHT - _TOP)
    return (
        f"<rect class='{kind}' x='{x:.1f}' y='{_HEIGHT - high:.1f}' width='{wide:.1f}' "
        f"height='{high:.1f}'/>"
    )
