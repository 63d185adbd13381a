"""Times on the command line."""

from __future__ import annotations

import re

import click

from adrenoc.cli.model_params import ParamType

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


class DurationParam(ParamType):
    """`90`, `90s`, `30m` or `2h`, in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number and its unit."""
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration, such as 90s, 30m or 2h", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]
