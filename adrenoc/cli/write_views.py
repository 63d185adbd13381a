"""Files that `run` and `compile` write for people and other tools, and what `compile` made of a
model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import BundleError, DependencyError
from adrenoc.base.files.outputs import cache_errors, write_atomically
from adrenoc.base.files.read import cache_folder
from adrenoc.base.host.time_trace import record_sections
from adrenoc.base.host.variables import read_path
from adrenoc.base.text.report import Fields, Part, Table, Verdict
from adrenoc.base.text.spelling import (
    count_of,
    list_first,
    quote_word,
    show_bytes,
    show_ms,
    show_value,
)
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, OutputPath, argument, give_options, option
from adrenoc.cli.options import html_option, output_option
from adrenoc.pages.bundle_page import list_assumed, list_decisions

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.compile.make import Made
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import RunResult
    from adrenoc.ir.options import ResolvedOptions


@dataclass(frozen=True, kw_only=True)
class RunViews:
    """Where the views of a run go; None is not asked for."""

    trace_file: Path | None = option(
        "--perfetto FILE",
        type=OutputPath(is_file=True),
        help="Write a trace for ui.perfetto.dev or chrome://tracing: load, runs, each kernel of "
        "--profile, clocks.",
    )
    page: Path | None = html_option(
        "Write a report: each launch beside the least time that it could take, the worst first, "
        "and the errors of --check or --check-layers"
    )

    @property
    def need_profile(self) -> bool:
        """Return whether any of them shows times of kernels."""
        return self.trace_file is not None or self.page is not None


def write_run_views(
    bundle: Bundle, result: RunResult, views: RunViews, checked: CheckResult | None
) -> tuple[Path, ...]:
    """Write the page and the trace that were asked for; return the files that were written. Raises
    OutputError where one cannot be written."""
    written: tuple[Path, ...] = ()
    if views.page is not None:
        from adrenoc.pages.run_page import run_html

        write_atomically(views.page, run_html(bundle, result, checked))
        written += (views.page,)
    if views.trace_file is not None:
        from adrenoc.pages.run_page import perfetto_json

        write_atomically(views.trace_file, perfetto_json(bundle, result))
        written += (views.trace_file,)
    return written


@contextmanager
def trace_time() -> Iterator[None]:
    """Write into the file that ADRENOC_TIME_TRACE names what took the time of the block. Raises
    OutputError where it cannot be written."""
    path = read_path("ADRENOC_TIME_TRACE")
    if path is None:
        yield
        return
    OutputPath(is_file=True).refuse(path)
    with record_sections() as trace:
        yield
    write_atomically(path, trace.to_json())


@dataclass(frozen=True, kw_only=True)
class _Viewed:
    bundle: Path = argument()
    output: Path | None = output_option("Write the page there, and open nothing.")


@click.command("view", cls=Command)
@give_options(_Viewed)
def view_command(given: _Viewed) -> int:
    """Show the report of BUNDLE in the browser: a file, no server.

    Figures, what each launch costs, kernels with their texts, memory, decisions.
    """
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.pages.bundle_page import bundle_html

    refuse_firmware(given.bundle)
    opened = open_bundle(given.bundle)
    path = given.output or _kept_page(opened.manifest.name)
    write_atomically(path, bundle_html(opened).encode())
    shown = given.output is None and _show_in_browser(path)

    fields = [("report", str(path))]
    if given.output is None and not shown:
        fields.append(("", "no browser could be started here: open the file yourself"))
    return console.tell({"report": str(path), "opened": shown}, Fields(pairs=fields))


def _kept_page(name: str) -> Path:
    """Return where an unnamed page lies: a browser reads it after this process has ended."""
    folder = cache_folder() / "pages"
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.html"


def _show_in_browser(path: Path) -> bool:
    import webbrowser

    try:
        return webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        return False


def refuse_firmware(path: Path) -> None:
    """Refuse a folder of C, which is no bundle. Raises BundleError where it is one."""
    from adrenoc.firmware.mcu.folder import is_firmware

    if is_firmware(path):
        raise BundleError(
            f"{path} is a folder of C for a core; expected a bundle of OpenCL kernels",
            hint=f"adrenoc firmware run {quote_word(path)}, or adrenoc inspect {quote_word(path)}",
        )


def list_options(resolved: ResolvedOptions) -> Table:
    """List each option, its value, and what set it."""
    rows = tuple((name, show_value(value), how) for name, value, how in resolved.explain())
    return Table(columns=("option", "value", "set by"), rows=rows)


def made_parts(
    made: Made, *, explain: bool, more: Sequence[tuple[str, str]] = ()
) -> Iterator[Part]:
    """Tell where the bundle lies, what became of the model, and on request each choice."""
    if explain:
        yield list_decisions(made.decisions)
    cached = "from the cache, " if made.cached else ""
    said = f"{made.path}  {show_bytes(made.bytes)}, {cached}{show_ms(made.time_ms)}"
    yield Verdict(passed=True, text=said)
    yield Fields(pairs=[*_tell_made(made), *more, ("next", _next(made))])


def _tell_made(made: Made) -> Iterator[tuple[str, str]]:
    manifest = made.manifest
    statistics, memory = manifest.statistics, manifest.memory
    places = (
        f"{statistics.nodes_texture} in textures, {statistics.nodes_buffer} in buffers, "
        f"{statistics.nodes_cpu} on the CPU"
    )
    if manifest.regions:
        operators = sum(len(region.operators) for region in manifest.regions)
        places += f", {operators} in {count_of(len(manifest.regions), 'region')} of OpenCL ML"
    yield "operators", places
    yield (
        "kernels",
        f"{len(manifest.kernels)}; {statistics.pad_kernels} pad, {statistics.copy_kernels} copy, "
        f"{statistics.layout_kernels} layout",
    )
    yield (
        "memory",
        f"{show_bytes(memory.peak_bytes)}: {show_bytes(memory.param_bytes)} constants, "
        f"{show_bytes(memory.slot_bytes)} in {count_of(len(memory.slots), 'slot')}",
    )
    yield from list_assumed(made.decisions)
    states = manifest.options.values.get("states", ())
    if kept := [f"{past} = {present}" for past, present in states]:
        yield "states", f"{list_first(kept, between=', ')}; --state none keeps nothing"
    yield from list_unknown(manifest.model.format)
    yield "decisions", f"{len(made.decisions)} (--explain lists them)"


def _next(made: Made) -> str:
    from adrenoc.bundle.chat import how_to_talk, is_decoder

    if is_decoder(made.manifest):
        return how_to_talk(made.path, made.manifest)
    if made.manifest.target.host:
        return f"adrenoc run {quote_word(made.path)}"
    return f"adrenoc inspect {quote_word(made.path)}"


def list_unknown(kind: str) -> list[tuple[str, str]]:
    """List what cannot be known of such a model where what computes it is not installed."""
    from adrenoc.check.runtimes import reference_version

    try:
        reference_version(kind)
    except DependencyError as error:
        said = f"whether its numbers are the model's: {error.message}; {error.hint}"
        return [("not known", said)]
    return []
