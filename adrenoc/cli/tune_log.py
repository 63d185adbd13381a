"""`adrenoc tune log`: look at tuning logs, merge, prune, compare and export them."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.guarded import Group, InputPath, OutputPath


@click.group("log", cls=Group)
def tune_log_command() -> None:
    """Work on logs of `adrenoc tune run`."""


_OUTPUT = click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    required=True,
    metavar="FILE",
    help="The log to write; it may be one that is read.",
)


@tune_log_command.command("show")
@click.argument("log", type=InputPath())
def show_command(log: Path) -> int:
    """Say what LOG holds, by GPU."""
    from adrenoc.cli import console
    from adrenoc.ir.tuning_log import read_log
    from adrenoc.lab.tune.merge import summaries

    rows = summaries(read_log(log))

    def show() -> None:
        console.print_title(str(log))
        console.print_table(
            ("GPU", "kernels", "best is untuned", "trials", "failed", "devices"),
            [
                (r.gpu, str(r.kernels), str(r.untuned), str(r.trials), str(r.failed), s)
                for r in rows
                for s in (", ".join(r.devices) or "none",)
            ],
            right=("kernels", "best is untuned", "trials", "failed"),
        )

    return console.tell(rows, show)


@tune_log_command.command("merge")
@click.argument("logs", type=InputPath(replaced=True), nargs=-1, required=True)
@_OUTPUT
def merge_command(logs: tuple[Path, ...], output: Path) -> None:
    """Write all trials of LOGS into one log, equal ones once."""
    from adrenoc.ir.tuning_log import read_log
    from adrenoc.lab.tune.merge import merge, write_log

    read = [read_log(path) for path in logs]
    merged = merge(read)
    write_log(output, merged)
    _say(output, sum(len(log) for log in read), len(merged))


@tune_log_command.command("prune")
@click.argument("log", type=InputPath(replaced=True))
@_OUTPUT
def prune_command(log: Path, output: Path) -> None:
    """Keep of LOG the best and the untuned schedule of each kernel, and failures."""
    from adrenoc.ir.tuning_log import read_log
    from adrenoc.lab.tune.merge import prune, write_log

    trials = read_log(log)
    kept = prune(trials)
    write_log(output, kept)
    _say(output, len(trials), len(kept))


@tune_log_command.command("diff")
@click.argument("first", type=InputPath())
@click.argument("second", type=InputPath())
def diff_command(first: Path, second: Path) -> int:
    """Show the kernels for which FIRST and SECOND have other schedules."""
    from adrenoc.cli import console
    from adrenoc.ir.tuning_log import Trial, actions_key, read_log
    from adrenoc.lab.tune.merge import differences

    found = differences(read_log(first), read_log(second))

    def format_trial(trial: Trial | None) -> str:
        if trial is None:
            return "none"
        return f"{console.ms(trial.median_us / 1000)}  {actions_key(trial.actions)}"

    def show() -> None:
        console.print_table(
            ("kernel", "family", str(first), str(second), "gain"),
            [
                (
                    d.kernel,
                    d.family,
                    format_trial(d.first),
                    format_trial(d.second),
                    f"{d.gain:.2f} x" if d.gain else "",
                )
                for d in found
            ],
            right=("gain",),
        )

    return console.tell(found, show)


@tune_log_command.command("export")
@click.argument("log", type=InputPath())
@click.option(
    "--as",
    "form",
    type=click.Choice(("csv", "bans")),
    default="csv",
    show_default=True,
    help="The best schedules as a table, or unstable work-groups for a target's file.",
)
def export_command(log: Path, form: str) -> None:
    """Print LOG in another form."""
    from adrenoc.base.text.printable import printable
    from adrenoc.cli.terminal import say
    from adrenoc.ir.tuning_log import read_log
    from adrenoc.lab.tune.merge import format_bans, format_csv

    trials = read_log(log)
    say(printable(format_csv(trials) if form == "csv" else format_bans(trials), lines=True), end="")


def _say(output: Path, before: int, after: int) -> None:
    from adrenoc.cli import console

    console.tell(
        {"log": output, "read": before, "written": after},
        lambda: console.print_verdict(True, f"{output}: {after} of {before} trials"),
    )
