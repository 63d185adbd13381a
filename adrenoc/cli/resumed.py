"""`--resume`: a command that takes long goes on where it was killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.cli.guarded import OutputPath, wants_json
from adrenoc.cli.records import option

if TYPE_CHECKING:
    from adrenoc.base.files.resume import Resume


def resume_option() -> Any:
    """Declare a field as where a command keeps what it has done."""
    return option(
        "--resume",
        type=OutputPath(is_file=True),
        metavar="FILE",
        help="Keep there what was done so far, and go on from it if the command was killed; FILE "
        "is removed at the end.",
    )


def open_resume(path: Path | None) -> Resume:
    """Open what such a file has.

    Raises:
        OutputError: it cannot be written, is something else, or another command's now.
    """
    from adrenoc.base.files.resume import Resume

    return Resume(path)


def finish_resumed(resume: Resume, pieces: str) -> None:
    """Tell what was done before, and remove the file."""
    from adrenoc.cli import console

    if resume.taken:
        told = f"{resume.taken} {pieces} are of before the command was interrupted"
        if wants_json():
            console.print_progress("resumed", told)
        else:
            console.print_fields([("resumed", told)])
    resume.finish()
