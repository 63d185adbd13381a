"""Records of options that commands share, and the types of their values.

`--resume`: a command that takes long goes on where it was killed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.guarded import InputPath, OutputPath
from adrenoc.cli.model_params import PRESET, TARGET, Parsed, read_fixed, read_input, read_shape
from adrenoc.cli.named_values import setting_param
from adrenoc.cli.records import argument, option
from adrenoc.ir.precision_policy import check_policy, read_policy

if TYPE_CHECKING:
    from adrenoc.base.files.resume import Resume
    from adrenoc.importers.signature import Entry
    from adrenoc.ir.precision_policy import PrecisionPolicy
    from adrenoc.target.target import Target


DEVICE_HELP = (
    "What to compile for: adreno, adreno:750, adreno:sm8650, host (adrenoc targets), or a target "
    "file of your own, FILE.toml.  DEVICE+REPORT.json does without what adrenoc device verify "
    "found wrong"
)


class FiniteRange(click.FloatRange):
    """A number within a range; neither infinite nor none, which compare with nothing."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def preset_option() -> Any:
    """Declare a field as a named set of options."""
    return option(
        "--preset PRESET",
        type=PRESET,
        help="A named set of options (adrenoc presets).  [default: mixed]",
    )


def shape_option(text: str, **declared: Any) -> Any:
    """Declare a field as shapes of inputs."""
    usual = {"type": Parsed(read_shape), "multiple": True, "metavar": "NAME:D,D,..."}
    return option("--shape", help=text, **{**usual, **declared})


def seed_option(text: str) -> Any:
    """Declare a field as what random numbers begin from."""
    kind = click.IntRange(0, 2**64 - 1)
    return option("--seed", type=kind, default=0, help=text)


def input_option(text: str) -> Any:
    """Declare a field as files of inputs."""
    kind = Parsed(read_input)
    return option("--input [NAME=]FILE", type=kind, help=text)


def inputs_option(text: str) -> Any:
    """Declare a field as a folder of sets of inputs."""
    kind = InputPath(pattern="*.np[yz]")
    return option("--inputs FOLDER", type=kind, help=text)


def output_option(text: str, **declared: Any) -> Any:
    """Declare a field as the file or folder that a command writes."""
    usual = {"type": OutputPath(is_file=True), "metavar": "FILE"}
    return option("-o", "--output", help=text, **{**usual, **declared})


def html_option(text: str) -> Any:
    """Declare a field as the page of a result."""
    kind = OutputPath(is_file=True)
    return option("--html FILE", type=kind, help=f"{text}: one file, for any browser.")


def junit_option(what: str) -> Any:
    """Declare a field as a result for continuous integration."""
    return option(
        "--junit FILE",
        type=OutputPath(is_file=True),
        help=f"{what} as JUnit's XML, for continuous integration.",
    )


def settings_option(text: str, *names: str) -> Any:
    """Declare a field as options that presets set too: all, or those `names`."""
    return option(
        "--set NAME=VALUE",
        type=setting_param(*names),
        callback=lambda _ctx, _param, settings: dict(settings),
        help=text,
    )


def context_option(more: str = "") -> Any:
    """Declare a field as the rows of a decoder's caches; `more` is what else is to be known."""
    return option(
        "--context N",
        type=click.IntRange(min=1),
        help=f"Of a decoder with caches: their rows{more}.  [default: genai_config.json's, 4096 at "
        "most]",
    )


def tolerance_option() -> Any:
    """Declare a field as the largest error of a run."""
    return option(
        "--tolerance",
        type=FiniteRange(min=0.0),
        help="Largest error over the output's range.  [default: 1e-4 in fp32, else 1e-2]",
    )


def port_option(usual: int) -> Any:
    """Declare a field as the port that a server listens on."""
    kind = click.IntRange(0, 65535)
    return option("--port", type=kind, default=usual, help="The port; 0 takes any free one.")


def repeat_option() -> Any:
    """Declare a field as the number of timed runs."""
    return option("--repeat", type=click.IntRange(min=1), default=10, help="Runs to time.")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A model, what to compile it for, how, and for which shapes."""

    path: Path = argument(metavar="MODEL")
    target: Target = option(
        "--device DEVICE", type=TARGET, default="adreno", help=f"{DEVICE_HELP}."
    )
    preset: str | None = preset_option()
    settings: dict[str, Any] = settings_option(
        "An option that presets set too, such as winograd=false or pool_textures=true (adrenoc "
        "presets lists them); repeat it for more."
    )
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = shape_option(
        "Shape of an input with dynamic dimensions; repeat it for more inputs."
    )
    fixed: tuple[tuple[str, str], ...] = option(
        "--fix NAME=VALUE",
        type=Parsed(read_fixed),
        help="Make an input that is a setting a constant, as a rate or a flag; an If on it is "
        "decided.  Repeat it for more inputs.",
    )
    signature: str = option(
        "--signature NAME",
        default="",
        help="Of a TFLite file with several signatures: which.  [default: the first graph's]",
    )

    @property
    def dtype_of_file(self) -> str:
        """Return of which numbers the file of a folder is to be; empty: the usual one."""
        return ""

    @property
    def model(self) -> Path:
        """Return the model file: of a folder of models, that of the numbers that are asked for.
        Raises as `choose_model` does."""
        from adrenoc.importers.containers import choose_model

        return choose_model(self.path, self.dtype_of_file)

    @property
    def entry(self) -> Entry:
        """Return how the model is entered."""
        from adrenoc.importers.signature import Entry

        return Entry(fixed=self.fixed, signature=self.signature)

    @property
    def asked_words(self) -> str:
        """Return the options that tell which kernels there are, as they are typed."""
        from adrenoc.ir.options import list_entered, show_setting

        words = [f"--preset {self.preset}"] if self.preset is not None else []
        for name, setting in self.settings.items():
            words.append(f"--set {quote_word(f'{name}={show_setting(setting)}')}")
        words += list_entered(self.shapes, self.fixed, self.signature)
        return "".join(f" {word}" for word in words)


@dataclass(frozen=True, kw_only=True)
class EnteredModel(ModelOptions):
    """Names also which of several models in a folder is meant."""

    dtype: str = option(
        "--dtype KIND",
        default="",
        help="Where MODEL is a folder of models (onnx/model*.onnx): of which numbers, such as "
        "fp16, q8 or q4.  [default: fp32]",
    )

    @property
    def dtype_of_file(self) -> str:
        """Return of which numbers the file of a folder is to be; empty: the usual one."""
        return self.dtype


def policy_of(path: Path | None, model: Path, preset: str | None) -> PrecisionPolicy | None:
    """Read the precision policy in a file, if it is one for this model and preset. Raises
    PrecisionPolicyError where it is damaged, or for another model or preset."""
    if path is None:
        return None
    from adrenoc.importers.formats import find_model_files

    policy = read_policy(path)
    digest = find_model_files(model).sha256()
    check_policy(policy, path, model=model, sha256=digest, preset=preset)
    return policy


def resume_option() -> Any:
    """Declare a field as where a command keeps what it has done."""
    return option(
        "--resume FILE",
        type=OutputPath(is_file=True),
        help="Keep there what was done so far, and go on from it if the command was killed; FILE "
        "is removed at the end.",
    )


def open_resume(path: Path | None) -> Resume:
    """Open what such a file has. Raises OutputError where it cannot be written, is something else,
    or another command's now."""
    from adrenoc.base.files.resume import Resume

    return Resume(path)


def finish_resumed(resume: Resume, pieces: str) -> None:
    """Tell what was done before, and remove the file."""
    if resume.taken:
        told = f"{resume.taken} {pieces} are of before the command was interrupted"
        console.print_step("resumed", told)
    resume.finish()
