"""`adrenoc compile`: a model file becomes a bundle."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.decoder_options import decoder_options
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath, wants_json
from adrenoc.cli.options import (
    accuracy_options,
    clml_options,
    memory_option,
    model_options,
    policy_of,
)
from adrenoc.cli.write_views import trace_time

if TYPE_CHECKING:
    from adrenoc.base.decision import Decision
    from adrenoc.base.reporter import Reporter
    from adrenoc.check.accuracy.accuracy_plans import Wanted
    from adrenoc.check.accuracy.result import AccuracyPlan
    from adrenoc.cli.shape_ranges import ShapeRange
    from adrenoc.compile.make import Made
    from adrenoc.importers.entry import Entry
    from adrenoc.ir.options import CompileOptions
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target


@click.command("compile", cls=HeavyCommand)
@model_options(sets=True, ranges=True, systems=True)
@click.option(
    "-o",
    "--output",
    type=OutputPath(),
    metavar="PATH",
    help="Where the bundle goes.  [default: MODEL's name with .adrenoc, here]",
)
@click.option("--tar", is_flag=True, help="Write the bundle as one tar file.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the compile cache.")
@click.option("--verbose", is_flag=True, help="Show the stages of each phase, too.")
@click.option("--explain", is_flag=True, help="Show where options come from, and all decisions.")
@click.option(
    "--dump-dir",
    type=OutputPath(is_folder=True),
    metavar="DIR",
    help="Write the IR after each stage there, under the stage's name.",
)
@click.option(
    "--precision-policy",
    "policy_file",
    type=InputPath(),
    metavar="FILE",
    help="Keep the tensors in float32 that adrenoc check-accuracy found.",
)
@accuracy_options()
@click.option(
    "--forbid",
    type=click.Choice(("buffer", "cpu")),
    multiple=True,
    help="Fail where an operator would go there instead of to a texture; may be repeated.",
)
@click.option(
    "--winograd/--no-winograd",
    default=None,
    help="Split 3x3 convolutions into Winograd's transforms where that is estimated to win.  "
    "[default: --winograd]",
)
@clml_options()
@click.option(
    "--tuning-log",
    type=InputPath(as_text=True),
    metavar="FILE",
    help="Take the schedules that `adrenoc tune run` measured.",
)
@memory_option()
@click.option(
    "--pool-textures/--no-pool-textures",
    default=None,
    help="Make textures from parts of one buffer, where the driver can: less memory, and images "
    "that are linear.  [default: --no-pool-textures]",
)
@decoder_options()
@click.option(
    "--time-trace",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="Write what takes the compiler's time, a section for each stage, kernel and file, for "
    "ui.perfetto.dev or chrome://tracing.",
)
@click.option("--stop-after", metavar="STAGE", help="Stop after that stage; writes no bundle.")
@click.option(
    "--ndk",
    type=InputPath(as_text=True),
    metavar="DIR",
    help="An Android NDK to link with.  [default: ANDROID_NDK_HOME, else any lld]",
)
@click.option(
    "--fallback",
    type=click.Choice(("cpu",)),
    help="Of an int8 model, also carry code for the phone's CPU: the C API computes by it where "
    "there is no OpenCL device, or it refuses the kernels.",
)
@click.pass_context
def compile_command(
    ctx: click.Context,
    model: Path,
    target: Target | DeviceSet,
    preset: str | None,
    shapes: tuple[tuple[str, tuple[int, ...]] | ShapeRange, ...],
    output: Path | None,
    tar: bool,
    no_cache: bool,
    verbose: bool,
    explain: bool,
    dump_dir: Path | None,
    forbid: tuple[str, ...],
    policy_file: Path | None,
    accuracy: float | None,
    folder: Path | None,
    seed: int,
    effort: float,
    max_memory_mib: int | None,
    pool_textures: bool | None,
    winograd: bool | None,
    clml: str | None,
    clml_version: int | None,
    tuning_log: str | None,
    context: int | None,
    prefill: str | None,
    tokenizer: Path | None,
    int8_prompts: bool | None,
    kept: tuple[str, ...],
    time_trace: Path | None,
    stop_after: str | None,
    ndk: str | None,
    fallback: str | None,
    entry: Entry,
) -> None:
    """Compile MODEL (.onnx or .tflite) into a bundle for a DEVICE.

    For several (adreno:660,adreno:750, or `all`) the bundle has kernels of each, and common ones.
    Microcontrollers and CPUs have `adrenoc firmware compile`.
    """
    as_json = wants_json()
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.cli import console
    from adrenoc.cli.device_sets import check_devices, plan_editions, split_set
    from adrenoc.cli.plan_shapes import plan_shapes
    from adrenoc.cli.show_accuracy import show_plan
    from adrenoc.cli.show_made import show_made, show_options
    from adrenoc.compile.make import default_output, make_bundle
    from adrenoc.ir.options import resolve_options

    target, members = split_set(target)
    check_devices(len(members), stop_after, fallback, dump_dir)
    _check_accuracy_options(accuracy, policy_file, folder, clml, stop_after)
    shaped = plan_shapes(
        model,
        shapes,
        (context, prefill),
        kept,
        accurate=accuracy is not None,
        entry=entry,
        tokenizer=tokenizer,
    )
    _check_fallback(fallback, len(shaped.buckets), stop_after, kept=bool(shaped.states))
    policy = policy_of(policy_file, model, preset)
    own_preset = policy.preset if policy else preset
    said: dict[str, Any] = {
        "float32_tensors": policy.float32_tensors if policy else None,
        **shaped.options_of(shaped.buckets[-1]),
        "end_tokens": shaped.ends or None,
        "forbid": forbid or None,
        "max_memory_mib": max_memory_mib,
        "pool_textures": pool_textures,
        "int8_prompts": int8_prompts,
        "winograd": winograd,
        "clml": clml,
        "clml_version": clml_version,
        "tuning_log": tuning_log,
        "ndk": ndk,
    }
    resolved = resolve_options(target, preset=own_preset, command_line=said)

    plan: AccuracyPlan | None = None

    def compile_all(reporter: Reporter) -> Made | None:
        nonlocal plan
        options = resolved.options
        decisions: tuple[Decision, ...] = shaped.decisions
        if accuracy is not None:
            plan, options, decisions = _meet(
                model,
                target,
                resolved.options,
                _make_wanted(accuracy, folder, seed, effort),
                reporter,
                use_cache=not no_cache,
            )
        if stop_after is not None:
            _run_until(stop_after, model, target, resolved.options, reporter, dump_dir)
            return None
        return make_bundle(
            model,
            target=target,
            options=options,
            output=output or default_output(model, tar=tar),
            reporter=reporter,
            buckets=shaped.buckets if len(shaped.buckets) > 1 else (),
            tar=tar,
            use_cache=not no_cache,
            dump_dir=dump_dir,
            chosen_before=decisions,
            with_fallback=fallback is not None,
            words=shaped.words,
            editions=plan_editions(members, own_preset, said, options.float32_tensors),
        )

    work = trace_time(compile_all, time_trace)
    if as_json:
        made = work(SilentReporter())
        if made is None:
            console.print_json({"stopped_after": stop_after})
            return
        _print_json(made, plan, dict(resolved.origins) if explain else None)
        return
    if explain:
        show_options(resolved)
    with console.ConsoleReporter(verbose=verbose) as reporter:
        reporter.heading(model.name, f"for {target.name}, preset {resolved.options.preset}")
        made = work(reporter)
    if made is None:
        console.print_title(f"stopped after {stop_after}", "no bundle was written")
        return
    show_made(made, explain=explain)
    if plan is not None:
        show_plan(plan)


def _print_json(made: Made, plan: AccuracyPlan | None, origins: dict[str, str] | None) -> None:
    from adrenoc.cli import console
    from adrenoc.cli.show_accuracy import finite

    more: dict[str, Any] = {} if origins is None else {"origins": origins}
    if plan is not None:
        more["accuracy"] = finite(asdict(plan))
    console.print_json({**vars(made), **more} if more else made)


def _run_until(
    stop_after: str,
    model: Path,
    target: Target,
    options: CompileOptions,
    reporter: Reporter,
    dump_dir: Path | None,
) -> None:
    from adrenoc.compile.pipeline import State, run_stages

    start = State(model=model, target=target, options=options)
    run_stages(start, reporter=reporter, dump_dir=dump_dir, stop_after=stop_after)


def _check_accuracy_options(
    accuracy: float | None,
    policy_file: Path | None,
    folder: Path | None,
    clml: str | None,
    stop_after: str | None,
) -> None:
    """Refuse what does not go together."""
    if accuracy is None:
        if folder is not None:
            raise click.UsageError("--inputs is for --accuracy TOL")
        return
    if policy_file is not None:
        raise click.UsageError("--accuracy finds a policy of its own: no --precision-policy")
    if clml not in (None, "off"):
        raise click.UsageError("--accuracy pins tensors that a region of OpenCL ML would hide")
    if stop_after is not None:
        raise click.UsageError("--accuracy is for whole compilations: no --stop-after")


def _check_fallback(
    fallback: str | None, choices: int, stop_after: str | None, *, kept: bool
) -> None:
    """Refuse what does not go together."""
    if fallback is None:
        return
    if kept:
        raise click.UsageError("--fallback cpu keeps no states: --state none")
    if choices > 1:
        raise click.UsageError("--fallback cpu is for one choice of shapes: no ranges with --shape")
    if stop_after is not None:
        raise click.UsageError("--fallback cpu is a part of bundles: no --stop-after")


def _make_wanted(tolerance: float, folder: Path | None, seed: int, effort: float) -> Wanted:
    from adrenoc.check.accuracy.accuracy_plans import Wanted
    from adrenoc.check.inputs import input_files

    files = () if folder is None else input_files(folder)
    return Wanted(tolerance=tolerance, files=files, seed=seed, effort=effort)


def _meet(
    model: Path,
    target: Target,
    options: CompileOptions,
    wanted: Wanted,
    reporter: Reporter,
    *,
    use_cache: bool,
) -> tuple[AccuracyPlan, CompileOptions, tuple[Decision, ...]]:
    """The plan for a tolerance, the options with what it keeps, and its decisions."""
    from adrenoc.check.accuracy.accuracy_plans import (
        decisions_of,
        place_of,
        read_plan,
        write_plan,
    )

    place = place_of(model, target, options, wanted)
    plan = read_plan(place) if use_cache else None
    if plan is not None:
        reporter.note("the search for accuracy was done before; it comes from the cache")
    else:
        from adrenoc.check.accuracy.meet import meet_accuracy

        plan = meet_accuracy(
            model, target=target, options=options, wanted=wanted, reporter=reporter
        )
        if use_cache:
            write_plan(place, plan, reporter)
    chosen = replace(options, float32_tensors=tuple(sorted(plan.float32_tensors)))
    return plan, chosen, decisions_of(plan)
