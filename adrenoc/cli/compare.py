"""`adrenoc compare`: two runs held against each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.cli.guarded import Command, InputPath
from adrenoc.cli.records import argument, give_options

if TYPE_CHECKING:
    from adrenoc.pages.run_diff import RunDiff, TimeChange

_TOP = 10


@dataclass(frozen=True, kw_only=True)
class _Compared:
    before: Path = argument(type=InputPath())
    after: Path = argument(type=InputPath())


@click.command("compare", cls=Command)
@give_options(_Compared)
def compare_command(given: _Compared) -> int:
    """Compare two runs, of which BEFORE and AFTER hold what `adrenoc run --json` printed.

    Times with their spread; a verdict only where device, driver, clock and the runs allow one.
    """
    from adrenoc.cli import console
    from adrenoc.pages.run_diff import compare_runs

    diff = compare_runs(given.before, given.after)

    def show() -> None:
        console.print_title(f"{given.before} → {given.after}")
        _show(diff)

    return console.tell(diff, show)


def _show(diff: RunDiff) -> None:
    from adrenoc.cli import console
    from adrenoc.pages.run_diff import EQUAL, FASTER, OPEN

    _print_times(diff.times)
    if len(diff.spread_ms) == 2:
        shown = [f"{console.ms(low)} to {console.ms(high)}" for low, high in diff.spread_ms]
        console.print_fields([("middle half", f"{shown[0]} before, {shown[1]} after")])
    if diff.kernels:
        console.blank()
        _print_times(diff.kernels)
    console.blank()
    if diff.verdict == OPEN:
        console.print_fields([("no verdict", diff.reason)])
        return
    said = {EQUAL: "no difference that these runs could tell"}.get(
        diff.verdict, f"{diff.verdict}: {diff.speedup:.3f} times as fast by the median"
    )
    console.print_verdict(diff.verdict in (EQUAL, FASTER), f"{said} ({diff.reason})")


def _print_times(changes: tuple[TimeChange, ...]) -> None:
    from adrenoc.base.text.amounts import show_growth
    from adrenoc.cli import console

    rows = []
    for change in changes:
        times = (change.before_ms, change.after_ms)
        shown = ["" if time_ms is None else console.ms(time_ms) for time_ms in times]
        rows.append((change.name, *shown, show_growth(*times)))
    columns = ("", "before", "after", "change")
    console.print_table(columns, rows, right=columns[1:], most=_TOP)
