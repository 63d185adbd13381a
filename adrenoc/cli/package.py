"""`adrenoc package`: a bundle in the form that app builds take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.cli.guarded import Command, InputPath, OutputPath, wants_json

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.native.android.package.packed import Packed
    from adrenoc.native.android.runtime_build import Runtime

_ARCHIVE = ".aar"


@click.command("package", cls=Command)
@click.argument(
    "bundles",
    type=InputPath(),
    nargs=-1,
    required=True,
    metavar="BUNDLE...",
)
@click.option("--aar", "form", flag_value="aar", help="Archives for Android builds.")
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
    help="OUT.aar: one archive with the runtime and one bundle.  With --aar a folder: a Maven "
    "repository with the runtime and each bundle apart, for apps of several models.",
)
@click.option(
    "--sample",
    type=OutputPath(),
    metavar="DIR",
    help="With --aar: write a small app for Android Studio there, which runs the bundles.",
)
@click.option(
    "--split",
    is_flag=True,
    help="With --aar -o FOLDER: bundles for several GPUs go into an asset pack, of which Play "
    "gives each phone the part for its GPU, and the runtime into an archive.",
)
def package_command(
    bundles: tuple[Path, ...],
    form: str | None,
    folders: tuple[Path, ...],
    output: Path,
    sample: Path | None,
    split: bool,
) -> None:
    """Put bundles and the runtime into packages for an app."""
    as_json = wants_json()
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.native.android.java.classes import find_javac
    from adrenoc.native.android.package.aar import check_for_android, write_aar
    from adrenoc.native.android.package.cmake import write_cmake_package
    from adrenoc.native.android.package.repository import RUNTIME, write_repository
    from adrenoc.native.android.package.sample import write_sample

    _check_usage(form, bundles, folders, output, sample)
    _check_split(form, output, sample, split=split)
    _check_outputs(form, output, sample)
    opened = [open_bundle(bundle) for bundle in bundles]
    if form == "aar":
        check_for_android(opened)
        find_javac()  # before a runtime is built, which takes minutes
    runtimes = _runtimes(opened, folders)
    coordinates: list[str] = []
    if form == "cmake":
        packed = write_cmake_package(opened[0], runtimes[0], output)
    elif output.suffix == _ARCHIVE:
        packed = write_aar(opened[0], runtimes, output)
    elif split:
        _package_split(opened, runtimes, output, as_json=as_json)
        return
    else:
        repository = write_repository(opened, runtimes, output)
        packed = repository.packed
        coordinates = [str(one) for one in (RUNTIME, *repository.models)]
    if sample is not None:
        write_sample(opened, runtimes, sample)
    if as_json:
        told = {"path": str(packed.path), "files": dict(packed.files)}
        console.print_json({**told, "coordinates": coordinates})
        return
    _show_files(packed)
    if coordinates:
        console.blank()
        console.print_fields([("dependencies", ", ".join(coordinates))])


def _show_files(packed: Packed) -> None:
    from adrenoc.cli import console

    console.print_title("package", str(packed.path))
    console.print_table(
        ("file", "size"),
        [(path, console.size(size)) for path, size in packed.files],
        right=("size",),
    )


def _package_split(
    bundles: list[Bundle], runtimes: list[Runtime], output: Path, *, as_json: bool
) -> None:
    """The runtime as an archive, and the bundles as an asset pack."""
    from adrenoc.cli import console
    from adrenoc.native.android.package.asset_pack import PACK, TARGETING, write_asset_pack
    from adrenoc.native.android.package.packed import Packed
    from adrenoc.native.android.package.repository import RUNTIME, write_runtime

    split = write_asset_pack(bundles, output)
    written = write_runtime(bundles, runtimes, output)
    packed = Packed(path=output, files=(*split.packed.files, *written))
    if as_json:
        told = {"path": str(output), "files": dict(packed.files), "decisions": split.decisions}
        console.print_json({**told, "coordinates": [str(RUNTIME)]})
        return
    _show_files(packed)
    console.blank()
    console.print_fields(
        [
            ("dependencies", str(RUNTIME)),
            ("settings.gradle.kts", f'include(":{PACK}"), with its projectDir'),
            ("gradle.properties", "android.experimental.enableDeviceTargetingConfigApi=true"),
            ("android {}", f'assetPacks += ":{PACK}"'),
            ("  bundle {}", f'deviceTargetingConfig = file("{TARGETING}")'),
            ("    deviceGroup {}", 'enableSplit = true; defaultGroup = "other"'),
            *(("note", f"{d.subject}: {d.taken}, {d.reason}") for d in split.decisions),
        ]
    )


def _check_split(form: str | None, output: Path, sample: Path | None, *, split: bool) -> None:
    if split and (form != "aar" or output.suffix == _ARCHIVE or sample is not None):
        raise click.UsageError("--split goes with --aar -o FOLDER, without --sample")


def _check_usage(
    form: str | None,
    bundles: tuple[Path, ...],
    folders: tuple[Path, ...],
    output: Path,
    sample: Path | None,
) -> None:
    if form is None:
        raise click.UsageError("say which: --aar or --cmake")
    if form == "cmake":
        if len(folders) > 1:
            raise click.UsageError("--cmake takes one --runtime")
        if sample is not None:
            raise click.UsageError("--sample goes with --aar; a CMake package brings its own")
    if len(bundles) > 1 and (form == "cmake" or output.suffix == _ARCHIVE):
        raise click.UsageError(
            "several bundles go into a folder of archives: --aar -o FOLDER, without .aar"
        )


def _check_outputs(form: str | None, output: Path, sample: Path | None) -> None:
    """Look at what is to be written before a runtime is built, which takes minutes."""
    from adrenoc.base.files.outputs import (
        check_file_can_be_written,
        check_folder_can_be_made,
        check_folder_can_be_replaced,
    )
    from adrenoc.native.android.package.cmake import CMAKE_FOLDER
    from adrenoc.native.android.package.sample import SAMPLE_FOLDER

    if sample is not None:
        check_folder_can_be_replaced(sample, SAMPLE_FOLDER)
    if form == "cmake":
        check_folder_can_be_replaced(output, CMAKE_FOLDER)
    elif output.suffix == _ARCHIVE:
        check_file_can_be_written(output)
    else:
        check_folder_can_be_made(output)


def _runtimes(bundles: list[Bundle], folders: tuple[Path, ...]) -> list[Runtime]:
    """The runtimes that were named, or else one for each machine of the bundles."""
    from adrenoc.cli import console
    from adrenoc.native.android.runtime_build import build_runtime, open_runtime
    from adrenoc.native.android.runtime_toolchain import find_abi

    if folders:
        return [open_runtime(folder) for folder in folders]
    targets = [bundle.manifest.target for bundle in bundles]
    abis = {find_abi(target.llvm_triple) for target in targets}
    with console.ConsoleReporter() as reporter:
        return [build_runtime(abi=abi, reporter=reporter) for abi in sorted(abis)]
