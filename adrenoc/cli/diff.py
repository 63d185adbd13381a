"""`adrenoc diff`: what changed from one bundle, or model, to another.

`adrenoc compare`: two runs held against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import PolicyError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.base.reporter import SilentReporter
from adrenoc.base.text.spelling import show_growth
from adrenoc.cli import console
from adrenoc.cli.console import ConsoleReporter
from adrenoc.cli.guarded import Command, HeavyCommand, InputPath, wants_json
from adrenoc.cli.model_params import PresetParam, TargetParam
from adrenoc.cli.options import html_option
from adrenoc.cli.records import argument, give_options, option
from adrenoc.cli.write_views import refuse_firmware

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.bundle.gates import GrowthLimit
    from adrenoc.pages.bundle_diff import BundleDiff, ShapeDiff
    from adrenoc.pages.run_diff import RunDiff, TimeChange
    from adrenoc.target.target import Target


_TOP = 10
_MODELS = (".onnx", ".tflite")


@dataclass(frozen=True, kw_only=True)
class _Compared:
    before: Path = argument(type=InputPath())
    after: Path = argument(type=InputPath())
    targets: tuple[Target, ...] = option(
        "--device",
        type=TargetParam(),
        multiple=True,
        default=("adreno",),
        show_default=True,
        metavar="DEVICE",
        help="What models are compiled for, as of compile; twice: BEFORE's, then AFTER's.",
    )
    presets: tuple[str, ...] = option(
        "--preset",
        type=PresetParam(),
        multiple=True,
        metavar="PRESET",
        help="A named set of options for models; twice: BEFORE's, then AFTER's.  [default: mixed]",
    )
    gates: tuple[str, ...] = option(
        "--fail-on",
        multiple=True,
        metavar="GATE[=TOLERANCE],...",
        help="Fail where one grew: kernels, copies, launches, memory, size, time; by more than a "
        "tolerance, such as size=1%, memory=2MiB or time=30us.",
    )
    html: Path | None = html_option("Write a page with the kernels side by side")

    def __post_init__(self) -> None:
        if len(self.targets) > 2 or len(self.presets) > 2:
            raise click.UsageError("--device and --preset are of BEFORE and AFTER: two at most")


@click.command("diff", cls=HeavyCommand)
@give_options(_Compared)
def diff_command(given: _Compared) -> int:
    """Say what changed from BEFORE to AFTER: two bundles, or models, which are compiled for it.

    Kernels, nodes, precision, memory, launches, copies, estimated time, size, decisions.
    """
    from adrenoc.bundle.gates import parse_gates
    from adrenoc.pages.bundle_diff import diff_bundles

    before, after, html = given.before, given.after, given.html
    wanted: tuple[GrowthLimit, ...] = tuple(
        gate for text in given.gates for gate in parse_gates(text)
    )
    presets = given.presets or (None,)
    with ExitStack() as stack:
        old = stack.enter_context(_open(before, given.targets[0], presets[0]))
        new = stack.enter_context(_open(after, given.targets[-1], presets[-1]))
        diff = diff_bundles(old, new, gates=wanted)
        if html is not None:
            from adrenoc.pages.diff_page import diff_html

            write_atomically(html, diff_html(diff, old, new).encode())

    def show() -> None:
        _show(diff)
        if html is not None:
            console.print_fields([("report", str(html))])

    error = None
    if diff.broken:
        error = PolicyError(
            f"{after} breaks {len(diff.broken)} of the gates that were given: "
            + "; ".join(diff.broken),
            hint=f"adrenoc diff {before} {after} --html page.html",
        )
    return console.tell(diff, show, error=error)


@contextmanager
def _open(path: Path, target: Target, preset: str | None) -> Iterator[Bundle]:
    """Open the bundle at `path`, or what a model there is compiled to, while the block runs."""
    from adrenoc.bundle.bundle import open_bundle

    if path.suffix.lower() not in _MODELS or path.is_dir():
        refuse_firmware(path)
        yield open_bundle(path)
        return
    from adrenoc.compile.make import make_bundle
    from adrenoc.ir.options import resolve_options

    options = resolve_options(target, preset=preset, command_line={}).options
    with TemporaryFolder("bundle") as folder:
        output = folder / f"{path.stem}.adrenoc"
        wanted: dict[str, Any] = {"target": target, "options": options, "output": output}
        if wants_json():
            make_bundle(path, reporter=SilentReporter(), **wanted)
        else:
            with ConsoleReporter() as reporter:
                reporter.heading(path.name, f"for {target.name}, preset {options.preset}")
                make_bundle(path, reporter=reporter, **wanted)
        yield replace(open_bundle(output), path=path)


def _show(diff: BundleDiff) -> None:
    console.blank()
    console.print_title(f"{diff.before} → {diff.after}")
    if diff.same_bytes:
        console.print_verdict(True, "the two hold the same bytes")
        return
    for title, shapes in (("only before", diff.only_before), ("only after", diff.only_after)):
        if shapes:
            console.print_fields([(title, ", ".join(shapes))])
    for shape in diff.shapes:
        if len(diff.shapes) > 1:
            console.blank()
            console.print_title(f"shapes {shape.shapes}")
        _show_shape(shape)
    _print_some(
        ("setting", "before", "after"), [(c.subject, c.before, c.after) for c in diff.settings]
    )
    console.blank()


def _show_shape(diff: ShapeDiff) -> None:
    from adrenoc.pages.bundle_diff import NAME
    from adrenoc.pages.bundle_page import list_figures

    rows = [row[:4] for row in list_figures(diff.before, diff.after)]
    console.print_table(("", "before", "after", "change"), rows, right=("before", "after"))
    if diff.is_equal:
        console.print_verdict(True, "kernels, nodes, precision and decisions are the same")
        return
    real = [kernel for kernel in diff.kernels if kernel.kind != NAME]
    _print_some(
        ("kernel", "before", "after", "family", "lines", "what"),
        [
            (k.kind, k.before, k.after, k.family, f"+{k.lines[0]} -{k.lines[1]}", k.what)
            for k in real
        ],
    )
    _print_some(
        ("node", "before", "after", "time before", "time after"),
        [
            (
                console.short(node.node),
                *("" if form is None else f"{form.kernel}, {form.memory}" for form in forms),
                *(
                    "" if form is None or form.time_us is None else console.ms(form.time_us / 1000)
                    for form in forms
                ),
            )
            for node in diff.nodes
            for forms in ((node.before, node.after),)
        ],
    )
    _print_some(
        ("precision", "before", "after"),
        [(c.subject, c.before or "0", c.after or "0") for c in diff.precision],
    )
    _print_some(
        ("stage", "subject", "before", "after", "reason"),
        [(c.stage, console.short(c.subject), c.before, c.after, c.reason) for c in diff.decisions],
    )


def _print_some(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table; of a long one the first rows, and how many there are."""
    if not rows:
        return
    console.blank()
    console.print_table(columns, rows, most=_TOP, others="--html and --json list them")


@dataclass(frozen=True, kw_only=True)
class _Runs:
    before: Path = argument(type=InputPath())
    after: Path = argument(type=InputPath())


@click.command("compare", cls=Command)
@give_options(_Runs)
def compare_command(given: _Runs) -> int:
    """Compare two runs, of which BEFORE and AFTER hold what `adrenoc run --json` printed.

    Times with their spread; a verdict only where device, driver, clock and the runs allow one.
    """
    from adrenoc.pages.run_diff import compare_runs

    diff = compare_runs(given.before, given.after)

    def show() -> None:
        console.print_title(f"{given.before} → {given.after}")
        _show_runs(diff)

    return console.tell(diff, show)


def _show_runs(diff: RunDiff) -> None:
    from adrenoc.pages.run_diff import EQUAL, FASTER, OPEN

    _print_times(diff.times)
    if len(diff.spread_ms) == 2:
        shown = [f"{console.ms(low)} to {console.ms(high)}" for low, high in diff.spread_ms]
        console.print_fields([("middle half", f"{shown[0]} before, {shown[1]} after")])
    if diff.kernels:
        console.blank()
        _print_times(diff.kernels)
    console.blank()
    if diff.verdict == OPEN:
        console.print_fields([("no verdict", diff.reason)])
        return
    said = {EQUAL: "no difference that these runs could tell"}.get(
        diff.verdict, f"{diff.verdict}: {diff.speedup:.3f} times as fast by the median"
    )
    console.print_verdict(diff.verdict in (EQUAL, FASTER), f"{said} ({diff.reason})")


def _print_times(changes: tuple[TimeChange, ...]) -> None:
    rows = []
    for change in changes:
        times = (change.before_ms, change.after_ms)
        shown = ["" if time_ms is None else console.ms(time_ms) for time_ms in times]
        rows.append((change.name, *shown, show_growth(*times)))
    columns = ("", "before", "after", "change")
    console.print_table(columns, rows, right=columns[1:], most=_TOP)
