"""`--set NAME=VALUE`: options of a compilation that presets set too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from adrenoc.cli.model_params import NamedParam


class SettingParam(NamedParam):
    """`NAME=VALUE` with a name of `adrenoc.ir.options.SETTINGS`; values are checked with the
    others."""

    name = "name=value"

    def __init__(self, *names: str) -> None:
        """Take all of them, or those `names`."""
        self._names = names

    def _known(self) -> dict[str, str]:
        from adrenoc.ir.options import SETTINGS

        return {name: SETTINGS[name] for name in self._names or SETTINGS}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Read the name and the value."""
        from adrenoc.base.text.spelling import did_you_mean
        from adrenoc.ir.options import read_setting

        if isinstance(value, tuple):
            return value
        name, _, text = value.partition("=")
        name = name.replace("-", "_")
        known = [*self._known()]
        if name not in known:
            said = f"{name!r} is no setting here{did_you_mean(name, known)}, expected "
            self.fail(said + ", ".join(known), param, ctx)
        return name, read_setting(name, text)

    def list_names(self) -> Iterable[tuple[str, str]]:
        """List all settings with what they mean."""
        return ((f"{name}=", text) for name, text in self._known().items())
