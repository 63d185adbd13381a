"""Times on the command line."""

from __future__ import annotations

import re

import click

from adrenoc.cli.model_params import ParamType

_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}


class DurationParam(ParamType):
    """`90`, `90s`, `30m` or `2h`, in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number and its unit."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|[smh]?)", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration, such as 90s, 30m or 2h", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


class SustainParam(DurationParam):
    """`60s`, or `60s/33ms` with pauses between; as seconds."""

    name = "time"

    def convert(  # type: ignore[override]
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Read both."""
        if isinstance(value, tuple):
            return value
        whole, _, pause = str(value).partition("/")
        read = super().convert
        return read(whole, param, ctx), read(pause, param, ctx) if pause else 0.0
