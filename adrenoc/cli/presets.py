"""`adrenoc presets`: the named sets of options, and all that they and `--set` may say."""

from __future__ import annotations

import click

from adrenoc.cli.guarded import Command


@click.command("presets", cls=Command)
def presets_command() -> int:
    """List the presets, what each of them sets, and what --set may say."""
    from adrenoc.cli import console
    from adrenoc.ir.options import DEFAULT_PRESET, SETTINGS, list_presets, show_setting

    presets = list_presets()

    def show() -> None:
        console.print_table(
            ("preset", "what it is for", "sets"),
            [
                (
                    preset.name + (" (default)" if preset.name == DEFAULT_PRESET else ""),
                    preset.title,
                    ", ".join(f"{name} = {show_setting(value)}" for name, value in preset.options),
                )
                for preset in presets
            ],
        )
        console.blank()
        console.print_table(("--set", "means"), SETTINGS.items())

    told = [
        {"name": preset.name, "title": preset.title, "options": dict(preset.options)}
        for preset in presets
    ]
    return console.tell(told, show)
