"""`adrenoc run`: a bundle computes on a device of this machine or of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.generate import run_if_decoder
from adrenoc.cli.generate_options import generate_options, take_asked
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath, wants_json
from adrenoc.cli.options import (
    MOST_SECONDS,
    FiniteRange,
    InputParam,
    NumbersParam,
    path_argument,
    seed_option,
    shape_option,
)
from adrenoc.cli.place_options import (
    PlaceChoice,
    choose_place,
    place_options,
    programs_of,
    reach,
)
from adrenoc.cli.rounding_floor import check_floor, measure_floor, plain_floor, show_floor
from adrenoc.cli.view import refuse_firmware
from adrenoc.cli.write_views import take_views, view_options, write_run_views

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.inputs import InputFile
    from adrenoc.device.result import RunOptions, RunResult


@click.command("run", cls=HeavyCommand)
@path_argument("bundle")
@click.option(
    "--input",
    "files",
    type=InputParam(),
    multiple=True,
    metavar="[NAME=]FILE",
    help="An input: .npy, .npz, an image or raw bytes.  [default: seeded random numbers; with "
    "--check four sets of them]",
)
@shape_option("Shape of a random input, for a bundle of several shapes.  [default: the largest]")
@seed_option("Seed of random inputs.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of a bundle that keeps states: N runs from zeros on; inputs and outputs hold all of them "
    "along a first axis.",
)
@click.option("--mean", type=NumbersParam(), help="Subtract from image values (0 to 1).")
@click.option("--std", type=NumbersParam(), help="Divide image values by this after that.")
@click.option(
    "--layout",
    type=click.Choice(["NCHW", "NHWC"]),
    help="How an image lies in the input.  [default: by the extents]",
)
@place_options()
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Warm runs to time.",
)
@click.option(
    "--sustain",
    "sustain_s",
    type=FiniteRange(min=0, max=MOST_SECONDS),
    default=0.0,
    metavar="SECONDS",
    help="Then run for that long, and compare the end with the begin.",
)
@click.option(
    "--pause",
    "pause_ms",
    type=FiniteRange(min=0, max=MOST_SECONDS),
    default=0.0,
    metavar="MS",
    help="Pause between the runs of --sustain.",
)
@click.option(
    "--baseline",
    type=InputPath(),
    metavar="FILE.json",
    help="Compare the times with a run whose --json output is there.",
)
@click.option("--profile", is_flag=True, help="Show the time of each kernel.")
@view_options()
@click.option(
    "--program-cache/--no-program-cache",
    "keep_programs",
    default=True,
    help="Keep built kernels for the next run.  [default: keep]",
)
@click.option(
    "--no-record",
    is_flag=True,
    help="Launch each run's kernels anew by TVM's virtual machine.",
)
@click.option(
    "--qualcomm-programs",
    is_flag=True,
    help="Use kernels that an older Qualcomm driver built, or one of the same branch.",
)
@click.option(
    "--perf-hint",
    type=click.Choice(["low", "normal", "high"]),
    help="Ask the driver for a clock, by cl_qcom_perf_hint.  [default: the driver decides]",
)
@click.option(
    "--priority",
    type=click.Choice(["low", "normal", "high"]),
    help="Ask the driver to let others go first, or this.  [default: the driver decides]",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 8),
    metavar="N",
    help="Of the CPU, for bundles that carry its code.  [default: as many as it has]",
)
@click.option(
    "--check",
    "reference",
    type=InputPath(),
    metavar="MODEL",
    help="Compare with what onnxruntime or LiteRT computes from MODEL.",
)
@click.option(
    "--rounding-floor",
    "with_floor",
    is_flag=True,
    help="With --check: also what rounding alone costs on these inputs, to tell a defect.",
)
@click.option(
    "--check-layers",
    "layers_of",
    type=InputPath(),
    metavar="MODEL",
    help="Compare every layer with MODEL's, and name the first bad one.",
)
@click.option(
    "--tolerance",
    type=FiniteRange(min=0.0),
    help="Largest error over the output's range.  [default: 1e-4 in fp32, else 1e-2]",
)
@generate_options()
@click.option(
    "--save", type=OutputPath(is_file=True), metavar="FILE.npz", help="Write the outputs there."
)
@click.pass_context
def run_command(
    ctx: click.Context,
    /,
    bundle: Path,
    files: tuple[InputFile, ...],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    seed: int,
    steps: int | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    layout: str | None,
    repeat: int,
    sustain_s: float,
    pause_ms: float,
    baseline: Path | None,
    profile: bool,
    keep_programs: bool,
    no_record: bool,
    qualcomm_programs: bool,
    perf_hint: str | None,
    priority: str | None,
    threads: int | None,
    reference: Path | None,
    with_floor: bool,
    layers_of: Path | None,
    tolerance: float | None,
    save: Path | None,
    **where: Any,
) -> None:
    """Run BUNDLE on an OpenCL device of this machine or of a server, time it and check it."""
    as_json = wants_json()
    asked, views = take_asked(where), take_views(where)
    by, kept = (seed, reference, tolerance), (keep_programs, qualcomm_programs)
    refuse_firmware(bundle)
    if run_if_decoder(ctx, bundle, asked, files, by, where, kept, as_json=as_json):
        return
    from adrenoc.base.errors import CheckFailedError
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.check.inputs import ImageOptions
    from adrenoc.cli import console
    from adrenoc.cli.show_run import plain_run, show_run
    from adrenoc.cli.steps import check_steps, draw_steps
    from adrenoc.device.baseline import compare_with, read_baseline
    from adrenoc.device.result import RunOptions

    check_floor(with_floor, reference)
    check_steps(steps, layers_of, with_floor=with_floor)
    place = choose_place(**where)
    before = None if baseline is None else read_baseline(baseline)
    opened = open_bundle(bundle)
    several = draw_steps(
        opened,
        files,
        shapes,
        steps,
        model=reference or layers_of,
        seed=seed,
        image=ImageOptions(mean=mean or (0.0,), std=std or (1.0,), layout=layout or ""),
        trial=reference is not None and layers_of is None,
    )
    inputs = several.first
    if reference is not None:
        several = several.run_reference(reference, opened.kept_states)
    options = RunOptions(
        device=place.cl_device,
        repeat=repeat,
        sustain_s=sustain_s,
        pause_ms=pause_ms,
        profile=profile or views.need_profile,
        recording="off" if no_record else "best",
        programs=programs_of(place, keep_programs, qualcomm_programs),
        perf_hint=perf_hint or "",
        priority=priority or "",
        threads=threads or 0,
    )
    whole = _run(opened, place, inputs, options, save=save, steps=several.later)
    result = several.take_first(whole, save)
    compared = None if before is None else compare_with(before, result)
    limit = _default_tolerance(opened) if tolerance is None else tolerance
    checked = several.judge(reference, opened, whole.outputs, tolerance=limit)
    once = replace(options, repeat=1, warmup=0, sustain_s=0.0, profile=False)
    if not _in_float32(opened):

        def run_again(sets: Sequence[Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
            return _run(opened, place, sets[0], once, save=None, steps=sets[1:]).outputs

        checked = several.sweep(reference, checked, run_again)
    if layers_of is not None:
        from adrenoc.check.check_layers import check_layers

        with console.ConsoleReporter() as reporter:
            layers = check_layers(
                opened,
                layers_of,
                several.named,
                run=lambda made: _run(made, place, inputs, once, save=None).outputs,
                tolerance=limit,
                reporter=reporter,
            )
        checked = layers.result
    written = write_run_views(opened, result, views, checked)
    floor = measure_floor(with_floor, opened, reference, several, result)
    if as_json:
        console.print_json({**plain_run(result, checked, compared), **plain_floor(floor)})
        ctx.exit(CheckFailedError.exit_code if checked and not checked.passed else 0)
    show_run(opened, result, checked, compared)
    console.print_fields([("written", str(path)) for path in written])
    show_floor(floor)
    if layers_of is not None:
        layers.raise_if_failed(in_float32=_in_float32(opened))
    elif checked is not None:
        checked.raise_if_failed(in_float32=_in_float32(opened))


def _run(
    bundle: Bundle,
    place: PlaceChoice,
    inputs: Mapping[str, np.ndarray],
    options: RunOptions,
    *,
    save: Path | None,
    steps: Sequence[Mapping[str, np.ndarray]] = (),
) -> RunResult:
    """Run, and keep what is known when the run fails half-way."""
    from adrenoc.base.errors import AdrenocError
    from adrenoc.check.numpy_files import save_arrays
    from adrenoc.device.remote import run_remote
    from adrenoc.device.result import Progress
    from adrenoc.device.run import run_bundle

    progress = Progress()
    try:
        with reach(place) as address:
            if address is None:
                result = run_bundle(
                    bundle, inputs=inputs, options=options, progress=progress, steps=steps
                )
            else:
                result = run_remote(
                    bundle,
                    address,
                    inputs=inputs,
                    options=options,
                    progress=progress,
                    steps=steps,
                )
    except AdrenocError as error:
        if progress.first_ms is not None:
            error.message += f" (before that {progress})"
        if save is not None and progress.outputs:
            save_arrays(save, progress.outputs)
        raise
    return result


def _default_tolerance(bundle: Bundle) -> float:
    from adrenoc.device.compare import default_tolerance

    return default_tolerance(*_dtypes(bundle))


def _in_float32(bundle: Bundle) -> bool:
    from adrenoc.device.compare import is_float32

    return is_float32(*_dtypes(bundle))


def _dtypes(bundle: Bundle) -> tuple[str, str]:
    """In which it stores and computes."""
    values = bundle.manifest.options.values
    return str(values["storage_dtype"]), str(values["compute_dtype"])
