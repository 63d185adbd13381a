"""Types of the options that say what to compile for: a device, a preset, shapes of inputs.

Times on the command line.

Lists of numbers on the command line of decoders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from adrenoc.base.errors import TargetError

if TYPE_CHECKING:
    from adrenoc.check.inputs import InputFile
    from adrenoc.cli.shape_ranges import ShapeRange
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic in each click that is allowed


class NamedParam(ParamType):
    """A name out of a list, with which shells complete what is typed."""

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List each name with what it stands for."""
        raise NotImplementedError

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return all names that begin so."""
        known = self.list_names()
        return [CompletionItem(name, help=s) for name, s in known if name.startswith(incomplete)]


class TargetParam(NamedParam):
    """A device to compile for, by name or by a file; an unknown name is a TargetError."""

    name = "device"

    def __init__(self, *, sets: bool = False) -> None:
        """Take one device, or with `sets` several."""
        self.sets = sets

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Target | Core | DeviceSet:
        """Look the name up; behind a + stands the report of a driver to do without."""
        from adrenoc.target.device_report import read_report
        from adrenoc.target.device_set import DeviceSet, apply_report_to
        from adrenoc.target.target import Target

        if isinstance(value, Target | DeviceSet):
            return value
        name, plus, file = value.rpartition("+")
        if not plus or not file.endswith(".json"):
            return self._load(value)
        report = Path(file)
        return apply_report_to(self._load(name), read_report(report), report)

    def _load(self, name: str) -> Target | DeviceSet:
        """Look a name up.

        Raises:
            TargetError: there is no such device, or none that the command takes.
        """
        from adrenoc.firmware.mcu.core import is_core, load_core
        from adrenoc.target.device_set import find_device_set
        from adrenoc.target.own_file import own_path
        from adrenoc.target.target import load_target

        several = find_device_set(name)
        if several is not None:
            if self.sets:
                return several
            raise TargetError(
                f'"{name}" names several devices; this command is for one',
                hint="name one, such as --device adreno:750; adrenoc compile takes several",
            )
        if own_path(name) is None and is_core(name):
            core = load_core(name)
            raise TargetError(
                f"{core.name} is no GPU; this command is for GPUs",
                hint=f"adrenoc firmware compile MODEL --device {core.name}",
            )
        return load_target(name)

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List all devices with their titles."""
        from adrenoc.target.target import list_targets

        return ((target.name, target.title) for target in list_targets())


class CoreParam(NamedParam):
    """A microcontroller or a CPU by its name; an unknown name is a TargetError."""

    name = "core"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Core:
        """Look the name up."""
        from adrenoc.firmware.mcu.core import Core, core_names, load_core

        if isinstance(value, Core):
            return value
        try:
            return load_core(value)
        except TargetError as error:
            if value.lower() not in core_names() and not value.lower().startswith("cortex-m"):
                error.hint = f"adrenoc compile MODEL --device {value}, where it is a GPU"
            raise

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List all cores."""
        from adrenoc.firmware.mcu.core import core_names

        return ((name, "") for name in core_names())


class DeviceParam(TargetParam):
    """Whatever can be compiled for: a GPU, a microcontroller or a CPU."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Target | Core | DeviceSet:
        """Look the name up."""
        from adrenoc.firmware.mcu.core import Core, is_core
        from adrenoc.target.own_file import own_path

        if isinstance(value, Core) or (own_path(value) is None and is_core(value)):
            return CoreParam().convert(value, param, ctx)
        return super().convert(value, param, ctx)


class PresetParam(NamedParam):
    """The name of a preset; it is looked up where the options are resolved."""

    name = "preset"

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List all presets with their titles."""
        from adrenoc.ir.options import list_presets

        return ((preset.name, preset.title) for preset in list_presets())


class Parsed(ParamType):
    """What a function reads of a word; anything but a text has been read."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.name, self._read = read.__name__, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a word."""
        return self._read(value) if isinstance(value, str) else value


def read_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `NAME:D,D,...`, the shape of an input; another form is a ShapeError."""
    from adrenoc.ir.options import parse_shape

    return parse_shape(text)


def read_shape_or_range(text: str) -> tuple[str, tuple[int, ...]] | ShapeRange:
    """Read the same, where a D may be a range of extents."""
    from adrenoc.cli.shape_ranges import parse_shape_or_range

    return parse_shape_or_range(text)


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
    """Read `16,128`, whole numbers from `least` on; `what` names them with an example.

    Raises:
        click.BadParameter: it is no such list.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise click.BadParameter(f"{text!r} is no list of {what}")
    return tuple(int(part) for part in parts)
