"""`adrenoc presets`: the named sets of options."""

from __future__ import annotations

import click

from adrenoc.cli.guarded import Command, wants_json


@click.command("presets", cls=Command)
def presets_command() -> None:
    """List the presets and what each of them sets."""
    as_json = wants_json()
    from adrenoc.cli import console
    from adrenoc.ir.options import DEFAULT_PRESET, list_presets

    presets = list_presets()
    if as_json:
        console.print_json(
            [
                {"name": preset.name, "title": preset.title, "options": dict(preset.options)}
                for preset in presets
            ]
        )
        return
    console.print_table(
        ("preset", "what it is for", "sets"),
        [
            (
                preset.name + (" (default)" if preset.name == DEFAULT_PRESET else ""),
                preset.title,
                ", ".join(f"{name} = {_format_value(value)}" for name, value in preset.options),
            )
            for preset in presets
        ],
    )


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
