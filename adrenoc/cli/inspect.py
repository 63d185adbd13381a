"""`adrenoc inspect`: what is in a bundle; `diff`: what changed from one bundle or model to another;
`compare`: two runs held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import BundleError, PolicyError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.report import Fields, Part, Table, Title, Verdict, tabulate
from adrenoc.base.text.spelling import did_you_mean, printable, quote_word, show_growth, show_ms
from adrenoc.cli import console
from adrenoc.cli.console import say
from adrenoc.cli.firmware import inspect_if_firmware
from adrenoc.cli.guarded import Command, HeavyCommand, argument, give_options, option
from adrenoc.cli.model_params import PRESET, TARGET
from adrenoc.cli.options import html_option
from adrenoc.cli.write_views import refuse_firmware

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.bundle.gates import GrowthLimit
    from adrenoc.pages.run_diff import RunDiff, TimeChange
    from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class _Inspected:
    bundle: Path = argument()
    kernel: str | None = option(
        "--kernel NAME", help="Print the source of one kernel and nothing else."
    )


@click.command("inspect", cls=Command)
@give_options(_Inspected)
def inspect_command(given: _Inspected) -> None:
    """Show what is in BUNDLE.

    Inputs and outputs, target and options, kernels, memory, versions, digests; of a folder for a
    core its layers and what they take.
    """
    from adrenoc.bundle.buckets import read_editions, read_signatures
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.manifest import to_plain
    from adrenoc.pages.bundle_page import bundle_parts

    if given.kernel is None and inspect_if_firmware(given.bundle):
        return
    refuse_firmware(given.bundle)
    opened = open_bundle(given.bundle)
    if given.kernel is not None:
        say(printable(_source(opened, given.kernel), lines=True))
        return
    editions = read_editions(opened)
    more: dict[str, object] = {"editions": editions} if editions else {}
    if signatures := read_signatures(opened):
        more["signatures"] = signatures
    console.tell({**to_plain(opened.manifest), **more}, bundle_parts(opened))


def _source(bundle: Bundle, name: str) -> str:
    from adrenoc.bundle.buckets import name_parts

    # Of several parts with such a kernel, that of the largest shapes, and of any Adreno.
    parts = name_parts(bundle).values()
    sources = {kernel.name: kernel.source for part in parts for kernel in part.kernels()}
    if name not in sources:
        raise BundleError(
            f'{bundle.path} has no kernel "{name}"{did_you_mean(name, list(sources))}',
            hint=f"adrenoc inspect {quote_word(bundle.path)} lists its kernels",
        )
    return sources[name]


_TOP = 10
_MODELS = (".onnx", ".tflite")


@dataclass(frozen=True, kw_only=True)
class _Compared:
    before: Path = argument()
    after: Path = argument()
    targets: tuple[Target, ...] = option(
        "--device DEVICE",
        type=TARGET,
        default=("adreno",),
        help="What models are compiled for, as of compile; twice: BEFORE's, then AFTER's.",
    )
    presets: tuple[str, ...] = option(
        "--preset PRESET",
        type=PRESET,
        help="A named set of options for models; twice: BEFORE's, then AFTER's.  [default: mixed]",
    )
    gates: tuple[str, ...] = option(
        "--fail-on GATE[=TOLERANCE],...",
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
    from adrenoc.pages.bundle_diff import diff_bundles, diff_html, diff_parts

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
            write_atomically(html, diff_html(diff, old, new).encode())

    report = Fields(pairs=[("report", str(html))] if html is not None else [])
    error = None
    if diff.broken:
        error = PolicyError(
            f"{after} breaks {len(diff.broken)} of the gates that were given: "
            + "; ".join(diff.broken),
            hint=f"adrenoc diff {before} {after} --html page.html",
        )
    return console.tell(diff, diff_parts(diff), report, error=error)


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
        detail = f"for {target.name}, preset {options.preset}"
        with console.show_progress(path.name, detail) as reporter:
            make_bundle(path, target=target, options=options, output=output, reporter=reporter)
        yield replace(open_bundle(output), path=path)


@dataclass(frozen=True, kw_only=True)
class _Runs:
    before: Path = argument()
    after: Path = argument()


@click.command("compare", cls=Command)
@give_options(_Runs)
def compare_command(given: _Runs) -> int:
    """Compare two runs, of which BEFORE and AFTER hold what `adrenoc run --json` printed.

    Times with their spread; a verdict only where device, driver, clock and the runs allow one.
    """
    from adrenoc.pages.run_diff import compare_runs

    diff = compare_runs(given.before, given.after)

    return console.tell(diff, _list_parts(diff))


def _list_parts(diff: RunDiff) -> Iterator[Part]:
    from adrenoc.pages.run_diff import EQUAL, FASTER, OPEN

    yield Title(text=f"{diff.before} → {diff.after}")
    yield _compare_times(diff.times)
    if len(diff.spread_ms) == 2:
        shown = [f"{show_ms(low)} to {show_ms(high)}" for low, high in diff.spread_ms]
        yield Fields(pairs=[("middle half", f"{shown[0]} before, {shown[1]} after")])
    yield _compare_times(diff.kernels)
    if diff.verdict == OPEN:
        yield Fields(pairs=[("no verdict", diff.reason)])
        return
    said = {EQUAL: "no difference that these runs could tell"}.get(
        diff.verdict, f"{diff.verdict}: {diff.speedup:.3f} times as fast by the median"
    )
    yield Verdict(passed=diff.verdict in (EQUAL, FASTER), text=f"{said} ({diff.reason})")


def _compare_times(changes: Sequence[TimeChange]) -> Table:
    return tabulate(
        changes,
        {
            "": lambda one: one.name,
            "before": lambda one: show_ms(one.before_ms),
            "after": lambda one: show_ms(one.after_ms),
            "change": lambda one: show_growth(one.before_ms, one.after_ms),
        },
        most=_TOP,
    )
