"""`adrenoc package`: a bundle in the form that app builds take."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.guarded import Command, InputPath, OutputPath
from adrenoc.cli.options import json_option, path_argument


@click.command("package", cls=Command)
@path_argument("bundle")
@click.option("--aar", "form", flag_value="aar", help="An archive for Android builds.")
@click.option("--cmake", "form", flag_value="cmake", help="A folder for find_package(adrenoc).")
@click.option(
    "--runtime",
    "folders",
    type=InputPath(),
    multiple=True,
    metavar="DIR",
    help="A runtime (adrenoc runtime build -o DIR); for --aar one for each ABI.  [default: built]",
)
@click.option(
    "--output",
    "-o",
    type=OutputPath(),
    required=True,
    metavar="OUT",
    help="The .aar file or the folder to write.",
)
@click.option(
    "--sample",
    type=OutputPath(),
    metavar="DIR",
    help="With --aar: write the sources of a small app there (CMake, JNI, Kotlin).",
)
@json_option()
def package_command(
    bundle: Path,
    form: str | None,
    folders: tuple[Path, ...],
    output: Path,
    sample: Path | None,
    as_json: bool,
) -> None:
    """Put BUNDLE and the runtime into a package for an app."""
    from adrenoc.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.package import ABIS, copy_sample, write_aar, write_cmake_package
    from adrenoc.runtime_build import build_runtime, open_runtime
    from adrenoc.runtime_toolchain import HOST

    if form is None:
        raise click.UsageError("say which: --aar or --cmake")
    opened = open_bundle(bundle)
    host = opened.manifest.target.host
    runtimes = [open_runtime(folder) for folder in folders]
    if not runtimes:
        abi = HOST if host else ABIS[opened.manifest.library.machine]
        runtimes = [build_runtime(abi=abi)]
    if form == "cmake":
        if len(runtimes) > 1:
            raise click.UsageError("--cmake takes one --runtime")
        packed = write_cmake_package(opened, runtimes[0], output)
    else:
        packed = write_aar(opened, runtimes, output)
        if sample is not None:
            copy_sample("android", sample)
    if as_json:
        console.print_json({"path": str(packed.path), "files": dict(packed.files)})
        return
    console.print_title("package", str(packed.path))
    console.print_table(
        ("file", "size"),
        [(path, console.size(size)) for path, size in packed.files],
        right=("size",),
    )
