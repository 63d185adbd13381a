"""Records of options that commands share, and the types of their values; `--on`: where a bundle
runs, on a device here, a server, a server of a tracker, or a phone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.files.outputs import cache_errors
from adrenoc.base.files.read import OTHER_CACHE_FOLDER, cache_folder, spell_native_path
from adrenoc.base.host.variables import read_choice, read_number, read_path
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.guarded import PLACE_NAMES, InputPath, OutputPath, argument, option
from adrenoc.cli.model_params import (
    PRESET,
    TARGET,
    Parsed,
    read_fixed,
    read_input,
    read_shape,
    setting_param,
)
from adrenoc.ir.precision_policy import check_policy, read_policy

if TYPE_CHECKING:
    from adrenoc.base.files.resume import Resume
    from adrenoc.device.remote import RemoteAddress
    from adrenoc.device.result import ProgramOptions
    from adrenoc.importers.signature import Entry
    from adrenoc.ir.precision_policy import PrecisionPolicy
    from adrenoc.target.target import Target


_ADB, _TRACKER, _OPENCL = "adb", "tracker:", "opencl:"
MOST_SECONDS = 1e6
"""The most seconds that any wait may be told to last: clocks and sockets of systems take no
infinity."""


@dataclass(frozen=True, kw_only=True)
class PlaceChoice:
    """What `--on` says: `cl_device` of this machine, of the server at `where`, or of a phone. A
    server asks for `key`; of a tracker, that is the kind of device. `adb` is the phone's serial
    number, empty for the only one and None for no phone."""

    text: str = ""
    cl_device: str = ""
    where: str = ""
    tracker: str = ""
    key: str = ""
    adb: str | None = None

    @property
    def is_remote(self) -> bool:
        """Return whether it is another machine."""
        return bool(self.where or self.tracker) or self.adb is not None

    def address(self, timeout_s: float) -> RemoteAddress | None:
        """Return where a server is, and how long to wait for it; None of others. Raises OptionError
        where an address is of another form, click.UsageError where a tracker is named without a
        kind of device."""
        from adrenoc.device.remote import RemoteAddress

        if self.where:
            return RemoteAddress.parse(self.where, key=self.key, timeout_s=timeout_s)
        if not self.tracker:
            return None
        if not self.key:
            raise click.UsageError(
                f"--on {self.text} needs a kind of device: tracker:KIND@HOST:PORT"
            )
        return RemoteAddress.parse(self.tracker, key=self.key, tracked=True, timeout_s=timeout_s)


HERE = PlaceChoice()


def read_place(text: str) -> PlaceChoice:
    """Read `adb[:SERIAL]`, `[KEY@]HOST:PORT`, `tracker:KIND@HOST:PORT` or `opencl:NUMBER|NAME`;
    addresses are read where they are used."""
    kind, _, serial = text.partition(":")
    if kind == _ADB and "@" not in text:
        return PlaceChoice(text=text, adb=serial)
    if text.startswith(_OPENCL):
        return PlaceChoice(text=text, cl_device=text.removeprefix(_OPENCL))
    key, _, where = text.removeprefix(_TRACKER).rpartition("@")
    where, _, cl_device = where.partition("/")
    tracked = text.startswith(_TRACKER)
    return PlaceChoice(
        text=text,
        where="" if tracked else where or ":",
        tracker=where or ":" if tracked else "",
        key=key,
        cl_device=cl_device,
    )


_FORMS = (
    "adb or adb:SERIAL, a phone; [KEY@]HOST:PORT, where `adrenoc runtime serve` runs; "
    "tracker:KIND@HOST:PORT, a server that TVM's tracker knows; opencl:NUMBER or opencl:NAME, a "
    "device here (adrenoc doctor).  --rpc HOST:PORT and --adb[=SERIAL] say the same"
)


def place_option() -> Any:
    """Declare a field as the place where a command works."""
    return option(
        *PLACE_NAMES,
        type=Parsed(read_place),
        default=HERE,
        metavar="PLACE",
        help=f"Where to run: {_FORMS}.  [default: here, on the first with images]",
    )


def places_option(text: str) -> Any:
    """Declare a field as the places where a command works side by side."""
    return option(
        *PLACE_NAMES,
        type=Parsed(read_place),
        metavar="PLACE",
        help=f"{text}; may be repeated: {_FORMS}.",
    )


def timeout_s(usual: float = 60.0) -> float:
    """Return how long to wait for any answer (s). Raises OptionError where ADRENOC_TIMEOUT says no
    such time."""
    return read_number("ADRENOC_TIMEOUT", usual, least=0.1, most=MOST_SECONDS)


@contextmanager
def reach(place: PlaceChoice, wait_s: float | None = None) -> Iterator[RemoteAddress | None]:
    """Hold the place's address while the block runs; starts a server on a phone, None is here.
    Raises AdbError where there is no such phone, or it does not run our server; DependencyError
    where adbutils, or what builds the runtime, is missing."""
    wait_s = timeout_s() if wait_s is None else wait_s
    if place.adb is None:
        yield place.address(wait_s)
        return
    from adrenoc.device.adb import adb_server, pick_device
    from adrenoc.native.android.runtime_build import find_runtime

    phone = pick_device(place.adb, timeout_s=wait_s)
    with console.ConsoleReporter() as reporter:
        runtime = read_path("ADRENOC_RUNTIME") or find_runtime(phone.abi, reporter).folder
    with adb_server(phone, runtime, timeout_s=wait_s) as address:
        yield address


def program_folder(place: PlaceChoice) -> str:
    """Return where built kernels are kept: in the cache folder here, where a server wants there.
    Raises OutputError where the cache folder is not there and cannot be made."""
    if place.is_remote:
        return ""
    folder = cache_folder() / "programs"
    with cache_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    return spell_native_path(folder, hint=OTHER_CACHE_FOLDER)


def choose_programs(place: PlaceChoice) -> ProgramOptions | None:
    """Return how built kernels are kept for the next run; None where they are not. Raises
    OptionError where ADRENOC_PROGRAM_CACHE says no such way."""
    from adrenoc.device.result import ProgramOptions

    way = read_choice("ADRENOC_PROGRAM_CACHE", "off", "qualcomm")
    if way == "off":
        return None
    return ProgramOptions(folder=program_folder(place), qualcomm_rule=way == "qualcomm")


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
