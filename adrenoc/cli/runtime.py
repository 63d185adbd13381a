"""`adrenoc runtime`: the libraries and programs that run bundles without Python, and servers of
this machine and of a language model."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import DependencyError
from adrenoc.base.files.outputs import check_folder_can_be_replaced
from adrenoc.base.files.read import android_ndk_folders, cache_folder
from adrenoc.base.host.variables import read_choice, read_number, read_variable
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.report import Fields, Title, tabulate
from adrenoc.base.text.spelling import show_bytes
from adrenoc.cli import console
from adrenoc.cli.chat import BESIDE_TOKENS, open_talker
from adrenoc.cli.console import flush_output, say_json
from adrenoc.cli.guarded import (
    Command,
    HeavyCommand,
    OutputPath,
    argument,
    give_options,
    option,
    read_words,
    wants_json,
)
from adrenoc.cli.options import (
    MOST_SECONDS,
    PlaceChoice,
    input_option,
    output_option,
    place_option,
    port_option,
)

if TYPE_CHECKING:
    from adrenoc.check.inputs import InputFile


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Where a server listens, and who may come."""

    host: str = option(
        "--host",
        default="127.0.0.1",
        help="The address to listen on; 0.0.0.0 for all.  A peer can run any code here.",
    )
    port: int = port_option(9090)
    key: str = option(
        "--key", default="", help="What peers have to know; with --tracker the kind of device."
    )
    tracker: str | None = option(
        "--tracker HOST:PORT",
        help="Offer this server at TVM's tracker there, as a device of the kind --key.",
    )

    def __post_init__(self) -> None:
        if self.tracker is not None and not self.key:
            raise click.UsageError("--tracker needs --key, the name of this kind of device")

    @property
    def words(self) -> tuple[str, ...]:
        """Return the same, as `adrenoc_rpc` takes it."""
        said = {"--host": self.host, "--port": str(self.port), "--key": self.key}
        said["--tracker"] = self.tracker or ""
        return tuple(word for name, value in said.items() if value for word in (name, value))


def check_reach(served: ListenOptions) -> None:
    """Refuse an address at which more than this machine would reach a server without a secret.
    Raises click.UsageError where whoever reaches it could run any code."""
    from adrenoc.device.serve import is_loopback

    if is_loopback(served.host) or (served.key and not served.tracker):
        return
    mend = "name a --key"
    if served.tracker:
        mend = (
            "a tracker gives the key to whoever asks; leave --host out and lead both ports "
            "through ssh (docs/how-to/phones.md)"
        )
    raise click.UsageError(
        f"--host {served.host} lets anybody who reaches it run any code here: {mend}"
    )


@click.command("serve", cls=HeavyCommand)
@give_options(ListenOptions)
def serve_command(given: ListenOptions) -> None:
    """Serve TVM's RPC protocol until interrupted, for `adrenoc run BUNDLE --on HOST:PORT`.

    A peer can run any code here: listen to this machine alone unless the network is yours.  Bundles
    and built kernels are kept in the cache folder, so that they are sent and built once.
    """
    from adrenoc.device.peers import HostPort
    from adrenoc.device.serve import RpcServer, ServeOptions, is_loopback

    host, key, tracker = given.host, given.key, given.tracker
    check_reach(given)
    where = None
    if tracker is not None:
        example = "adrenoc runtime serve --tracker 127.0.0.1:9190 --key adreno"
        where = HostPort.parse(tracker, what="the tracker", example=example)
    mib = read_number("ADRENOC_MAX_MESSAGE", 1024.0, least=1.0, most=float(1 << 20))
    server = RpcServer(
        ServeOptions(
            host=host,
            port=given.port,
            key=key,
            tracker=where,
            advertised=read_variable("ADRENOC_ADVERTISE"),
            session_s=read_number("ADRENOC_SESSION", 600.0, least=0.0, most=MOST_SECONDS),
            store=cache_folder() / "served",
            max_message_bytes=int(mib) << 20,
        )
    )
    listening = Title(text="serve", detail=f"listening on {host}:{server.port}")
    console.tell({"host": host, "port": server.port}, listening)
    with console.ConsoleReporter() as reporter:
        if (not key or tracker is not None) and not is_loopback(host):
            no_secret = "the tracker gives the key to all" if key else "there is no key"
            reporter.warn(f"whoever reaches {host}:{server.port} runs any code here: {no_secret}")
        while True:
            server.serve_one(reporter)


_PACKAGES = ("starlette", "uvicorn")


@dataclass(frozen=True, kw_only=True)
class _ServedModel:
    path: Path = option(
        "--openai BUNDLE",
        required=True,
        help="Serve this language model to clients of OpenAI's API.",
    )
    encoder: Path | None = argument(metavar="[ENCODER]", required=False)
    host: str = option(
        "--host",
        default="127.0.0.1",
        help="The address to listen on; beyond this machine it needs ADRENOC_TOKEN, which clients "
        "have to know (their API key).",
    )
    port: int = port_option(8080)
    files: tuple[InputFile, ...] = input_option(BESIDE_TOKENS)
    place: PlaceChoice = place_option()


@click.command("serve", cls=HeavyCommand)
@give_options(_ServedModel)
def serve_model_command(given: _ServedModel) -> None:
    """Serve a language model to clients of OpenAI's API until interrupted.

    With ENCODER, the bundle of its encoder of pictures, messages may show them.

    There are /v1/chat/completions, /v1/completions, /v1/models and /health; answers are streamed
    where a client asks.
    Requests are answered one after the other.  A conversation's beginning stays in the caches.

    \b
    adrenoc serve --openai chat.adrenoc --on adb
    curl localhost:8080/v1/models
    """
    from adrenoc.base.host.extras import pip_install
    from adrenoc.bundle.tar import SUFFIX
    from adrenoc.device.serve import is_loopback

    host, token = given.host, read_variable("ADRENOC_TOKEN")

    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        raise DependencyError(
            f"a server needs the Python package {missing[0]}, which is not installed",
            hint=pip_install("serve"),
        )
    if not (token or is_loopback(host)):
        raise click.UsageError(f"--host {host} lets others ask: they need to know ADRENOC_TOKEN")
    from adrenoc.device.openai.server import Served, bind, listen, make_app

    with (
        bind(host, given.port) as there,
        open_talker(
            given.path,
            given.place,
            eyes=(given.encoder, None) if given.encoder else None,
            files=given.files,
            needs_template=False,
        ) as talker,
    ):
        served = Served(
            conversation=talker.conversation,
            model=bundle_name(given.path.name.removesuffix(".tar").removesuffix(SUFFIX)),
            usual=talker.wish,
            has_template=talker.has_template,
        )
        there.listen()  # who reads the address may come at once
        url = f"http://{host}:{there.getsockname()[1]}/v1"
        if wants_json():
            say_json({"url": url, "model": served.model}, indent=None)
            flush_output()
        else:
            notes = Fields(pairs=[("note", note) for note in talker.decoder.notes])
            console.draw(Title(text=served.model, detail=f"at {url}, Ctrl-C ends"), notes)
        any_name = () if is_loopback(host) else ("*",)
        listen(make_app(served, token=token, hosts=any_name), there)


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
            built.files, {"file": lambda one: one.name, "size": lambda one: show_bytes(one.bytes)}
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
