"""Files for people and for other tools that `run` and `compile` write beside what they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from adrenoc.cli.guarded import OutputPath
from adrenoc.cli.options import Decorator, join_options, model_explorer_option

if TYPE_CHECKING:
    from adrenoc.base.reporter import Reporter
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import RunResult

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunViews:
    """Where the views of a run go; None is not asked for."""

    trace_file: Path | None
    explorer: Path | None
    page: Path | None

    @property
    def need_profile(self) -> bool:
        """Whether any of them shows times of kernels."""
        return any(path is not None for path in (self.trace_file, self.explorer, self.page))


def view_options() -> Decorator:
    """`--html`, `--perfetto` and `--model-explorer`."""
    return join_options(
        click.option(
            "--html",
            "page",
            type=OutputPath(is_file=True),
            metavar="FILE",
            help="Write a report: each launch beside the least time that it could take, the worst "
            "first, and the errors of --check or --check-layers.",
        ),
        click.option(
            "--perfetto",
            "trace_file",
            type=OutputPath(is_file=True),
            metavar="FILE",
            help="Write a trace for ui.perfetto.dev or chrome://tracing: load, runs, each kernel "
            "of --profile, clocks.",
        ),
        model_explorer_option("the measured time of each launch (with --profile)"),
    )


def take_views(options: dict[str, Any]) -> RunViews:
    """Take these options out of a command's."""
    return RunViews(**{name: options.pop(name) for name in ("trace_file", "explorer", "page")})


def write_run_views(
    bundle: Bundle, result: RunResult, views: RunViews, checked: CheckResult | None
) -> tuple[Path, ...]:
    """The page, the trace and the node data that were asked for; the files that were written.

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
    if views.explorer is not None:
        from adrenoc.pages.node_data import figures_of_run, write_node_data

        written += write_node_data(views.explorer, figures_of_run(result))
    return written


def trace_time(work: Callable[[Reporter], T], path: Path | None) -> Callable[[Reporter], T]:
    """The same work, after which a file at `path` tells what took its time, if one is wanted.

    Raises:
        OutputError: it cannot be written.
    """
    if path is None:
        return work

    def work_and_write(reporter: Reporter) -> T:
        from adrenoc.base.files.outputs import write_atomically
        from adrenoc.base.host.time_trace import record_sections

        with record_sections() as trace:
            made = work(reporter)
        write_atomically(path, trace.to_json())
        return made

    return work_and_write
