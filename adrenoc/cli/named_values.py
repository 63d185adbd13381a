"""Options of the form NAME=VALUE whose names are ours: `--set`, `--limit` (and `--sample`).

`--sample NAME=VALUE`: how tokens are picked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import click

from adrenoc.base.text.spelling import did_you_mean
from adrenoc.bundle.sampling import RANGES, Sampling
from adrenoc.cli.model_params import NamedParam
from adrenoc.cli.records import option


class NamedValueParam(NamedParam):
    """`NAME=VALUE` of names that are listed; `-` and `_` in them are the same."""

    name = "name=value"
    what = "name"
    """What each name is, for refusals."""

    def _known(self) -> Mapping[str, str]:
        """Return each name as it is typed, and what it stands for."""
        raise NotImplementedError

    def knows(self, name: str) -> bool:
        """Return whether a name, with `_` in it, is one of them."""
        return name in {typed.replace("-", "_") for typed in self._known()}

    def _read(self, name: str, text: str) -> Any:
        """Read the value of a known name.

        Raises:
            click.BadParameter: the name takes no such value.
        """
        raise NotImplementedError

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Read the name, as a field has it, and the value."""
        if isinstance(value, tuple):
            return value
        typed, equals, text = value.partition("=")
        name, known = typed.replace("-", "_"), [*self._known()]
        if not self.knows(name):
            said = f"{typed!r} is no {self.what}{did_you_mean(typed, known)}, expected "
            self.fail(said + ", ".join(known), param, ctx)
        if not equals:
            self.fail(f"{value!r} has no value, expected {typed}=VALUE", param, ctx)
        return name, self._read(name, text)

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List what a value begins with, and what it stands for."""
        return ((f"{name}=", text) for name, text in self._known().items())


class SettingParam(NamedValueParam):
    """Options of a compilation that presets set too; values are checked with the others."""

    what = "setting here"

    def __init__(self, *names: str) -> None:
        """Take all of `adrenoc.ir.options.SETTINGS`, or those `names`."""
        self._names = names

    def _known(self) -> Mapping[str, str]:
        from adrenoc.ir.options import SETTINGS

        return {name: SETTINGS[name] for name in self._names or SETTINGS}

    def _read(self, name: str, text: str) -> Any:
        from adrenoc.ir.options import read_setting

        return read_setting(name, text)


class LimitParam(NamedValueParam):
    """Numbers from 0 on: whole ones for `names` that count."""

    what = "limit"

    def __init__(self, names: Mapping[str, bool]) -> None:
        self._names = names

    def _known(self) -> Mapping[str, str]:
        return dict.fromkeys(self._names, "")

    def _read(self, name: str, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        typed = name.replace("_", "-")
        if not (number >= 0 and math.isfinite(number)) or (self._names[typed] and number % 1):
            kind = "a whole number" if self._names[typed] else "a number"
            raise click.BadParameter(f"{typed} is {text!r}, expected {kind} from 0 on")
        return int(number) if self._names[typed] else number


def limit_option(names: Mapping[str, bool], text: str) -> Any:
    """Declare a field of limits, each given once by its name, with whether it counts."""
    return option(
        "--limit NAME=N",
        type=LimitParam(names),
        help=f"{text}; repeat it for more.  NAME is one of {', '.join(names)}.",
        callback=lambda _ctx, _param, limits: dict(limits),
    )


Said: TypeAlias = tuple[tuple[str, float], ...]
"""Names and values, as they were typed."""
_BIAS = "bias."
_DRAWN = ("top_k", "top_p", "min_p")
"""What says nothing where the likeliest token is taken."""


class SampleParam(NamedValueParam):
    """A name of `RANGES` with a value in its range, or `bias.TOKEN` with what is added."""

    what = "way to pick tokens"

    def _known(self) -> Mapping[str, str]:
        return dict.fromkeys((*RANGES, f"{_BIAS}TOKEN"), "")

    def knows(self, name: str) -> bool:
        """Return whether a name is one of them."""
        return name in RANGES or (name.startswith(_BIAS) and name.removeprefix(_BIAS).isdecimal())

    def _read(self, name: str, text: str) -> float:
        least, most = RANGES.get(name, (-1e30, 1e30))
        kind = int if name == "top_k" else float
        try:
            number = kind(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise click.BadParameter(f"{name} is {text!r}, expected {least:g} to {most:g}")
        return number

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List what a value begins with."""
        return ((start, "") for start in (*(f"{name}=" for name in RANGES), _BIAS))


def sample_option() -> Any:
    """Declare a field as what is said of how tokens are picked."""
    return option(
        "--sample NAME=VALUE",
        type=SampleParam(),
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
    """Refuse what says nothing at a temperature of 0.

    Raises:
        click.UsageError: naming it.
    """
    undrawn = [name for name, _ in said if name in _DRAWN]
    if not sampling.temperature and undrawn:
        raise click.UsageError(f"--sample {undrawn[0]} is for --sample temperature=T above 0")
