"""`adrenoc runtime`: the libraries and programs that run bundles without Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.base.files.outputs import check_folder_can_be_replaced
from adrenoc.base.files.read import android_ndk_folders
from adrenoc.base.host.variables import read_choice
from adrenoc.base.text.report import Fields, Title, tabulate
from adrenoc.base.text.spelling import show_bytes
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, OutputPath
from adrenoc.cli.options import output_option
from adrenoc.cli.records import argument, give_options, option, read_words
from adrenoc.cli.serve import ListenOptions, check_reach


@dataclass(frozen=True, kw_only=True)
class _Built:
    abi: str = option(
        "--abi ABI",
        default="",
        help="host, aarch64-linux, arm64-v8a, armeabi-v7a or x86_64 (the last three with an NDK).  "
        "[default: arm64-v8a where ANDROID_NDK_HOME names one, else host]",
    )
    api: int | None = option(
        "--api N",
        type=int,
        help="The API level of the oldest Android that it has to run on.  [default: 24, Android 7]",
    )
    output: Path | None = output_option(
        "Copy the result there.  [default: it stays in the cache]", type=OutputPath(), metavar="DIR"
    )
    clml_sdk: Path | None = option(
        "--clml-sdk PATH",
        help="Qualcomm's OpenCL ML SDK: regions of --clml then run by that library.",
    )
    static: bool = option(
        "--static",
        help="Build libadrenoc_runtime.a, and programs that hold it and need the C library alone.",
    )
    onnxruntime: bool = option(
        "--onnxruntime",
        help="Build libadrenoc_ep.so, too: bundles run inside of onnxruntime 1.23 and newer.",
    )

    def __post_init__(self) -> None:
        if self.static and self.onnxruntime:
            raise click.UsageError("--onnxruntime needs the shared library: no --static")


@click.command("build", cls=Command)
@give_options(_Built)
def build_runtime_command(given: _Built) -> int:
    """Build libadrenoc_runtime.so, adrenoc_run and adrenoc_rpc (some minutes, then cached)."""
    from adrenoc.native.android.runtime_build import RUNTIME_FOLDER, build_runtime, copy_runtime
    from adrenoc.native.android.runtime_toolchain import HOST, MIN_API

    if given.output is not None:  # before the minutes of a build
        check_folder_can_be_replaced(given.output, RUNTIME_FOLDER)
    with console.ConsoleReporter() as reporter:
        built = build_runtime(
            abi=given.abi or ("arm64-v8a" if android_ndk_folders() else HOST),
            api=MIN_API if given.api is None else given.api,
            static=given.static,
            onnxruntime=given.onnxruntime,
            sanitize=read_choice("ADRENOC_SANITIZE", "address,undefined", "thread"),
            clml_sdk=given.clml_sdk,
            reporter=reporter,
        )
    if given.output is not None:
        built = copy_runtime(built, given.output)

    return console.tell(
        built,
        Title(text="runtime", detail=f"for {built.abi}{' (cached)' if built.cached else ''}"),
        Fields(pairs=[("version", built.stamp), ("folder", str(built.folder))]),
        tabulate(
            built.files,
            {"file": lambda one: one.name, "size": lambda one: show_bytes(one.bytes)},
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Installed:
    words: tuple[str, ...] = argument(nargs=-1, metavar="[-- OPTION...]")
    folder: Path = option(
        "--runtime DIR",
        default="/opt/adrenoc",
        help="A runtime that `adrenoc runtime build -o DIR` made on this machine.",
    )
    environment: tuple[str, ...] = option(
        "--env NAME=VALUE",
        help="A variable of the server, such as RUSTICL_ENABLE=freedreno; may be repeated.",
    )
    for_user: bool = option("--user", help="A unit of yours, not of the system.")
    output: Path | None = output_option("Write the unit there.  [default: where systemd looks]")


@click.command("install-unit", cls=Command)
@give_options(_Installed)
def install_unit_command(given: _Installed) -> int:
    """Write a unit of systemd that serves `adrenoc run --on` on this machine; starts nothing.

    Behind -- stand options of the server, as of `adrenoc runtime serve`: --host, --port, --key,
    --tracker.
    """
    from adrenoc.native.android.systemd_unit import UNIT, Service, find_unit_place, install_unit

    served = read_words(ListenOptions, given.words)
    check_reach(served)
    service = Service(
        folder=given.folder.absolute(),
        words=served.words,
        environment=given.environment,
        for_user=given.for_user,
    )
    place = install_unit(service, given.output or find_unit_place(for_user=given.for_user))
    control = f"systemctl{' --user' if given.for_user else ''}"
    following = f"{control} daemon-reload && {control} enable --now {UNIT}"

    return console.tell(
        {"unit": str(place), "next": following},
        Title(text="unit", detail=str(place)),
        Fields(pairs=[("starts", str(service.folder)), ("next", following)]),
    )
