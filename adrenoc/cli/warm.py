"""`adrenoc device warm`: build a bundle's kernels before anybody waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from adrenoc.cli.guarded import HeavyCommand, wants_json
from adrenoc.cli.options import path_argument
from adrenoc.cli.place_options import choose_place, place_options, program_folder, reach


@click.command("warm", cls=HeavyCommand)
@path_argument("bundle", replaced=True)
@place_options()
@click.option(
    "--embed", is_flag=True, help="Put them into the bundle, for devices with the same driver."
)
@click.option(
    "--qualcomm-programs",
    is_flag=True,
    help="Use kernels that an older Qualcomm driver built, or one of the same branch.",
)
def warm_command(bundle: Path, embed: bool, qualcomm_programs: bool, **where: Any) -> None:
    """Build the kernels of BUNDLE for a device, and keep them for the next start."""
    as_json = wants_json()
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.device.result import ProgramOptions
    from adrenoc.device.warm import warm

    place = choose_place(**where)
    opened = open_bundle(bundle)
    with reach(place) as address:
        warmed = warm(
            opened,
            device=place.cl_device,
            address=address,
            programs=ProgramOptions(folder=program_folder(place), qualcomm_rule=qualcomm_programs),
            embed=embed,
        )
    if as_json:
        console.print_json(warmed)
        return
    console.print_title(opened.manifest.name, f"on {warmed.device}, driver {warmed.driver}")
    programs = warmed.programs
    fields = [
        ("kernels", f"{programs.misses} built, {programs.hits} were there"),
        ("time", console.ms(warmed.build_ms)),
    ]
    if embed:
        fields.append(("in the bundle", console.size(warmed.embedded_bytes)))
    fields += [("note", note) for note in (*warmed.notes, *programs.notes())]
    console.print_fields(fields)
