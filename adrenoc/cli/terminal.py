"""The one room through which all text goes to standard output and standard error.

What others named is shown escaped (`adrenoc.base.text.spelling`).  A full or closed standard
output is an error of its own; trouble with standard error is nobody's: there is no place left to
tell of it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import click

from adrenoc.base.files.outputs import output_error
from adrenoc.base.files.read import no_color
from adrenoc.base.text.spelling import printable, printable_json


def prepare_streams() -> None:
    """Let text be written whatever the locale is, and to nothing where a stream is closed."""
    for number in range(3):
        # A file that is opened later must not become standard output.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
        with suppress(AttributeError, OSError):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def say(text: str, *, end: str = "\n") -> None:
    """Print lines that have been made printable to standard output. Raises OutputError where it is
    full."""
    with written():
        click.echo(text + end, nl=False)


def say_json(value: Any, *, indent: int | None = 2) -> None:
    """Print plain data as JSON to standard output. Raises OutputError where it is full."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    ascii_only = not encoding.lower().replace("_", "-").startswith("utf")
    say(printable_json(json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=str)))


def say_error(message: str, hint: str) -> None:
    """Say to people what went wrong, and what to try."""
    color = False if no_color() else None
    for title, hue, text in (("error: ", "red", message), ("  try: ", "cyan", hint)):
        # Further lines are indented: a name cannot look like a message of its own.
        shown = printable(text, lines=True).replace("\n", "\n    ")
        with suppress(OSError):
            click.echo(click.style(title, fg=hue, bold=True) + shown, err=True, color=color)


def say_aside(text: str) -> None:
    """Print lines on standard error."""
    with suppress(OSError):
        click.echo(printable(text, lines=True), err=True)


class written:  # noqa: N801
    """A block that writes to standard output: what the system says of that is an OutputError."""

    def __enter__(self) -> None:
        """Prepare nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Turn an error of the system into one of ours; a reader that left is not one."""
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            discard_output()
            raise output_error(Path("standard output"), error) from error


def flush_output() -> None:
    """Write what is still kept of standard output. Raises OutputError where it is full,
    BrokenPipeError where its reader has left."""
    with written():
        sys.stdout.flush()


def discard_output() -> None:
    """Let whatever is still kept of standard output go nowhere, at exit too."""
    with suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


class ForgivingStream:
    """Standard error as rich draws on it: a full one is written to no more, and that is all."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with suppress(OSError):
            self._stream.flush()
