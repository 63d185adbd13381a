"""`adrenoc runtime serve`: let another machine run bundles on this one.

`adrenoc serve --openai BUNDLE`: a language model behind the API that OpenAI's clients speak.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import DependencyError
from adrenoc.base.files.read import cache_folder
from adrenoc.base.host.variables import read_number, read_variable
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.report import Fields, Title
from adrenoc.cli import console
from adrenoc.cli.chat import BESIDE_TOKENS, open_talker
from adrenoc.cli.guarded import HeavyCommand, wants_json
from adrenoc.cli.options import input_option, port_option
from adrenoc.cli.place_options import MOST_SECONDS, PlaceChoice, place_option
from adrenoc.cli.records import argument, give_options, option
from adrenoc.cli.terminal import flush_output, say_json

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
    from adrenoc.device.serve import RpcServer, ServeOptions, is_loopback
    from adrenoc.device.tracker import HostPort

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
