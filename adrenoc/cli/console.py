"""What people see: progress on stderr, results on stdout, all of it through one room.

Rich is imported where something is drawn, in `tables` and in `show_tune`: not by every command.
Every text comes from `show`, which escapes what a terminal would act on. A full or closed standard
output is an error of its own; trouble with standard error is nobody's: there is no place left to
tell of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import click

from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.outputs import output_error
from adrenoc.base.files.read import no_color
from adrenoc.base.reporter import Reporter, SilentReporter
from adrenoc.base.text.report import Cards, Drawing, Fields, Fold, Part, Table, Title, Verdict
from adrenoc.base.text.spelling import Figure, printable, printable_json, show_ms
from adrenoc.cli.guarded import wants_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


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


# Wide enough that nothing wraps in a pipe or a file.
_PIPE_WIDTH = 160
_STAGE_COLUMNS, _TIME_COLUMNS, _LEAST_NOTE = 26, 9, 8
"""Of a line about a stage; in a narrow terminal it has no note."""
_BAR_COLUMNS = 24


def show(text: object, style: str = "") -> Text:
    """Return a text that a terminal only shows, whatever it holds."""
    from adrenoc.cli import tables

    return tables.show(text, style)


def _join(*parts: Text | str | tuple[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts)


def _console(*, err: bool) -> Console:
    from rich.console import Console

    stream: Any = ForgivingStream(sys.stderr) if err else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, width=width, no_color=no_color(), highlight=False)


def _print(*what: RenderableType) -> None:
    """Print to stdout, in a pipe or file without the spaces that pad a table's lines."""
    console = _console(err=False)
    if console.is_terminal:
        with written():
            console.print(*what)
        return
    with console.capture() as capture:
        console.print(*what)
    say("\n".join(line.rstrip() for line in capture.get().split("\n")[:-1]))


def error_console() -> Console:
    """Return the console of stderr, for what is drawn while work goes on."""
    return _console(err=True)


class ConsoleReporter:
    """A Reporter that draws one line a stage, with a bar below while work goes on. Use it as a
    context manager, so that the bar ends whatever happens. `verbose`: the parts of stages have
    lines too."""

    def __init__(self, *, verbose: bool = False) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console, self._verbose = _console(err=True), verbose
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("[dim]{task.description}[/]"),
            BarColumn(bar_width=_BAR_COLUMNS),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._work = self._bar.add_task("starting", total=None)

    def __enter__(self) -> ConsoleReporter:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()
            self._console.print()

    def heading(self, text: str, detail: str) -> None:
        """Print the resolved plan, before long work."""
        self._console.print(_join(show(text, "bold"), "  ", show(detail, "dim")))

    def working(self, what: str, done: int, total: int) -> None:
        """Move the bar."""
        from rich.markup import escape

        self._bar.update(self._work, description=escape(what), completed=done, total=total)

    def part(self, name: str, time_ms: float, note: str) -> None:
        """Print one line, further in, if all are asked for."""
        if self._verbose:
            self._draw("    ", name, time_ms, note)

    def stage(self, name: str, time_ms: float, note: str) -> None:
        """Print one line: name, time, note."""
        self._draw("  ✓ ", name, time_ms, note)

    def _draw(self, sign: str, name: str, time_ms: float, note: str) -> None:
        from rich.table import Table as Grid

        line = Grid.grid(padding=(0, 2))
        line.add_column(width=_STAGE_COLUMNS, no_wrap=True)
        line.add_column(width=_TIME_COLUMNS, justify="right", no_wrap=True)
        room = self._console.width - _STAGE_COLUMNS - _TIME_COLUMNS - 4
        note = note if room >= _LEAST_NOTE else ""
        line.add_column(overflow="ellipsis", no_wrap=True, max_width=max(1, room))
        line.add_row(
            _join((sign, "green"), show(name)), show(show_ms(time_ms), "cyan"), show(note, "dim")
        )
        self._console.print(line)

    def note(self, text: str) -> None:
        """Print a dim line."""
        self._console.print(show(f"    {text}", "dim"))

    def warn(self, text: str) -> None:
        """Print a yellow line."""
        self._console.print(_join(("  ! ", "bold yellow"), show(text, "yellow")))


@contextmanager
def show_progress(
    title: str = "", detail: str = "", *, verbose: bool = False
) -> Iterator[Reporter]:
    """Draw how the block comes on, below a title; nothing where JSON is asked for."""
    if wants_json():
        yield SilentReporter()
        return
    with ConsoleReporter(verbose=verbose) as reporter:
        if title:
            reporter.heading(title, detail)
        yield reporter


def tell(result: Any, *parts: Part | Iterable[Part], error: AdrenocError | None = None) -> int:
    """Print a result as JSON where that is asked for, else its parts; return the exit code. Raises
    `error`, where the result is shown to people."""
    if wants_json():
        from adrenoc.bundle.manifest import to_plain

        say_json(to_plain(result))
        return 0 if error is None else error.exit_code
    draw(*parts)
    if error is not None:
        raise error
    return 0


def draw(*parts: Part | Iterable[Part]) -> None:
    """Print parts of a result; tables stand free of what is above and below, but for titles."""
    before: Part | None = None
    for part in _list_drawn(parts):
        stands_free = isinstance(part, Title | Table) or isinstance(before, Cards | Table)
        if stands_free and before is not None and not isinstance(before, Title):
            blank()
        _draw(part)
        before = part


def _list_drawn(parts: Iterable[Part | Iterable[Part]]) -> Iterator[Part]:
    """List what a terminal shows."""
    for part in parts:
        if isinstance(part, Fold):
            yield from _list_drawn(part.parts) if part.is_open else ()
        elif isinstance(part, Table):
            yield from [part] if part.rows else []
        elif isinstance(part, Fields):
            yield from [part] if part.pairs else []
        elif isinstance(part, Iterable):
            yield from _list_drawn(part)
        elif not isinstance(part, Drawing):
            yield part


def _draw(part: Part) -> None:
    if isinstance(part, Title):
        _print(_join(show(part.text, "bold"), "  ", show(part.detail, "dim")))
    elif isinstance(part, Verdict):
        sign = ("✓ ", "bold green") if part.passed else ("✗ ", "bold red")
        _print(_join(sign, show(part.text)))
    elif isinstance(part, Fields):
        _print_fields(part.pairs)
    elif isinstance(part, Cards):
        names, values = zip(*part.figures, strict=True)
        _print_table(Table(columns=names, rows=(tuple(map(Figure, values)),)))
    elif isinstance(part, Table):
        _print_table(part)


def _print_fields(pairs: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(show(f"  {name}", "dim"), show(value))
    _print(grid)


def _print_table(shown: Table) -> None:
    """Print a table, or a list where it is too narrow; of a long one the first rows."""
    from adrenoc.cli.tables import make_table

    console = _console(err=False)
    _print(make_table(shown, width=console.width, may_list=console.is_terminal))
    if shown.most is not None and (left := len(shown.rows) - shown.most) > 0:
        _print_fields([(f"and {left} more", f"({shown.others})")])
    if shown.note:
        _print(show(f"  {shown.note}", "dim"))


def print_piece(text: str) -> None:
    """Print a part of a line at once, as what is generated comes."""
    say(printable(text, lines=True), end="")


def print_step(name: str, told: str) -> None:
    """Print a line of work that goes on; with --json on stderr, where somebody looks at it."""
    if not wants_json():
        draw(Fields(pairs=[(name, told)]))
    elif (console := error_console()).is_terminal:
        console.print(_join(show(f"  {name}  ", "dim"), show(told)))


def blank() -> None:
    """Print an empty line."""
    _print()
