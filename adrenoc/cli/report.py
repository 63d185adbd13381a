"""`adrenoc device report`: what was measured on a device, as one file to send."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.guarded import Command, InputPath
from adrenoc.cli.options import output_option
from adrenoc.cli.records import argument, give_options


@dataclass(frozen=True, kw_only=True)
class _Reported:
    files: tuple[Path, ...] = argument(type=InputPath(), nargs=-1, required=True, metavar="FILE...")
    output: Path = output_option(
        "The report; read it before you send it.",
        default=Path("adrenoc-report.json"),
        show_default=True,
        metavar="FILE.json",
    )


@click.command("report", cls=Command)
@give_options(_Reported)
def report_command(given: _Reported) -> int:
    """Collect what adrenoc measured on a device into one file, without anything of yours.

    FILEs are what calibrate, verify, run --json and fleet --json wrote.  Of each go figures,
    and the words of device and driver; names of models, tensors, files, computers and serial
    numbers stay here.
    """
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.cli import console
    from adrenoc.pages.report.report import collect, report_text

    output, parts = given.output, collect(given.files)
    text = report_text(parts)
    write_atomically(output, text)

    def show() -> None:
        console.print_title(str(output), console.size(len(text.encode())))
        console.print_table(
            ("file", "what it is", "sent of it"),
            [(str(part.path), part.name, console.size(part.size)) for part in parts],
            right=("sent of it",),
        )
        console.print_fields([("next", f"read {quote_word(output)}, then send it with your issue")])

    rows = [{"file": part.path, "kind": part.name, "bytes": part.size} for part in parts]
    return console.tell({"report": output, "bytes": len(text.encode()), "parts": rows}, show)
