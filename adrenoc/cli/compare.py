"""`adrenoc compare`: two runs held against each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.cli.guarded import Command, wants_json
from adrenoc.cli.options import path_argument

if TYPE_CHECKING:
    from adrenoc.pages.run_diff import TimeChange

_TOP = 10


@click.command("compare", cls=Command)
@path_argument("before")
@path_argument("after")
def compare_command(before: Path, after: Path) -> None:
    """Compare two runs, of which BEFORE and AFTER hold what `adrenoc run --json` printed.

    Times with their spread; a verdict only where device, driver, clock and the runs allow one.
    """
    as_json = wants_json()
    from adrenoc.cli import console
    from adrenoc.pages.run_diff import EQUAL, FASTER, OPEN, compare_runs

    diff = compare_runs(before, after)
    if as_json:
        console.print_json(diff)
        return
    console.print_title(f"{before} → {after}")
    _print_times(diff.times)
    if len(diff.spread_ms) == 2:
        shown = [f"{console.ms(low)} to {console.ms(high)}" for low, high in diff.spread_ms]
        console.print_fields([("middle half", f"{shown[0]} before, {shown[1]} after")])
    if diff.kernels:
        console.blank()
        _print_times(diff.kernels[:_TOP])
        if len(diff.kernels) > _TOP:
            console.print_fields([(f"and {len(diff.kernels) - _TOP} more", "(--json lists all)")])
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
    console.print_table(columns, rows, right=columns[1:])
