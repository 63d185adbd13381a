"""A run in terminals and on pages: times, launches beside the least they could take, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from adrenoc.base.text.html_page import page
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
    tabulate,
)
from adrenoc.base.text.spelling import Figure, count_of, dims, figure, show_bytes, show_ms
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.talk import how_to_talk, is_decoder
from adrenoc.device.profile import NodeTime
from adrenoc.device.result import LaunchReport, ProgramReport, RegionRun, RunResult, Sustained
from adrenoc.pages.bars import Bar, draw_bars

if TYPE_CHECKING:
    from adrenoc.device.compare import CheckResult, TensorCheck

T = TypeVar("T")
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
    """Return the whole page.

    Raises:
        BundleError: the bundle's list of buckets cannot be understood.
    """
    manifest = bundle.manifest
    by = ", whose figures the estimates are by," if _are_estimated(result) else ""
    about = f"{manifest.model.file} for {manifest.target.name}{by} on {result.device}"
    _, *parts = run_parts(bundle, result, checked)
    return page(f"{manifest.name}, a run", *parts, about=about, by="run")


def run_parts(bundle: Bundle, result: RunResult, checked: CheckResult | None) -> Iterator[Part]:
    """Return what is shown of a run; `checked` are outputs, or every layer, beside the reference.

    Raises:
        BundleError: the bundle's list of buckets cannot be understood.
    """
    memory = result.memory_bytes
    held = "" if memory is None else f", {show_bytes(memory)} of its memory"
    names = ("load", "build", "first", "cold", "p50", "p90", "p99")
    times = [(name, show_ms(getattr(result.times, f"{name}_ms"))) for name in names]
    kernels_ms = sum(kernel.time_ms for kernel in result.kernels)
    yield Title(text=bundle.manifest.name, detail=f"on {result.device}{held}")
    yield Cards(
        figures=[
            *times,
            ("runs", str(result.times.runs)),
            *([("GPU memory", show_bytes(memory))] if memory is not None else []),
            *([("kernels", show_ms(kernels_ms))] if result.kernels else []),
        ]
    )
    yield Fields(title="Circumstances", pairs=[*_circumstances(result)])
    yield _regions(result.regions)
    if steps := _steps(bundle, result):
        yield from (_timeline(steps), _families(steps), _worst(steps))
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


def _steps(bundle: Bundle, result: RunResult) -> tuple[_Step, ...]:
    families = {
        kernel.name: kernel.family
        for part in (open_buckets(bundle) if result.nodes else ())
        for kernel in part.manifest.kernels
    }
    return tuple(
        _Step(place=place, node=node, family=families.get(node.kernel, ""))
        for place, node in enumerate(result.nodes, 1)
    )


def _are_estimated(result: RunResult) -> bool:
    """Return whether the target has figures: that of a computer has none."""
    return any(node.of_roofline is not None for node in result.nodes)


def _sum_ms(steps: Sequence[_Step]) -> float:
    return sum(step.node.time_ms for step in steps)


def _timeline(steps: Sequence[_Step]) -> Drawing:
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
    if any(step.floor_ms is not None for step in steps):
        note += ", and the dark part is the least that the target's figures allow"
    drawn = draw_bars(bars, top=longest, what=f"times of {len(steps)} launches")
    return Drawing(html=drawn, title="Launches", note=f"{note}.")


def _families(steps: Sequence[_Step]) -> Table:
    own = [[step for step in steps if step.family == one] for one in {s.family for s in steps}]

    def compare(some: Sequence[_Step]) -> tuple[float, float | None]:
        known = [step for step in some if step.floor_ms is not None]
        return _sum_ms(known), sum(step.floor_ms or 0.0 for step in known) if known else None

    return tabulate(
        sorted(own, key=_sum_ms, reverse=True),
        {
            "family": lambda some: some[0].family or "unknown",
            "launches": len,
            **_measured(_sum_ms, _sum_ms(steps)),
            **_estimated(compare, steps),
        },
        title="Where the time goes",
    )


def _worst(steps: Sequence[_Step]) -> Table:
    title, note = "Measured", "Those first that take longest."

    def compare(step: _Step) -> tuple[float, float | None]:
        return step.node.time_ms, step.floor_ms

    estimated = _estimated(compare, steps)
    if estimated:
        title = "Estimated and measured"
        note = "Those first that lose most above the least time that the target's figures allow."
    return tabulate(
        sorted(steps, key=lambda step: -step.lost_ms),
        {
            "": lambda step: step.place,
            "node": lambda step: Name(step.node.node),
            **_measured(lambda step: step.node.time_ms, _sum_ms(steps)),
            **estimated,
            "GFLOPS": lambda step: figure(step.node.gflops, ".1f"),
            "GB/s": lambda step: figure(step.node.gb_per_s, ".1f"),
            "kernel": lambda step: step.node.kernel,
        },
        title=title,
        note=note,
        most=_SHOWN,
    )


def _measured(time_ms: Callable[[T], float], whole_ms: float) -> dict[str, Callable[[T], Cell]]:
    """Return the columns of what was measured."""
    return {
        "time": lambda one: show_ms(time_ms(one)),
        "share": lambda one: Share.of(time_ms(one), whole_ms),
    }


def _estimated(
    compare: Callable[[T], tuple[float, float | None]], steps: Sequence[_Step]
) -> dict[str, Callable[[T], Cell]]:
    """Return the columns of what was estimated, none where no launch was; `compare` gives the time
    that was measured, and the least that it could be."""
    if all(step.floor_ms is None for step in steps):
        return {}

    def tell_times(one: T) -> Cell:
        time_ms, floor_ms = compare(one)
        times = time_ms / floor_ms if floor_ms else None
        return figure(times, f".{2 if (times or 0) < 10 else 1 if (times or 0) < 100 else 0}f")

    return {
        "estimated at least": lambda one: show_ms(compare(one)[1]) or Figure("unknown"),
        "times that": tell_times,
    }


def _kernels(result: RunResult) -> Table:
    """Return where launches cannot be told from each other, or were not profiled."""
    return tabulate(
        result.kernels,
        {
            "kernel": lambda one: one.name,
            "launches": lambda one: one.calls,
            **_measured(lambda one: one.time_ms, sum(kernel.time_ms for kernel in result.kernels)),
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
