"""Files for people and for other tools that `run` and `compile` write beside what they show.

`adrenoc view`: the report of a bundle in the browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import BundleError
from adrenoc.base.files.outputs import cache_errors, write_atomically
from adrenoc.base.files.read import cache_folder
from adrenoc.base.host.time_trace import record_sections
from adrenoc.base.host.variables import read_path
from adrenoc.base.text.report import Fields
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, OutputPath
from adrenoc.cli.options import html_option, output_option
from adrenoc.cli.records import argument, give_options, option

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import RunResult


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
        from adrenoc.pages.perfetto import perfetto_json

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
