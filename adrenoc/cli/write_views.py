"""Files for other tools that `run` writes beside what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.result import RunResult


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
