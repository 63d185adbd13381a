"""Files for other tools that `run` and `compile` write beside what they show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.result import RunResult
    from adrenoc.reporter import Reporter

T = TypeVar("T")


def write_run_views(
    bundle: Bundle, result: RunResult, trace_file: Path | None, explorer: Path | None
) -> tuple[Path, ...]:
    """The trace and the node data that were asked for; the files that were written.

    Raises:
        OutputError: one cannot be written.
    """
    written: tuple[Path, ...] = ()
    if trace_file is not None:
        from adrenoc.files.outputs import write_atomically
        from adrenoc.views.perfetto import perfetto_json

        write_atomically(trace_file, perfetto_json(bundle, result))
        written = (trace_file,)
    if explorer is not None:
        from adrenoc.views.node_data import figures_of_run, write_node_data

        written += write_node_data(explorer, figures_of_run(result))
    return written


def trace_time(work: Callable[[Reporter], T], path: Path | None) -> Callable[[Reporter], T]:
    """The same work, after which a file at `path` tells what took its time, if one is wanted.

    Raises:
        OutputError: it cannot be written.
    """
    if path is None:
        return work

    def work_and_write(reporter: Reporter) -> T:
        from adrenoc.files.outputs import write_atomically
        from adrenoc.host.time_trace import record_sections

        with record_sections() as trace:
            made = work(reporter)
        write_atomically(path, trace.to_json())
        return made

    return work_and_write
