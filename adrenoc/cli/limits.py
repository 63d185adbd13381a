"""Limits on the command line: `--limit flash-kib=512`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import click

from adrenoc.cli.model_params import ParamType
from adrenoc.cli.records import option


class LimitParam(ParamType):
    """`NAME=NUMBER` of `names`, each with whether it counts, and so is a whole number."""

    name = "name=number"

    def __init__(self, names: Mapping[str, bool]) -> None:
        self._names = names

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Read the name, as a field has it, and the number."""
        if isinstance(value, tuple):
            return value
        name, _, text = value.partition("=")
        if name not in self._names:
            self.fail(f"{name!r} is no limit, expected {' or '.join(self._names)}", param, ctx)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        counts = self._names[name]
        if not (number >= 0 and math.isfinite(number)) or (counts and number % 1):
            kind = "a whole number" if counts else "a number"
            self.fail(f"{value!r}: expected {kind} from 0 on", param, ctx)
        return name.replace("-", "_"), int(number) if counts else number


def limit_option(names: Mapping[str, bool], text: str) -> Any:
    """Declare a field of limits, each given once by its name."""
    listed = ", ".join(names)
    return option(
        "--limit",
        type=LimitParam(names),
        multiple=True,
        metavar="NAME=N",
        help=f"{text}; repeat it for more.  NAME is one of {listed}.",
        callback=lambda _ctx, _param, limits: dict(limits),
    )
