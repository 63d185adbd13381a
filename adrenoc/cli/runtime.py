"""`adrenoc runtime`: the libraries and programs that run bundles without Python."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.guarded import Command, InputPath, OutputPath, wants_json


@click.command("build", cls=Command)
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
def build_runtime_command(
    abi: str,
    ndk: Path | None,
    api: int | None,
    output: Path | None,
    clml_sdk: Path | None,
    static: bool,
    sanitize: str | None,
) -> None:
    """Build libadrenoc_runtime.so, adrenoc_run and adrenoc_rpc (some minutes, then cached)."""
    as_json = wants_json()
    from adrenoc.base.files.outputs import check_folder_can_be_replaced
    from adrenoc.cli import console
    from adrenoc.native.android.ndk import MIN_API
    from adrenoc.native.android.runtime_build import RUNTIME_FOLDER, build_runtime, copy_runtime
    from adrenoc.native.android.runtime_toolchain import HOST

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


@click.command("install-unit", cls=Command)
@click.option(
    "--runtime",
    "folder",
    type=InputPath(),
    default="/opt/adrenoc",
    show_default=True,
    metavar="DIR",
    help="A runtime that `adrenoc runtime build -o DIR` made on this machine.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=9090, show_default=True)
@click.option("--key", default="", help="What clients have to know; with --tracker the kind.")
@click.option("--tracker", metavar="HOST:PORT", help="Offer the server at TVM's tracker there.")
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of the server, such as RUSTICL_ENABLE=freedreno; may be repeated.",
)
@click.option("--user", "for_user", is_flag=True, help="A unit of yours, not of the system.")
@click.option(
    "--output",
    "-o",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="Write the unit there.  [default: where systemd looks]",
)
def install_unit_command(
    folder: Path,
    host: str,
    port: int,
    key: str,
    tracker: str | None,
    environment: tuple[str, ...],
    for_user: bool,
    output: Path | None,
) -> None:
    """Write a unit of systemd that serves `adrenoc run --rpc` on this machine; starts nothing."""
    as_json = wants_json()
    from adrenoc.cli import console
    from adrenoc.cli.serve import check_reach
    from adrenoc.native.android.systemd_unit import UNIT, Service, find_unit_place, install_unit

    if not key and tracker:
        raise click.UsageError("--tracker needs a --key, the name of this kind of device")
    check_reach(host, key=key, has_tracker=tracker is not None)
    said = {"--host": host, "--port": str(port), "--key": key, "--tracker": tracker or ""}
    words = tuple(word for option, value in said.items() if value for word in (option, value))
    service = Service(
        folder=folder.absolute(), words=words, environment=environment, for_user=for_user
    )
    place = install_unit(service, output or find_unit_place(for_user=for_user))
    control = f"systemctl{' --user' if for_user else ''}"
    following = f"{control} daemon-reload && {control} enable --now {UNIT}"
    if as_json:
        console.print_json({"unit": str(place), "next": following})
        return
    console.print_title("unit", str(place))
    console.print_fields([("starts", str(service.folder)), ("next", following)])
