"""Files for people and for other tools that `run` and `compile` write beside what they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from adrenoc.cli.guarded import OutputPath
from adrenoc.cli.options import html_option
from adrenoc.cli.records import option

if TYPE_CHECKING:
    from adrenoc.base.reporter import Reporter
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import RunResult

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunViews:
    """Where the views of a run go; None is not asked for."""

    trace_file: Path | None = option(
        "--perfetto",
        type=OutputPath(is_file=True),
        metavar="FILE",
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
    """Write the page and the trace that were asked for; return the files that were written.

    Raises:
        OutputError: one cannot be written.
    """
    from adrenoc.base.files.outputs import write_atomically

    written: tuple[Path, ...] = ()
    if views.page is not None:
        from adrenoc.pages.run_page import run_html

        tensors = () if checked is None else checked.tensors
        write_atomically(views.page, run_html(bundle, result, tensors))
        written += (views.page,)
    if views.trace_file is not None:
        from adrenoc.pages.perfetto import perfetto_json

        write_atomically(views.trace_file, perfetto_json(bundle, result))
        written += (views.trace_file,)
    return written


def trace_time(work: Callable[[Reporter], T]) -> Callable[[Reporter], T]:
    """Do the work, then write into the file that ADRENOC_TIME_TRACE names what took its time.

    Raises:
        OutputError: it cannot be written.
    """
    from adrenoc.base.host.variables import read_path

    path = read_path("ADRENOC_TIME_TRACE")
    if path is None:
        return work
    OutputPath(is_file=True).refuse(path)

    def work_and_write(reporter: Reporter) -> T:
        from adrenoc.base.files.outputs import write_atomically
        from adrenoc.base.host.time_trace import record_sections

        with record_sections() as trace:
            made = work(reporter)
        write_atomically(path, trace.to_json())
        return made

    return work_and_write
