"""What people see: progress on stderr, results on stdout.

Rich is imported where something is drawn, in `tables` and in `show_tune`: not by every command.
Every text comes from `show`, which escapes what a terminal would act on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.read import no_color
from adrenoc.base.reporter import Reporter, SilentReporter
from adrenoc.base.text.report import (
    Cards,
    Drawing,
    Fields,
    Fold,
    Part,
    Table,
    Title,
    Verdict,
)
from adrenoc.base.text.spelling import Figure, printable, show_ms
from adrenoc.cli.guarded import wants_json
from adrenoc.cli.terminal import ForgivingStream, say, say_json, written

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

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
    """A Reporter that draws one line a stage, with a bar below while work goes on.

    Use it as a context manager, so that the bar ends whatever happens.  `verbose`: the parts of
    stages have lines too.
    """

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
