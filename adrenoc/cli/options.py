"""Options that commands share, and the types of their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource

from adrenoc.cli.entry_options import entry_options
from adrenoc.cli.guarded import InputPath, OutputPath
from adrenoc.cli.model_params import (
    ParamType,
    PresetParam,
    ShapeParam,
    ShapeRangeParam,
    TargetParam,
)
from adrenoc.target.system import SYSTEMS

if TYPE_CHECKING:
    from adrenoc.check.inputs import InputFile
    from adrenoc.ir.precision_policy import PrecisionPolicy
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


MOST_SECONDS = 1e6
"""The most seconds that any wait may be told to last: clocks and sockets of systems take no
infinity."""


class FiniteRange(click.FloatRange):
    """A number within a range; neither infinite nor none, which compare with nothing."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class NumbersParam(ParamType):
    """Numbers between commas: one for all channels or one for each."""

    name = "x,y,z"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Read the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers, such as 0.485,0.456,0.406", param, ctx)


class InputParam(ParamType):
    """`NAME=FILE`, or `FILE` alone for a model with one input; another form is an InputError."""

    name = "[name=]file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> InputFile:
        """Split the name from the file."""
        from adrenoc.check.inputs import InputFile

        return value if isinstance(value, InputFile) else InputFile.parse(value)


def path_argument(name: str, *, replaced: bool = False) -> Decorator:
    """A file or folder that commands read; whether it exists is for the layers below to say."""
    return click.argument(name, type=InputPath(replaced=replaced))


_REPORT, _SET, _SYSTEM = "adrenoc.device_report", "adrenoc.device_set", "adrenoc.system"
"""Where a command keeps these files until its device is read."""


def device_option(*, sets: bool = False) -> Decorator:
    """`--device`: what to compile for.

    With it goes `--device-report`, what the driver was found to get wrong: the device that the
    command gets does without that.  With `sets` it may be several devices (a DeviceSet), which
    `--device-set` has from a file.
    """
    several = "; several between commas, or `all`, go into one bundle" if sets else ""
    report = click.option(
        "--device-report",
        type=InputPath(),
        is_eager=True,  # read before the device
        expose_value=False,
        callback=lambda ctx, _, path: ctx.meta.update({_REPORT: path}),
        metavar="FILE",
        help="Do without what adrenoc device verify found wrong on the device.",
    )
    device = click.option(
        "--device",
        "target",
        type=TargetParam(sets=sets),
        callback=lambda ctx, _, target: _apply_system(
            _apply_report(_read_set(ctx, target), ctx.meta.get(_REPORT)), ctx.meta.get(_SYSTEM)
        ),
        default="adreno",
        show_default=True,
        metavar="DEVICE",
        help=f"What to compile for: adreno, adreno:750, adreno:sm8650, host "
        f"(adrenoc targets), or a target file of your own, FILE.toml{several}.",
    )
    if not sets:
        return join_options(device, report)
    listed = click.option(
        "--device-set",
        type=InputPath(),
        is_eager=True,
        expose_value=False,
        callback=lambda ctx, _, path: ctx.meta.update({_SET: path}),
        metavar="FILE",
        help="Several devices for one bundle, as [[device]] with target, and report for one "
        "driver, list them.",
    )
    return join_options(device, listed, report)


AnyTarget: TypeAlias = "Target | DeviceSet"


def _read_set(ctx: click.Context, target: AnyTarget) -> AnyTarget:
    """The devices of `--device-set`, in place of `--device`."""
    path: Path | None = ctx.meta.get(_SET)
    if path is None:
        return target
    if ctx.get_parameter_source("target") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--device and --device-set exclude each other")
    from adrenoc.target.device_set import read_device_set

    return read_device_set(path)


def _apply_report(target: AnyTarget, report: Path | None) -> AnyTarget:
    """The target without what a report says that its driver gets wrong.

    Of several that of the report's GPU is then for its driver alone.

    Raises:
        TargetError: the report is damaged, or of another GPU.
    """
    if report is None:
        return target
    from adrenoc.target.device_report import apply_report, read_report
    from adrenoc.target.device_set import DeviceSet, add_report

    if isinstance(target, DeviceSet):
        return add_report(target, read_report(report), report)
    return apply_report(target, read_report(report), report)


def _apply_system(target: AnyTarget, system: str | None) -> AnyTarget:
    """The target with its CPU part for a system that was named.

    Raises:
        click.UsageError: it is not for a phone's or a board's GPU.
    """
    if system is None:
        return target
    from adrenoc.target.device_set import DeviceSet, put_on_system
    from adrenoc.target.target import Target

    if isinstance(target, DeviceSet) and not target.common.host:
        return put_on_system(target, system)
    if isinstance(target, Target) and not target.host:
        return put_on_system(target, system)
    raise click.UsageError("--os is for GPUs of Snapdragons: --device adreno")


def policy_of(path: Path | None, model: Path, preset: str | None) -> PrecisionPolicy | None:
    """The precision policy in a file, if it is one for this model and preset.

    Raises:
        PrecisionPolicyError: it is damaged, or for another model or preset.
    """
    if path is None:
        return None
    from adrenoc.importers.formats import find_model_files
    from adrenoc.ir.precision_policy import check_policy, read_policy

    policy = read_policy(path)
    digest = find_model_files(model).sha256()
    check_policy(policy, path, model=model, sha256=digest, preset=preset)
    return policy


def preset_option() -> Decorator:
    """`--preset`: a named set of options."""
    return click.option(
        "--preset",
        type=PresetParam(),
        metavar="PRESET",
        help="A named set of options (adrenoc presets).  [default: mixed]",
    )


def shape_option(text: str = "", *, ranges: bool = False) -> Decorator:
    """`--shape`: of inputs with dynamic dimensions, with `ranges` a range of shapes too."""
    more = ", ranges too (1..8, 64..256/64, 1|4)" if ranges else ""
    usual = f"Shape of an input with dynamic dimensions{more}; repeat it for more inputs."
    return click.option(
        "--shape",
        "shapes",
        type=ShapeRangeParam() if ranges else ShapeParam(),
        multiple=True,
        metavar="NAME:D,D,...",
        help=text or usual,
    )


def model_options(*, sets: bool = False, ranges: bool = False, systems: bool = False) -> Decorator:
    """A model, what to compile it for, how, and for which shapes."""
    asked = device_option(sets=sets), preset_option(), shape_option(ranges=ranges)
    system = [_system_option()] if systems else []
    return join_options(path_argument("model"), *asked, *system, entry_options())


def _system_option() -> Decorator:
    """`--os`: the system of the device, which the command's target is then for."""
    return click.option(
        "--os",
        "system",
        type=click.Choice(SYSTEMS),
        is_eager=True,  # read before the device
        expose_value=False,
        callback=lambda ctx, _, system: ctx.meta.update({_SYSTEM: system}),
        help="The system of the device; linux is for boards and laptops with a Snapdragon, arm64.  "
        "[default: android]",
    )


def join_options(*options: Decorator) -> Decorator:
    """Options as one, listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def give_record(record: type[Any]) -> Decorator:
    """Hand a command its options as one `record`, a dataclass with a field for each of them."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(ctx: click.Context, /, **given: Any) -> Any:
            return command(ctx, record(**given))

        return run

    return decorate


def seed_option(text: str, *, default: int = 0) -> Decorator:
    """`--seed`: what random numbers begin from."""
    kind = click.IntRange(0, 2**64 - 1)
    return click.option("--seed", type=kind, default=default, show_default=True, help=text)


def inputs_option(text: str) -> Decorator:
    """`--inputs`: a folder of sets of inputs."""
    kind = InputPath(pattern="*.np[yz]")
    return click.option("--inputs", "folder", type=kind, metavar="FOLDER", help=text)


_MOST_EFFORT = 1000.0
_MOST_MIB = 1 << 30


def effort_option(before: str = "") -> Decorator:
    """`--effort`: how far a search for a policy goes."""
    first = "how" if before else "How"
    return click.option(
        "--effort",
        type=FiniteRange(min=0.0, max=_MOST_EFFORT),
        default=1.0,
        show_default=True,
        help=f"{before}{first} much work the search for a policy may do, counted and not timed: "
        "1 is some ten minutes of one core.",
    )


def accuracy_options() -> Decorator:
    """`--accuracy` and what it takes: an error to stay within, on what, and how much work."""
    tolerance = click.option(
        "--accuracy",
        type=FiniteRange(min=0.0, min_open=True),
        metavar="TOL",
        help="Keep what it takes in float32 for an error of at most TOL of each output's range; "
        "runs the kernels and the reference here.",
    )
    return join_options(
        tolerance,
        inputs_option("For --accuracy: sets of inputs, .npz or .npy files.  [default: random]"),
        seed_option("For --accuracy: random inputs."),
        effort_option("For --accuracy: "),
    )


def clml_options() -> Decorator:
    """`--clml` and `--clml-version`: what goes to Qualcomm's OpenCL ML library."""
    mode = click.option(
        "--clml",
        type=click.Choice(("auto", "all", "off")),
        help="Offload to Qualcomm's OpenCL ML: what wins after its copies, all it can, or "
        "nothing.  [default: off]",
    )
    version = click.option(
        "--clml-version",
        type=int,
        metavar="N",
        help="The CLML interface of the device, 1 to 5.  [default: the target's, else 3]",
    )
    return join_options(mode, version)


def memory_option() -> Decorator:
    """`--max-memory-mib`: what the GPU may hold while the model runs."""
    return click.option(
        "--max-memory-mib",
        type=click.IntRange(min=1, max=_MOST_MIB),
        metavar="M",
        help="GPU memory to stay within: beyond it, plan again or fail.",
    )


def model_explorer_option(what: str) -> Decorator:
    """`--model-explorer`: figures to show over the plain model."""
    return click.option(
        "--model-explorer",
        "explorer",
        type=OutputPath(is_file=True),
        metavar="FILE.json",
        help=f"Write {what} as node data for Model Explorer, by tensor: a file a figure, "
        "FILE.FIGURE.json.",
    )
