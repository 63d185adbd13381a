"""`adrenoc package`: a bundle in the form that app builds take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.files.outputs import (
    check_file_can_be_written,
    check_folder_can_be_made,
    check_folder_can_be_replaced,
)
from adrenoc.base.text.report import Fields, Part, Title, tabulate
from adrenoc.base.text.spelling import show_bytes
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, OutputPath, argument, give_options, option
from adrenoc.cli.options import output_option

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.native.android.package.aar import Packed
    from adrenoc.native.android.runtime_build import Runtime

_ARCHIVE = ".aar"


@dataclass(frozen=True, kw_only=True)
class _Packed:
    bundles: tuple[Path, ...] = argument(nargs=-1, required=True, metavar="BUNDLE...")
    form: str = option(
        "--as",
        type=click.Choice(("aar", "cmake", "asset-pack")),
        required=True,
        help="aar: archives for Android builds.  cmake: a folder for find_package(adrenoc).  "
        "asset-pack: bundles for several GPUs as an asset pack, of which Play gives each phone the "
        "part for its GPU, and the runtime as an archive.",
    )
    folders: tuple[Path, ...] = option(
        "--runtime DIR",
        help="A runtime (adrenoc runtime build -o DIR); of archives one for each ABI.  "
        "[default: built]",
    )
    output: Path = output_option(
        "OUT.aar: one archive with the runtime and one bundle.  Else a folder: of archives a Maven "
        "repository with the runtime and each bundle apart, for apps of several models.",
        type=OutputPath(),
        required=True,
        metavar="OUT",
    )
    sample: Path | None = option(
        "--sample DIR",
        type=OutputPath(),
        help="With --as aar: write a small app for Android Studio there, which runs the bundles.",
    )

    def __post_init__(self) -> None:
        if self.form == "cmake" and len(self.folders) > 1:
            raise click.UsageError("--as cmake takes one --runtime")
        if self.form == "cmake" and self.sample is not None:
            raise click.UsageError("--sample goes with --as aar; a CMake package brings its own")
        if self.form == "asset-pack" and (self.is_archive or self.sample is not None):
            raise click.UsageError("--as asset-pack goes with -o FOLDER, without --sample")
        if len(self.bundles) > 1 and (self.form == "cmake" or self.is_archive):
            raise click.UsageError(
                "several bundles go into a folder of archives: --as aar -o FOLDER, without .aar"
            )

    @property
    def is_archive(self) -> bool:
        return self.form != "cmake" and self.output.suffix == _ARCHIVE


@click.command("package", cls=Command)
@give_options(_Packed)
def package_command(given: _Packed) -> int:
    """Put bundles and the runtime into packages for an app."""
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.native.android.package.aar import check_for_android, write_aar
    from adrenoc.native.android.package.repository import (
        PROVIDER,
        RUNTIME,
        write_cmake_package,
        write_repository,
        write_sample,
    )
    from adrenoc.native.android.runtime_toolchain import find_javac

    output, sample = given.output, given.sample
    _check_outputs(given)
    opened = [open_bundle(bundle) for bundle in given.bundles]
    if given.form != "cmake":
        check_for_android(opened)
        find_javac()  # before a runtime is built, which takes minutes
    runtimes = _runtimes(opened, given.folders)
    if given.form == "asset-pack":
        return _package_split(opened, runtimes, output)
    coordinates: list[str] = []
    more: list[tuple[str, str]] = []
    if given.form == "cmake":
        packed = write_cmake_package(opened[0], runtimes[0], output)
    elif given.is_archive:
        packed = write_aar(opened[0], runtimes, output)
    else:
        repository = write_repository(opened, runtimes, output)
        packed = repository.packed
        coordinates = [str(one) for one in (RUNTIME, *repository.models)]
        if repository.provider:
            more = [("for onnxruntime", str(PROVIDER))]
    if sample is not None:
        write_sample(opened, runtimes, sample)

    told = {"path": str(packed.path), "files": dict(packed.files), "coordinates": coordinates}
    dependencies = [("dependencies", ", ".join(coordinates))] if coordinates else []
    return console.tell(told, _list_files(packed), Fields(pairs=[*dependencies, *more]))


def _list_files(packed: Packed) -> list[Part]:
    files = {"file": lambda one: one[0], "size": lambda one: show_bytes(one[1])}
    return [Title(text="package", detail=str(packed.path)), tabulate(packed.files, files)]


def _package_split(bundles: list[Bundle], runtimes: list[Runtime], output: Path) -> int:
    """Write the runtime as an archive, and the bundles as an asset pack."""
    from adrenoc.native.android.package.aar import PACK, TARGETING, Packed, write_asset_pack
    from adrenoc.native.android.package.repository import RUNTIME, write_runtime

    split = write_asset_pack(bundles, output)
    written = write_runtime(bundles, runtimes, output)
    packed = Packed(path=output, files=(*split.packed.files, *written))
    told = {"path": str(output), "files": dict(packed.files), "decisions": split.decisions}

    rows = [
        ("dependencies", str(RUNTIME)),
        ("settings.gradle.kts", f'include(":{PACK}"), with its projectDir'),
        ("gradle.properties", "android.experimental.enableDeviceTargetingConfigApi=true"),
        ("android {}", f'assetPacks += ":{PACK}"'),
        ("  bundle {}", f'deviceTargetingConfig = file("{TARGETING}")'),
        ("    deviceGroup {}", 'enableSplit = true; defaultGroup = "other"'),
        *(("note", f"{d.subject}: {d.taken}, {d.reason}") for d in split.decisions),
    ]
    told["coordinates"] = [str(RUNTIME)]
    return console.tell(told, _list_files(packed), Fields(pairs=rows))


def _check_outputs(given: _Packed) -> None:
    """Look at what is to be written before a runtime is built, which takes minutes."""
    from adrenoc.native.android.package.repository import CMAKE_FOLDER, SAMPLE_FOLDER

    if given.sample is not None:
        check_folder_can_be_replaced(given.sample, SAMPLE_FOLDER)
    if given.form == "cmake":
        check_folder_can_be_replaced(given.output, CMAKE_FOLDER)
    elif given.is_archive:
        check_file_can_be_written(given.output)
    else:
        check_folder_can_be_made(given.output)


def _runtimes(bundles: list[Bundle], folders: tuple[Path, ...]) -> list[Runtime]:
    """Return the runtimes that were named, or else one for each machine of the bundles."""
    from adrenoc.native.android.runtime_build import find_runtime, open_runtime
    from adrenoc.native.android.runtime_toolchain import find_abi

    if folders:
        return [open_runtime(folder) for folder in folders]
    targets = [bundle.manifest.target for bundle in bundles]
    abis = {find_abi(target.llvm_triple) for target in targets}
    with console.ConsoleReporter() as reporter:
        return [find_runtime(abi, reporter) for abi in sorted(abis)]
