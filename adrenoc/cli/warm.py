"""`adrenoc device warm`: build a bundle's kernels before anybody waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.cli.guarded import HeavyCommand, InputPath
from adrenoc.cli.place_options import (
    PlaceChoice,
    choose_programs,
    place_option,
    program_folder,
    reach,
)
from adrenoc.cli.records import argument, give_options, option


@dataclass(frozen=True, kw_only=True)
class _Warmed:
    bundle: Path = argument(type=InputPath(replaced=True))
    place: PlaceChoice = place_option()
    embed: bool = option(
        "--embed", is_flag=True, help="Put them into the bundle, for devices with the same driver."
    )


@click.command("warm", cls=HeavyCommand)
@give_options(_Warmed)
def warm_command(given: _Warmed) -> int:
    """Build the kernels of BUNDLE for a device, and keep them for the next start."""
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.device.result import ProgramOptions
    from adrenoc.device.warm import warm

    opened = open_bundle(given.bundle)
    usual = ProgramOptions(folder=program_folder(given.place))
    with reach(given.place) as address:
        warmed = warm(
            opened,
            device=given.place.cl_device,
            address=address,
            programs=choose_programs(given.place) or usual,
            embed=given.embed,
        )

    def show() -> None:
        console.print_title(opened.manifest.name, f"on {warmed.device}, driver {warmed.driver}")
        programs = warmed.programs
        fields = [
            ("kernels", f"{programs.misses} built, {programs.hits} were there"),
            ("time", console.ms(warmed.build_ms)),
        ]
        if given.embed:
            fields.append(("in the bundle", console.size(warmed.embedded_bytes)))
        fields += [("note", note) for note in (*warmed.notes, *programs.notes())]
        console.print_fields(fields)

    return console.tell(warmed, show)
