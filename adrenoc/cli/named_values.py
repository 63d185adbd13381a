"""Options of the form NAME=VALUE whose names are ours: `--set`, `--limit` (and `--sample`).

`--sample NAME=VALUE`: how tokens are picked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import click

from adrenoc.base.text.spelling import did_you_mean
from adrenoc.bundle.sampling import RANGES, Sampling
from adrenoc.cli.model_params import Parsed
from adrenoc.cli.records import option


class NamedValueParam(Parsed):
    """`NAME=VALUE` of names that are listed; `-` and `_` in them are the same.

    `what` says in refusals what a name is, `known` gives each as it is typed with what it stands
    for, `read` reads the value of one, and `knows_more` tells of names that cannot be listed.
    """

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


def _is_bias(name: str) -> bool:
    return name.startswith(_BIAS) and name.removeprefix(_BIAS).isdecimal()


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
            knows_more=_is_bias,
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
