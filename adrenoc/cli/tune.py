"""`adrenoc tune run`: search the schedules of a model's kernels, on devices or without one;
`adrenoc tune log`: look at logs, merge, prune, compare and export them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.text.report import Title, Verdict, tabulate
from adrenoc.base.text.spelling import count_of, figure, printable, quote_word, show_ms
from adrenoc.cli import console
from adrenoc.cli.console import say
from adrenoc.cli.firmware import TuningBudget
from adrenoc.cli.guarded import (
    Group,
    HeavyCommand,
    InputPath,
    OutputPath,
    give_options,
    group_of,
    option,
    wants_json,
)
from adrenoc.cli.options import (
    ModelOptions,
    PlaceChoice,
    context_option,
    places_option,
    reach,
    timeout_s,
)

if TYPE_CHECKING:
    from adrenoc.lab.tune.search import TuneObserver, TuneProgress
    from adrenoc.lab.tune.tuner import TuneRequest


@dataclass(frozen=True, kw_only=True)
class _Given(ModelOptions):
    context: int | None = context_option(", half of which are there as kernels are measured")
    prefill: int | None = option(
        "--prefill N",
        type=click.IntRange(min=1),
        help="Of a decoder: tune runs of so many tokens of a prompt, into the same log.  "
        "[default: runs of one token]",
    )
    places: tuple[PlaceChoice, ...] = places_option("Measure there")
    budget: TuningBudget = group_of(TuningBudget)
    offline: bool = option("--offline", help="Rank by the cost model, without a device.")

    @property
    def command(self) -> str:
        words = f"adrenoc compile {quote_word(self.path)} --device {self.target.option}"
        context = "" if self.context is None else f" --context {self.context}"
        return words + self.asked_words + context


@click.command("run", cls=HeavyCommand)
@give_options(_Given)
def tune_command(given: _Given) -> None:
    """Measure schedules of MODEL's kernels and keep them in a log.

    `adrenoc compile MODEL --tuning-log FILE` takes the best.  Ctrl-C stops at any time, and the
    same command goes on where it stopped.  With --json one object a line, the last the result.
    """
    from adrenoc.cli.show_tune import JsonObserver, LiveObserver, list_result

    request = _request_of(given)
    if wants_json():
        json_observer = JsonObserver()
        json_observer.result(_run(given, request, json_observer), request.log)
        return
    with LiveObserver(given.model.name, given.target.name) as observer:
        result = _run(given, request, observer)
    console.draw(list_result(result, given.command, request.log))


def _request_of(given: _Given) -> TuneRequest:
    from adrenoc.cli.plan_shapes import plan_shapes
    from adrenoc.ir.options import resolve_options
    from adrenoc.lab.tune.tuner import TuneRequest

    target, wanted, prefill = given.target, given.budget, given.prefill
    decoding = given.context, None if prefill is None else str(prefill)
    shaped = plan_shapes(given.model, given.shapes, decoding, (), accurate=False, entry=given.entry)
    # Of a decoder, runs of one token are the first, those of the prompt's tokens the last.
    bucket = shaped.buckets[0 if prefill is None else -1]
    said = {**given.settings, **shaped.options_of(bucket)}
    return TuneRequest(
        model=given.model,
        target=target,
        options=resolve_options(target, preset=given.preset, command_line=said).options,
        log=wanted.log_of(given.model),
        trials=wanted.trials,
        budget_s=wanted.budget_s,
        cl_device=next((place.cl_device for place in given.places), ""),
        limit_s=timeout_s(20.0),
        more_logs=wanted.more_logs,
    )


def _run(given: _Given, request: TuneRequest, observer: TuneObserver) -> TuneProgress:
    from adrenoc.cli.show_tune import EventReporter
    from adrenoc.lab.tune.tuner import tune_model, tune_offline

    reporter = EventReporter(observer)
    if given.offline:
        return tune_offline(request, reporter=reporter, observer=observer)
    with ExitStack() as stack:
        opened = [stack.enter_context(reach(place, request.limit_s)) for place in given.places]
        reachable = tuple(address for address in opened if address is not None)
        request = replace(request, places=reachable)
        return tune_model(request, reporter=reporter, observer=observer)


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
    from adrenoc.ir.tuning_log import read_log
    from adrenoc.lab.tune.merge import summaries

    rows = summaries(read_log(log))

    listed = tabulate(
        rows,
        {
            "GPU": lambda one: one.gpu,
            "kernels": lambda one: one.kernels,
            "best is untuned": lambda one: one.untuned,
            "trials": lambda one: one.trials,
            "failed": lambda one: one.failed,
            "devices": lambda one: ", ".join(one.devices) or "none",
        },
    )
    return console.tell(rows, Title(text=str(log)), listed)


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
    from adrenoc.ir.tuning_log import Trial, actions_key, read_log
    from adrenoc.lab.tune.merge import differences

    found = differences(read_log(first), read_log(second))

    def format_trial(trial: Trial | None) -> str:
        if trial is None:
            return "none"
        return f"{show_ms(trial.median_us / 1000)}  {actions_key(trial.actions)}"

    listed = tabulate(
        found,
        {
            "kernel": lambda one: one.kernel,
            "family": lambda one: one.family,
            str(first): lambda one: format_trial(one.first),
            str(second): lambda one: format_trial(one.second),
            "gain": lambda one: figure(one.gain or None, ".2f", " x"),
        },
    )
    said = f"{count_of(len(found), 'kernel')} with another schedule"
    return console.tell(found, Title(text=f"{first} → {second}", detail=said), listed)


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
    from adrenoc.ir.tuning_log import read_log
    from adrenoc.lab.tune.merge import format_bans, format_csv

    trials = read_log(log)
    say(printable(format_csv(trials) if form == "csv" else format_bans(trials), lines=True), end="")


def _say(output: Path, before: int, after: int) -> None:
    console.tell(
        {"log": output, "read": before, "written": after},
        Verdict(passed=True, text=f"{output}: {after} of {before} trials"),
    )
