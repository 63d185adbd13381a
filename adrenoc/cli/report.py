"""`adrenoc device report`: what was measured on a device, as one file to send."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.guarded import Command, InputPath, OutputPath, wants_json


@click.command("report", cls=Command)
@click.argument("files", type=InputPath(), nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    default=Path("adrenoc-report.json"),
    show_default=True,
    metavar="FILE.json",
    help="The report; read it before you send it.",
)
def report_command(files: tuple[Path, ...], output: Path) -> None:
    """Collect what adrenoc measured on a device into one file, without anything of yours.

    FILEs are what calibrate, verify, run --json and fleet --json wrote.  Of each go figures,
    and the words of device and driver; names of models, tensors, files, computers and serial
    numbers stay here.
    """
    as_json = wants_json()
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.cli import console
    from adrenoc.pages.report.report import collect, report_text

    parts = collect(files)
    text = report_text(parts)
    write_atomically(output, text)
    if as_json:
        rows = [{"file": part.path, "kind": part.name, "bytes": part.size} for part in parts]
        console.print_json({"report": output, "bytes": len(text.encode()), "parts": rows})
        return
    console.print_title(str(output), console.size(len(text.encode())))
    console.print_table(
        ("file", "what it is", "sent of it"),
        [(str(part.path), part.name, console.size(part.size)) for part in parts],
        right=("sent of it",),
    )
    console.print_fields([("next", f"read {quote_word(output)}, then send it with your issue")])
