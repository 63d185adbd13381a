"""`--resume`: a command that takes long goes on where it was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.guarded import OutputPath

if TYPE_CHECKING:
    from adrenoc.base.files.resume import Resume


def resume_option() -> Callable[[Any], Any]:
    """`--resume FILE`, as `resume_file`: a path or None."""
    return click.option(
        "--resume",
        "resume_file",
        type=OutputPath(is_file=True),
        metavar="FILE",
        help="Keep there what was done so far, and go on from it if the command was killed; FILE "
        "is removed at the end.",
    )


def open_resume(path: Path | None) -> Resume:
    """What such a file has.

    Raises:
        OutputError: it cannot be written, is something else, or another command's now.
    """
    from adrenoc.base.files.resume import Resume

    return Resume(path)


def finish_resumed(resume: Resume, pieces: str, *, quiet: bool) -> None:
    """Tell what was done before, and remove the file."""
    from adrenoc.cli import console

    if resume.taken:
        told = f"{resume.taken} {pieces} are of before the command was interrupted"
        if quiet:
            console.print_progress("resumed", told)
        else:
            console.print_fields([("resumed", told)])
    resume.finish()
