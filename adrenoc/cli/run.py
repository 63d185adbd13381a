"""`adrenoc run`: a bundle computes, or a decoder generates, on a device of this machine or of a
server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import AdrenocError, CheckFailedError
from adrenoc.base.host.variables import read_choice, read_number
from adrenoc.base.text.report import Fields
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.chat import Sampling
from adrenoc.cli import console
from adrenoc.cli.generate import run_if_decoder
from adrenoc.cli.guarded import (
    HeavyCommand,
    OutputPath,
    argument,
    give_options,
    group_of,
    option,
    wants_json,
)
from adrenoc.cli.model_params import (
    Parsed,
    Said,
    apply_sample,
    check_sample,
    read_scale,
    read_sustain,
    sample_option,
)
from adrenoc.cli.options import (
    PlaceChoice,
    choose_programs,
    input_option,
    place_option,
    reach,
    repeat_option,
    seed_option,
    shape_option,
    tolerance_option,
)
from adrenoc.cli.write_views import RunViews, refuse_firmware, write_run_views

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.accuracy.result import Floor
    from adrenoc.check.inputs import ImageOptions, InputFile
    from adrenoc.cli.steps import Steps
    from adrenoc.device.result import RunOptions, RunResult


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """What `run` is asked of a decoder; nothing where the first three are not said."""

    prompt: str | None = option(
        "--prompt TEXT", help="Generate text after this, by a bundle of a decoder."
    )
    ids: str | None = option(
        "--prompt-ids ID,ID,...", help="Generate tokens after these, by a bundle of a decoder."
    )
    bench: bool = option(
        "--bench",
        help="Of a decoder: the time of prompts, of the first token and of each further one.",
    )
    most: int = option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=32,
        help="Of a decoder: how many to generate.",
    )
    sample: Said = sample_option()
    encoders: tuple[Path, ...] = option(
        "--encoder BUNDLE",
        help="Of a decoder: run this first, and hand on what it makes; may be repeated.",
    )

    @property
    def is_for_decoder(self) -> bool:
        """Return whether the bundle is to be a decoder."""
        return self.prompt is not None or self.ids is not None or self.bench

    @property
    def option(self) -> str:
        """Return the option that asks for a decoder."""
        if self.bench:
            return "--bench"
        return "--prompt-ids" if self.prompt is None else "--prompt"

    def sampling(self, seed: int) -> Sampling:
        """Return how tokens are picked."""
        return apply_sample(Sampling(seed=seed), self.sample)

    def check(self, reference: Path | None) -> None:
        """Refuse what does not go together. Raises click.UsageError naming it."""
        if sum((self.prompt is not None, self.ids is not None, self.bench)) > 1:
            raise click.UsageError("--prompt, --prompt-ids and --bench exclude each other")
        if self.encoders and self.prompt is None and self.ids is None:
            raise click.UsageError("--encoder is for --prompt and --prompt-ids")
        if self.sample and self.prompt is None and self.ids is None:
            raise click.UsageError("--sample is for --prompt and --prompt-ids")
        check_sample(self.sampling(0), self.sample)
        if self.sample and reference is not None:
            raise click.UsageError(
                "--check compares with the likeliest tokens: it excludes --sample"
            )


_HINTS, _LEVELS = ("clock", "priority"), ("low", "normal", "high")


@dataclass(frozen=True, kw_only=True)
class RunGiven:
    """What `run` is told."""

    bundle: Path = argument()
    files: tuple[InputFile, ...] = input_option(
        "An input: .npy, .npz, .onnx_adapter (LoRA), an image or raw bytes.  [default: seeded "
        "random numbers; with --check four sets of them]"
    )
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = shape_option(
        "Shape of a random input, for a bundle of several shapes.  [default: the largest]"
    )
    signature: str | None = option(
        "--signature NAME",
        help="Which signature of a bundle that holds several.  [default: the first that was "
        "compiled]",
    )
    seed: int = seed_option("Seed of random inputs.")
    steps: int | None = option(
        "--steps N",
        type=click.IntRange(min=1),
        help="Of a bundle that keeps states: N runs from zeros on; inputs and outputs hold all of "
        "them along a first axis.",
    )
    scale: tuple[tuple[float, ...], tuple[float, ...]] = option(
        "--image MEAN/STD",
        type=Parsed(read_scale),
        default=((0.0,), (1.0,)),
        help="Subtract MEAN from image values (0 to 1), and divide them by STD after that: "
        "0.485,0.456,0.406/0.229,0.224,0.225.",
    )
    place: PlaceChoice = place_option()
    repeat: int = repeat_option()
    sustain: tuple[float, float] = option(
        "--sustain TIME[/PAUSE]",
        type=Parsed(read_sustain),
        default=(0.0, 0.0),
        help="Then run for that long (60s), with pauses between runs (60s/33ms), and compare the "
        "end with the begin.",
    )
    profile: bool = option("--profile", help="Show the time of each kernel.")
    views: RunViews = group_of(RunViews)
    hints: tuple[str, ...] = option(
        "--hint NAME=LEVEL",
        type=click.Choice([f"{what}={how}" for what in _HINTS for how in _LEVELS]),
        help="Ask a Qualcomm driver for a clock (clock=low, normal or high), or to let others go "
        "first, or this (priority=...); may be repeated.  [default: the driver decides]",
    )
    reference: Path | None = option(
        "--check MODEL", help="Compare with what onnxruntime or LiteRT computes from MODEL."
    )
    with_floor: bool = option(
        "--rounding-floor",
        help="With --check: also what rounding alone costs on these inputs, to tell a defect.",
    )
    layers_of: Path | None = option(
        "--check-layers MODEL", help="Compare every layer with MODEL's, and name the first bad one."
    )
    tolerance: float | None = tolerance_option()
    asked: GenerationOptions = group_of(GenerationOptions)
    save: Path | None = option(
        "--save FILE.npz", type=OutputPath(is_file=True), help="Write the outputs there."
    )

    def __post_init__(self) -> None:
        if self.with_floor and self.reference is None:
            raise click.UsageError("--rounding-floor is for --check MODEL")
        if self.steps is not None and (self.layers_of is not None or self.with_floor):
            raise click.UsageError(
                "--steps goes with --check alone: a layer or a floor is of one run"
            )

    @property
    def image(self) -> ImageOptions:
        """Return how an image becomes an input."""
        from adrenoc.check.inputs import ImageOptions

        return ImageOptions(mean=self.scale[0], std=self.scale[1])

    @property
    def options(self) -> RunOptions:
        """Return how the bundle runs. Raises OptionError where a variable of the environment says
        what it cannot."""
        from adrenoc.device.result import RunOptions

        hints = dict(hint.split("=") for hint in self.hints)
        return RunOptions(
            device=self.place.cl_device,
            repeat=self.repeat,
            sustain_s=self.sustain[0],
            pause_ms=self.sustain[1] * 1000,
            profile=self.profile or self.views.need_profile,
            recording=read_choice("ADRENOC_RECORD", "off") or "best",
            programs=choose_programs(self.place),
            perf_hint=hints.get("clock", ""),
            priority=hints.get("priority", ""),
            threads=int(read_number("ADRENOC_THREADS", 0.0, least=0.0, most=8.0)),
        )


@click.command("run", cls=HeavyCommand)
@give_options(RunGiven)
def run_command(given: RunGiven) -> int:
    """Run BUNDLE on an OpenCL device of this machine or of a server, time it and check it."""
    refuse_firmware(given.bundle)
    code = run_if_decoder(given)
    return _run_and_check(given) if code is None else code


def _run_and_check(given: RunGiven) -> int:
    """Run a bundle that is no decoder, compare, write and show; return the exit code."""
    from adrenoc.check.generation import note_other_file
    from adrenoc.cli.steps import draw_steps
    from adrenoc.device.compare import default_tolerance, is_float32
    from adrenoc.pages.run_page import run_parts, run_to_json

    reference, layers_of = given.reference, given.layers_of
    opened, told_of_signature = _open(given)
    several = draw_steps(
        opened,
        given.files,
        given.shapes,
        given.steps,
        model=reference or layers_of,
        seed=given.seed,
        image=given.image,
        trial=reference is not None and layers_of is None,
    )
    if reference is not None:
        several = several.run_reference(reference)
    options = given.options
    whole = _run(opened, given.place, several.first, options, save=given.save, steps=several.later)
    result = several.take_first(whole, given.save)
    result = replace(result, notes=(*result.notes, *told_of_signature))
    values = opened.manifest.options.values
    dtypes = str(values["storage_dtype"]), str(values["compute_dtype"])
    limit = default_tolerance(*dtypes) if given.tolerance is None else given.tolerance
    checked = several.judge(reference, opened, whole.outputs, tolerance=limit)
    once = replace(options, repeat=1, warmup=0, sustain_s=0.0, profile=False)
    if not is_float32(*dtypes):

        def run_again(sets: Sequence[Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
            return _run(opened, given.place, sets[0], once, save=None, steps=sets[1:]).outputs

        checked = several.sweep(reference, checked, run_again)
    if reference is not None and checked is not None:
        checked = note_other_file(checked, opened, reference)
    if layers_of is not None:
        from adrenoc.check.generation import check_layers

        with console.ConsoleReporter() as reporter:
            checked = check_layers(
                opened,
                layers_of,
                several.named,
                run=lambda made: _run(made, given.place, several.first, once, save=None).outputs,
                tolerance=limit,
                reporter=reporter,
            )
    written = write_run_views(opened, result, given.views, checked)
    floor = _measure_floor(given, opened, several, result) if given.with_floor else None

    more = [("written", str(path)) for path in written]
    told: dict[str, Any] = run_to_json(result, checked)
    if floor is not None:
        from adrenoc.pages.accuracy_page import finite, floor_text

        told["rounding_floor"] = finite(asdict(floor))
        more.append(("rounding floor", floor_text(floor)))
    console.tell(told, run_parts(opened, result, checked), Fields(pairs=more))
    if wants_json():
        return CheckFailedError.exit_code if checked and not checked.passed else 0
    if checked is not None:
        of_layers = layers_of is not None
        checked.raise_if_failed(in_float32=is_float32(*dtypes), of_layers=of_layers)
    return 0


def _open(given: RunGiven) -> tuple[Bundle, tuple[str, ...]]:
    """Open the bundle, or of one that holds several signatures what is of one, and say of which
    where nobody named it. Raises BundleError or OptionError where it is damaged, or has no such
    signature."""
    from adrenoc.bundle.buckets import open_signature, read_signatures
    from adrenoc.bundle.bundle import open_bundle

    opened = open_bundle(given.bundle)
    if given.signature is not None:
        return open_signature(opened, given.signature), ()
    names = read_signatures(opened)
    others = list_first(map(repr, names[1:]), between=", ")
    told = f"the signature {names[0]!r} ran; --signature picks another: {others}" if names else ""
    return opened, (told,) if told else ()


def _measure_floor(given: RunGiven, bundle: Bundle, several: Steps, result: RunResult) -> Floor:
    from adrenoc.check.accuracy.samples import floor_of_bundle

    assert given.reference is not None
    with console.ConsoleReporter() as reporter:
        return floor_of_bundle(
            bundle,
            given.reference,
            inputs=several.named,
            outputs=result.outputs,
            expected=several.expected[0],
            reporter=reporter,
        )


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
    from adrenoc.check.inputs import save_arrays
    from adrenoc.device.remote import run_remote
    from adrenoc.device.result import Progress
    from adrenoc.device.run import run_bundle

    progress = Progress()
    try:
        with reach(place) as address:
            run = run_bundle if address is None else partial(run_remote, address=address)
            return run(bundle, inputs=inputs, options=options, progress=progress, steps=steps)
    except AdrenocError as error:
        if progress.first_ms is not None:
            error.message += f" (before that {progress})"
        if save is not None and progress.outputs:
            save_arrays(save, progress.outputs)
        raise
