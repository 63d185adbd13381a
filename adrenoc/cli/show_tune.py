"""How a tuner at work is drawn: a live table for people, a stream of JSON lines for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar

from adrenoc.base.reporter import SilentReporter
from adrenoc.base.text.report import Fields, Part, Table, Verdict, tabulate
from adrenoc.base.text.spelling import count_of, figure, quote_word, show_ms, show_us
from adrenoc.cli import console
from adrenoc.cli.console import say_json
from adrenoc.cli.tables import make_table

if TYPE_CHECKING:
    from adrenoc.lab.tune.search import KernelProgress, TuneObserver, TuneProgress

_SHOWN_KERNELS = 12
_SHOWN_EVENTS = 5
_QUIET_S = 10.0
_REFRESH_S = 0.5


class EventReporter(SilentReporter):
    """A Reporter that hands remarks of planning to an observer."""

    def __init__(self, observer: TuneObserver) -> None:
        self._observer = observer

    def note(self, text: str) -> None:
        """Hand on."""
        self._observer.event(text)

    def warn(self, text: str) -> None:
        """Hand on."""
        self._observer.event(f"warning: {text}")


class JsonObserver:
    """One JSON object a line on stdout."""

    def __init__(self) -> None:
        self._last = ""

    def progress(self, progress: TuneProgress) -> None:
        """Print a line where something was measured, or a device came or went."""
        plain = asdict(progress)
        counts = (progress.references, progress.trials, progress.devices, progress.failed)
        changed = json.dumps([progress.phase, *counts])
        if changed != self._last:
            self._last = changed
            del plain["kernels"]
            say_json({"event": "progress", **plain}, indent=None)

    def event(self, text: str) -> None:
        """Print a line."""
        say_json({"event": "remark", "text": text}, indent=None)

    def result(self, progress: TuneProgress, log: Path) -> None:
        """Print the last line."""
        say_json({"event": "result", "log": str(log), **asdict(progress)}, indent=None)


class LiveObserver:
    """A table that is drawn anew, where stderr is a terminal; else a line now and then."""

    def __init__(self, model: str, target: str) -> None:
        self._title = f"tune {model} for {target}"
        self._console = console.error_console()
        self._events: list[str] = []
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._drawn = 0.0

    def __enter__(self) -> LiveObserver:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, text: str) -> None:
        """Show what happened as a line, below the table where there is one."""
        self._events = [*self._events, text][-_SHOWN_EVENTS:]
        if not self._console.is_terminal:
            self._console.print(console.show(f"  {text}", "dim"))

    def progress(self, progress: TuneProgress) -> None:
        """Draw what is new."""
        now = time.monotonic()
        quiet_s = _REFRESH_S if self._console.is_terminal else _QUIET_S
        if now - self._drawn < quiet_s:
            return
        self._drawn = now
        if self._console.is_terminal:
            self._live.update(self._drawing(progress))
        else:
            self._console.print(console.show(f"  {headline(progress)}"))

    def _drawing(self, progress: TuneProgress) -> Group:
        bar = ProgressBar(total=max(1, progress.wanted), completed=progress.trials, width=50)
        return Group(
            console.show(self._title, "bold"),
            bar,
            console.show(headline(progress)),
            make_table(
                _list_kernels(progress.kernels),
                width=self._console.width,
                may_list=False,  # which would be longer than a terminal is high
            ),
            *(console.show(f"  {event}", "yellow") for event in self._events),
        )


def headline(progress: TuneProgress) -> str:
    """Tell in one line how far, how fast and how good it is."""
    left = f", {show_ms(progress.left_s * 1000)} left" if progress.left_s else ""
    return (
        f"{progress.phase}: {progress.trials} of {progress.wanted} trials "
        f"({progress.failed} failed, {progress.resumed} from the log), "
        f"{count_of(progress.devices, 'device')}, {progress.trials_per_s:.2f} trials/s"
        f"{left}, {progress.gain:.2f} x as fast as untuned"
    )


def _list_kernels(kernels: Iterable[KernelProgress]) -> Table:
    """List the kernels in which most time is spent."""
    longest = sorted(kernels, key=lambda k: -k.calls * k.untuned_us)[:_SHOWN_KERNELS]
    return tabulate(
        longest,
        {
            "kernel": lambda one: one.title[:60],
            "calls": lambda one: one.calls,
            "trials": lambda one: one.trials,
            "failed": lambda one: one.failed or None,
            "untuned": lambda one: show_us(one.untuned_us or None),
            "best": lambda one: show_us(one.best_us or None),
            "gain": lambda one: (
                figure(one.untuned_us / one.best_us or None, ".2f", " x") if one.best_us > 0 else ""
            ),
        },
    )


def list_result(result: TuneProgress, command: str, log: Path) -> list[Part]:
    """Return the end of a tuning; `command` compiles the same kernels."""
    after = f"{command} --tuning-log {quote_word(log)}"
    return [
        Verdict(passed=True, text=headline(result)),
        _list_kernels(result.kernels),
        Fields(pairs=[("log", str(log)), ("next", after)]),
    ]
