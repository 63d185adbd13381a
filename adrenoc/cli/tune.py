"""`adrenoc tune run`: search the schedules of a model's kernels, on devices or without one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.decoder_options import context_option, int8_prompts_option
from adrenoc.cli.durations import DurationParam
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath, wants_json
from adrenoc.cli.options import (
    MOST_SECONDS,
    FiniteRange,
    give_record,
    model_options,
    seed_option,
)
from adrenoc.cli.place_options import runtime_option

if TYPE_CHECKING:
    from adrenoc.cli.place_options import PlaceChoice
    from adrenoc.importers.entry import Entry
    from adrenoc.lab.tune.progress import TuneObserver, TuneProgress
    from adrenoc.lab.tune.tune_model import TuneRequest
    from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of `adrenoc tune run`, as they were typed."""

    model: Path
    target: Target
    preset: str | None
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    entry: Entry
    context: int | None
    prefill: int | None
    int8_prompts: bool | None
    servers: tuple[str, ...]
    tracker: str | None
    phones: tuple[str, ...]
    runtime: Path | None
    key: str
    cl_device: str
    trials: int
    budget: float
    limit_s: float
    output: Path | None
    more_logs: tuple[Path, ...]
    offline: bool
    analyser: str | None
    seed: int

    @property
    def log(self) -> Path:
        """The log to write, or to go on with."""
        return self.output or Path(f"{self.model.stem}.tune.json")

    @property
    def asked(self) -> str:
        """The options that tell which kernels there are, as they are typed."""
        words = [f"--preset {self.preset}"] if self.preset is not None else []
        for name, dims in self.shapes:
            words.append(f"--shape {quote_word(f'{name}:' + ','.join(map(str, dims)))}")
        for name, value in self.entry.fixed:
            words.append(f"--fix {quote_word(f'{name}={value}')}")
        words += [f"--signature {self.entry.signature}"] if self.entry.signature else []
        words += [f"--context {self.context}"] if self.context is not None else []
        words += ["--int8-prompts"] if self.int8_prompts else []
        return "".join(f" {word}" for word in words)


@click.command("run", cls=HeavyCommand)
@model_options()
@context_option(", half of which are there as kernels are measured")
@click.option(
    "--prefill",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of a decoder: tune runs of so many tokens of a prompt, into the same log.  "
    "[default: runs of one token]",
)
@int8_prompts_option()
@click.option(
    "--rpc",
    "servers",
    multiple=True,
    metavar="HOST:PORT",
    help="Measure on the machine where `adrenoc runtime serve` runs; may be repeated.",
)
@click.option(
    "--tracker",
    metavar="HOST:PORT",
    help="Measure on all devices of the kind --key that TVM's tracker there knows.",
)
@click.option(
    "--adb",
    "phones",
    is_flag=False,
    flag_value="",
    multiple=True,
    metavar="[SERIAL]",
    help="Measure on the phone that is connected by adb, or on that of this serial number; may be "
    "repeated.",
)
@runtime_option()
@click.option("--key", default="", help="The key of the servers, or the kind of device.")
@click.option(
    "--cl-device",
    default="",
    metavar="NUMBER|NAME",
    help="OpenCL device there.  [default: the first with images]",
)
@click.option(
    "--trials",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Schedules to measure in all, those in the log included.",
)
@click.option(
    "--budget",
    type=DurationParam(),
    default=0.0,
    metavar="TIME",
    help="Stop after so long, and what is in flight then: 30m.",
)
@click.option(
    "--timeout",
    "limit_s",
    type=FiniteRange(min=1, max=MOST_SECONDS),
    default=20.0,
    show_default=True,
    help="Seconds that one schedule may take on the device.",
)
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="The log; one that exists is continued.  [default: MODEL's name with .tune.json]",
)
@click.option(
    "--from",
    "more_logs",
    type=InputPath(replaced=True),
    multiple=True,
    metavar="FILE",
    help="A log of other models or GPUs to begin from; may be repeated.",
)
@click.option("--offline", is_flag=True, help="Rank by the cost model, without a device.")
@click.option(
    "--analyser",
    metavar="CMD",
    help="With --offline: a command that gets a .cl file and prints JSON with time_us.",
)
@seed_option("Of the search.", default=1)
@click.pass_context
@give_record(_Given)
def tune_command(ctx: click.Context, given: _Given) -> None:
    """Measure schedules of MODEL's kernels and keep them in a log.

    `adrenoc compile MODEL --tuning-log FILE` takes the best.  Ctrl-C stops at any time, and the
    same command goes on where it stopped.  With --json one object a line, the last the result.
    """
    target = given.target
    from adrenoc.cli.show_tune import JsonObserver, LiveObserver, show_result

    if given.analyser is not None and not given.offline:
        raise click.UsageError("--analyser goes with --offline")
    request, places = _request_of(given, target), _places(given)
    if wants_json():
        json_observer = JsonObserver()
        json_observer.result(_run(given, request, places, json_observer), request.log)
        return
    with LiveObserver(given.model.name, target.name) as observer:
        result = _run(given, request, places, observer)
    show_result(
        result,
        f"adrenoc compile {quote_word(given.model)} --device {target.option}{given.asked}",
        given.log,
    )


def _request_of(given: _Given, target: Target) -> TuneRequest:
    from adrenoc.cli.plan_shapes import plan_shapes
    from adrenoc.ir.options import resolve_options
    from adrenoc.lab.tune.tune_model import TuneRequest

    prefill = None if given.prefill is None else str(given.prefill)
    decoding = given.context, prefill
    shaped = plan_shapes(given.model, given.shapes, decoding, (), accurate=False, entry=given.entry)
    # Of a decoder, runs of one token are the first, those of the prompt's tokens the last.
    bucket = shaped.buckets[0 if prefill is None else -1]
    said = {
        **shaped.options_of(bucket),
        "end_tokens": shaped.ends or None,
        "int8_prompts": given.int8_prompts,
    }
    return TuneRequest(
        model=given.model,
        target=target,
        options=resolve_options(target, preset=given.preset, command_line=said).options,
        log=given.log,
        trials=given.trials,
        budget_s=given.budget,
        seed=given.seed,
        cl_device=given.cl_device,
        limit_s=given.limit_s,
        more_logs=given.more_logs,
    )


def _run(
    given: _Given,
    request: TuneRequest,
    places: tuple[PlaceChoice, ...],
    observer: TuneObserver,
) -> TuneProgress:
    from adrenoc.cli.place_options import reach
    from adrenoc.cli.show_tune import EventReporter
    from adrenoc.lab.tune.offline import Analyser
    from adrenoc.lab.tune.tune_model import tune_model, tune_offline

    reporter = EventReporter(observer)
    if given.offline:
        analyse = Analyser(given.analyser) if given.analyser is not None else None
        return tune_offline(request, analyse, reporter=reporter, observer=observer)
    with ExitStack() as stack:
        addresses = tuple(stack.enter_context(reach(place)) for place in places)
        reachable = tuple(address for address in addresses if address is not None)
        request = replace(request, places=reachable)
        return tune_model(request, reporter=reporter, observer=observer)


def _places(given: _Given) -> tuple[PlaceChoice, ...]:
    """The devices that the options name; none is this machine's."""
    from adrenoc.cli.place_options import choose_place

    if given.tracker is not None and (given.servers or given.phones):
        raise click.UsageError("--tracker names its devices by --key, without --rpc or --adb")
    wanted: list[tuple[str | None, str | None, str | None]]
    wanted = [(server, None, None) for server in given.servers]
    wanted += [(None, None, phone) for phone in given.phones]
    if given.tracker is not None:
        wanted = [(None, given.tracker, None)]
    return tuple(
        choose_place(
            cl_device="",
            server=server,
            tracker=known_by,
            adb=phone,
            runtime=given.runtime,
            key=given.key,
            timeout_s=given.limit_s,
        )
        for server, known_by, phone in wanted
    )
