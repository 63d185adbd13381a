"""`--sample NAME=VALUE`: how tokens are picked, beyond `--temperature`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import click

from adrenoc.bundle.sampling import RANGES, Sampling
from adrenoc.cli.named_values import NamedValueParam
from adrenoc.cli.records import option

Said: TypeAlias = tuple[tuple[str, float], ...]
"""Names and values, as they were typed."""
_BIAS = "bias."
_DRAWN = ("top_k", "top_p", "min_p")
"""What says nothing where the likeliest token is taken."""
_NAMES = tuple(name for name in RANGES if name != "temperature")


class SampleParam(NamedValueParam):
    """A name of `RANGES` with a value in its range, or `bias.TOKEN` with what is added."""

    what = "way to pick tokens"

    def _known(self) -> Mapping[str, str]:
        return dict.fromkeys((*_NAMES, f"{_BIAS}TOKEN"), "")

    def _knows(self, name: str) -> bool:
        return name in _NAMES or (name.startswith(_BIAS) and name.removeprefix(_BIAS).isdecimal())

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
        return ((start, "") for start in (*(f"{name}=" for name in _NAMES), _BIAS))


def sample_option() -> Any:
    """Declare a field as what is said of how tokens are picked."""
    return option(
        "--sample",
        type=SampleParam(),
        multiple=True,
        metavar="NAME=VALUE",
        help=f"How tokens are picked: {', '.join(_NAMES)}, or {_BIAS}TOKEN, which is added to a "
        "token's logit; may be repeated.",
    )


def apply_sample(sampling: Sampling, said: Said) -> Sampling:
    """Return how tokens are picked where that was said of them."""
    fields: Mapping[str, Any] = {n: v for n, v in said if not n.startswith(_BIAS)}
    bias = {int(n.removeprefix(_BIAS)): v for n, v in said if n.startswith(_BIAS)}
    return replace(sampling, **fields, bias=(*sampling.bias, *bias.items()))


def find_undrawn(said: Said) -> Sequence[str]:
    """Return the names that say nothing at a temperature of 0."""
    return [name for name, _ in said if name in _DRAWN]
