"""`adrenoc runtime`: the libraries and programs that run bundles without Python."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.guarded import Group, InputPath, OutputPath
from adrenoc.cli.options import json_option


@click.group("runtime", cls=Group)
def runtime_command() -> None:
    """Build what runs bundles on a device."""


@runtime_command.command("build")
@click.option(
    "--abi",
    default="",
    metavar="ABI",
    help="host, aarch64-linux, arm64-v8a, armeabi-v7a or x86_64 (the last three with an NDK).  "
    "[default: arm64-v8a with --ndk, else host]",
)
@click.option(
    "--ndk",
    type=InputPath(),
    metavar="PATH",
    help="The Android NDK.  [default: ANDROID_NDK_HOME]",
)
@click.option(
    "--api",
    type=int,
    metavar="N",
    help="The API level of the oldest Android that it has to run on.  [default: 24, Android 7]",
)
@click.option(
    "--output",
    "-o",
    type=OutputPath(),
    metavar="DIR",
    help="Copy the result there.  [default: it stays in the cache]",
)
@click.option(
    "--clml-sdk",
    type=InputPath(),
    metavar="PATH",
    help="Qualcomm's OpenCL ML SDK: regions of --clml then run by that library.",
)
@click.option(
    "--static",
    is_flag=True,
    help="Build libadrenoc_runtime.a, and programs that hold it and need the C library alone.",
)
@click.option(
    "--sanitize",
    type=click.Choice(["address,undefined", "thread"]),
    help="Build with sanitizers, for tests on this machine.",
)
@json_option()
def build_command(
    abi: str,
    ndk: Path | None,
    api: int | None,
    output: Path | None,
    clml_sdk: Path | None,
    static: bool,
    sanitize: str | None,
    as_json: bool,
) -> None:
    """Build libadrenoc_runtime.so, adrenoc_run and adrenoc_rpc (some minutes, then cached)."""
    from adrenoc.android.ndk import MIN_API
    from adrenoc.android.runtime_build import RUNTIME_FOLDER, build_runtime, copy_runtime
    from adrenoc.android.runtime_toolchain import HOST
    from adrenoc.cli import console
    from adrenoc.files.outputs import check_folder_can_be_replaced

    if output is not None:  # before the minutes of a build
        check_folder_can_be_replaced(output, RUNTIME_FOLDER)
    with console.ConsoleReporter() as reporter:
        built = build_runtime(
            abi=abi or ("arm64-v8a" if ndk is not None else HOST),
            ndk=ndk,
            api=MIN_API if api is None else api,
            static=static,
            sanitize=sanitize or "",
            clml_sdk=clml_sdk,
            reporter=reporter,
        )
    if output is not None:
        built = copy_runtime(built, output)
    if as_json:
        console.print_json(built)
        return
    console.print_title("runtime", f"for {built.abi}{' (cached)' if built.cached else ''}")
    console.print_fields([("version", built.stamp), ("folder", str(built.folder))])
    console.print_table(
        ("file", "size"),
        [(file.name, console.size(file.bytes)) for file in built.files],
        right=("size",),
    )
