"""Types of options: a device, a preset, shapes of inputs, times, lists of numbers; and those of the
form NAME=VALUE whose names are ours: `--set`, `--limit`, `--sample`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from adrenoc.base.errors import TargetError
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.bundle.chat import RANGES, Sampling
from adrenoc.cli.guarded import option

if TYPE_CHECKING:
    from adrenoc.check.inputs import InputFile
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic in each click that is allowed


class Parsed(ParamType):
    """What a function reads of a word; anything but a text has been read. Shells complete what is
    typed by `names`, each with what it stands for."""

    def __init__(
        self,
        read: Callable[[str], Any],
        names: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        self.name, self._read, self.list_names = read.__name__, read, names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a word."""
        return self._read(value) if isinstance(value, str) else value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return all names that begin so."""
        known = self.list_names()
        return [CompletionItem(name, help=s) for name, s in known if name.startswith(incomplete)]


def read_target(text: str) -> Target:
    """Look up a device to compile for, by name or by a file. Raises TargetError where there is no
    such device, or it is none that the command takes."""
    from adrenoc.target.target import Target

    found = read_targets(text)
    if not isinstance(found, Target):
        raise TargetError(
            f'"{text}" names several devices; this command is for one',
            hint="name one, such as --device adreno:750; adrenoc compile takes several",
        )
    return found


def read_targets(text: str) -> Target | DeviceSet:
    """Look up one, or several; behind a + stands the report of a driver to do without. Raises
    TargetError where there is no such device, or it is none that the command takes."""
    from adrenoc.firmware.mcu.core import is_core, load_core
    from adrenoc.target.device_set import apply_report_to, find_device_set, read_report
    from adrenoc.target.gpu_file import own_path
    from adrenoc.target.target import load_target

    name, _, file = text.rpartition("+")
    if name and file.endswith(".json"):
        report = Path(file)
        return apply_report_to(read_targets(name), read_report(report), report)
    if own_path(text) is None and is_core(text):
        core = load_core(text)
        raise TargetError(
            f"{core.name} is no GPU; this command is for GPUs",
            hint=f"adrenoc firmware compile MODEL --device {core.name}",
        )
    return find_device_set(text) or load_target(text)


def read_core(text: str) -> Core:
    """Look up a microcontroller or a CPU. Raises TargetError where there is none of this name."""
    from adrenoc.firmware.mcu.core import core_names, load_core

    try:
        return load_core(text)
    except TargetError as error:
        if text.lower() not in core_names() and not text.lower().startswith("cortex-m"):
            error.hint = f"adrenoc compile MODEL --device {text}, where it is a GPU"
        raise


def read_device(text: str) -> Target | Core:
    """Look up whatever can be compiled for: a GPU, a microcontroller or a CPU. Raises TargetError
    where there is none of this name."""
    from adrenoc.firmware.mcu.core import is_core
    from adrenoc.target.gpu_file import own_path

    is_for_core = own_path(text) is None and is_core(text)
    return read_core(text) if is_for_core else read_target(text)


def read_preset(text: str) -> str:
    """Return a preset's name; it is looked up where the options are resolved."""
    return text


def _list_targets() -> Iterable[tuple[str, str]]:
    from adrenoc.target.target import list_targets

    return ((target.name, target.title) for target in list_targets())


def _list_cores() -> Iterable[tuple[str, str]]:
    from adrenoc.firmware.mcu.core import core_names

    return ((name, "") for name in core_names())


def _list_presets() -> Iterable[tuple[str, str]]:
    from adrenoc.ir.options import list_presets

    return ((preset.name, preset.title) for preset in list_presets())


TARGET, TARGETS = Parsed(read_target, _list_targets), Parsed(read_targets, _list_targets)
DEVICE, CORE = Parsed(read_device, _list_targets), Parsed(read_core, _list_cores)
PRESET = Parsed(read_preset, _list_presets)


def read_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `NAME:D,D,...`, the shape of an input; another form is a ShapeError."""
    from adrenoc.ir.options import parse_shape

    return parse_shape(text)


def read_fixed(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`, an input that is a constant; another form is an OptionError."""
    from adrenoc.importers.signature import parse_fixed

    return parse_fixed(text)


def read_input(text: str) -> InputFile:
    """Read `NAME=FILE`, or `FILE` of a model with one input; another form is an InputError."""
    from adrenoc.check.inputs import InputFile

    return InputFile.parse(text)


def read_scale(text: str) -> tuple[tuple[float, ...], ...]:
    """Read `MEAN/STD`, each numbers between commas: one for all channels or one for each."""
    try:
        mean, std = (tuple(map(float, part.split(","))) for part in text.split("/"))
    except ValueError:
        example = "such as 0.5/0.25 or 0,0,0/1,1,1"
        raise click.BadParameter(f"{text!r} is no MEAN/STD, {example}") from None
    return mean, std


_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}


def read_duration(text: str) -> float:
    """Read `90`, `90s`, `30m` or `2h`, in seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|[smh]?)", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration, such as 90s, 30m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def read_sustain(text: str) -> tuple[float, float]:
    """Read `60s`, or `60s/33ms` with pauses between; as seconds."""
    whole, _, pause = text.partition("/")
    return read_duration(whole), read_duration(pause) if pause else 0.0


def parse_numbers(text: str, what: str, *, least: int) -> tuple[int, ...]:
    """Read `16,128`, whole numbers from `least` on; `what` names them with an example. Raises
    click.BadParameter where it is no such list."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise click.BadParameter(f"{text!r} is no list of {what}")
    return tuple(int(part) for part in parts)


class NamedValueParam(Parsed):
    """`NAME=VALUE` of names that are listed; `-` and `_` in them are the same. `what` says in
    refusals what a name is, `known` gives each as it is typed with what it stands for, `read` reads
    the value of one, and `knows_more` tells of names that cannot be listed."""

    def __init__(
        self,
        what: str,
        known: Callable[[], Mapping[str, str]],
        read: Callable[[str, str], Any],
        knows_more: Callable[[str], bool] = lambda name: False,
    ) -> None:
        super().__init__(self._read_pair, lambda: ((f"{n}=", text) for n, text in known().items()))
        self.name = "name=value"
        self._what, self._known, self._read_value, self._knows_more = what, known, read, knows_more

    def knows(self, name: str) -> bool:
        """Return whether a name, with `_` in it, is one of them."""
        typed = {name.replace("-", "_") for name in self._known()}
        return name in typed or self._knows_more(name)

    def _read_pair(self, word: str) -> tuple[str, Any]:
        """Read the name, as a field has it, and the value."""
        typed, equals, text = word.partition("=")
        name, known = typed.replace("-", "_"), [*self._known()]
        if not self.knows(name):
            said = f"{typed!r} is no {self._what}{did_you_mean(typed, known)}, expected "
            raise click.BadParameter(said + ", ".join(known))
        if not equals:
            raise click.BadParameter(f"{word!r} has no value, expected {typed}=VALUE")
        return name, self._read_value(name, text)


def setting_param(*names: str) -> NamedValueParam:
    """Take options of a compilation that presets set too: all of `SETTINGS`, or those `names`."""

    def list_known() -> Mapping[str, str]:
        from adrenoc.ir.options import SETTINGS

        return {name: SETTINGS[name] for name in names or SETTINGS}

    def read(name: str, text: str) -> Any:
        from adrenoc.ir.options import read_setting

        return read_setting(name, text)

    return NamedValueParam("setting here", list_known, read)


def limit_option(names: Mapping[str, bool], text: str) -> Any:
    """Declare a field of limits from 0 on, each given once by its name, with whether it counts."""

    def read(name: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        typed = name.replace("_", "-")
        if not (number >= 0 and math.isfinite(number)) or (names[typed] and number % 1):
            kind = "a whole number" if names[typed] else "a number"
            raise click.BadParameter(f"{typed} is {value!r}, expected {kind} from 0 on")
        return int(number) if names[typed] else number

    return option(
        "--limit NAME=N",
        type=NamedValueParam("limit", lambda: dict.fromkeys(names, ""), read),
        help=f"{text}; repeat it for more.  NAME is one of {', '.join(names)}.",
        callback=lambda _ctx, _param, limits: dict(limits),
    )


Said: TypeAlias = tuple[tuple[str, float], ...]
"""Names and values, as they were typed."""
_BIAS = "bias."
_DRAWN = ("top_k", "top_p", "min_p")
"""What says nothing where the likeliest token is taken."""


def _read_sample(name: str, text: str) -> float:
    least, most = RANGES.get(name, (-1e30, 1e30))
    kind = int if name == "top_k" else float
    try:
        number = kind(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise click.BadParameter(f"{name} is {text!r}, expected {least:g} to {most:g}")
    return number


def sample_option() -> Any:
    """Declare a field as what is said of how tokens are picked."""
    return option(
        "--sample NAME=VALUE",
        type=NamedValueParam(
            "way to pick tokens",
            lambda: dict.fromkeys((*RANGES, f"{_BIAS}TOKEN"), ""),
            _read_sample,
            knows_more=lambda name: name.startswith(_BIAS) and name.removeprefix(_BIAS).isdecimal(),
        ),
        multiple=True,
        help="How tokens are picked: temperature (0, the likeliest; else drawn by --seed), "
        f"{', '.join([*RANGES][1:])}, or {_BIAS}TOKEN, which is added to a token's logit; may be "
        "repeated.",
    )


def apply_sample(sampling: Sampling, said: Said) -> Sampling:
    """Return how tokens are picked where that was said of them."""
    fields: Mapping[str, Any] = {n: v for n, v in said if not n.startswith(_BIAS)}
    bias = {int(n.removeprefix(_BIAS)): v for n, v in said if n.startswith(_BIAS)}
    return replace(sampling, **fields, bias=(*sampling.bias, *bias.items()))


def check_sample(sampling: Sampling, said: Said) -> None:
    """Refuse what says nothing at a temperature of 0. Raises click.UsageError naming it."""
    undrawn = [name for name, _ in said if name in _DRAWN]
    if not sampling.temperature and undrawn:
        raise click.UsageError(f"--sample {undrawn[0]} is for --sample temperature=T above 0")
