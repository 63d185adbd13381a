"""`adrenoc tune run`: search the schedules of a model's kernels, on devices or without one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.guarded import HeavyCommand, wants_json
from adrenoc.cli.options import ModelOptions, context_option
from adrenoc.cli.place_options import PlaceChoice, places_option, reach, timeout_s
from adrenoc.cli.records import give_options, group_of, option
from adrenoc.cli.tune_firmware import TuningBudget

if TYPE_CHECKING:
    from adrenoc.lab.tune.progress import TuneObserver, TuneProgress
    from adrenoc.lab.tune.tune_model import TuneRequest


@dataclass(frozen=True, kw_only=True)
class _Given(ModelOptions):
    context: int | None = context_option(", half of which are there as kernels are measured")
    prefill: int | None = option(
        "--prefill",
        type=click.IntRange(min=1),
        metavar="N",
        help="Of a decoder: tune runs of so many tokens of a prompt, into the same log.  "
        "[default: runs of one token]",
    )
    places: tuple[PlaceChoice, ...] = places_option("Measure there")
    budget: TuningBudget = group_of(TuningBudget)
    offline: bool = option(
        "--offline", is_flag=True, help="Rank by the cost model, without a device."
    )

    @property
    def command(self) -> str:
        """Return the command that compiles the same kernels."""
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
    from adrenoc.cli.show_tune import JsonObserver, LiveObserver, show_result

    request = _request_of(given)
    if wants_json():
        json_observer = JsonObserver()
        json_observer.result(_run(given, request, json_observer), request.log)
        return
    with LiveObserver(given.model.name, given.target.name) as observer:
        result = _run(given, request, observer)
    show_result(result, given.command, request.log)


def _request_of(given: _Given) -> TuneRequest:
    from adrenoc.cli.plan_shapes import plan_shapes
    from adrenoc.ir.options import resolve_options
    from adrenoc.lab.tune.tune_model import TuneRequest

    target, wanted, prefill = given.target, given.budget, given.prefill
    decoding = given.context, None if prefill is None else str(prefill)
    shaped = plan_shapes(given.model, given.shapes, decoding, (), accurate=False, entry=given.entry)
    # Of a decoder, runs of one token are the first, those of the prompt's tokens the last.
    bucket = shaped.buckets[0 if prefill is None else -1]
    said = {**given.settings, **shaped.options_of(bucket), "end_tokens": shaped.ends or None}
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
    from adrenoc.lab.tune.tune_model import tune_model, tune_offline

    reporter = EventReporter(observer)
    if given.offline:
        return tune_offline(request, reporter=reporter, observer=observer)
    with ExitStack() as stack:
        opened = [stack.enter_context(reach(place, request.limit_s)) for place in given.places]
        reachable = tuple(address for address in opened if address is not None)
        request = replace(request, places=reachable)
        return tune_model(request, reporter=reporter, observer=observer)
