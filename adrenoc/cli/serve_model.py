"""`adrenoc serve --openai BUNDLE`: a language model behind the API that OpenAI's clients speak."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.cli.guarded import HeavyCommand, InputPath, wants_json
from adrenoc.cli.place_options import PlaceChoice, place_option
from adrenoc.cli.records import give_options, option
from adrenoc.cli.terminal import flush_output, say_json

_PACKAGES = ("starlette", "uvicorn")


@dataclass(frozen=True, kw_only=True)
class _ServedModel:
    path: Path = option(
        "--openai",
        type=InputPath(),
        required=True,
        metavar="BUNDLE",
        help="Serve this language model to clients of OpenAI's API.",
    )
    host: str = option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="The address to listen on; beyond this machine it needs ADRENOC_TOKEN, which clients "
        "have to know (their API key).",
    )
    port: int = option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8080,
        show_default=True,
        help="The port; 0 takes any free one.",
    )
    place: PlaceChoice = place_option()


@click.command("serve", cls=HeavyCommand)
@give_options(_ServedModel)
def serve_model_command(given: _ServedModel) -> None:
    """Serve a language model to clients of OpenAI's API until interrupted.

    There are /v1/chat/completions, /v1/completions, /v1/models and /health; answers are streamed
    where a client asks.
    Requests are answered one after the other.  A conversation's beginning stays in the caches.

    \b
    adrenoc serve --openai chat.adrenoc --on adb
    curl localhost:8080/v1/models
    """
    from adrenoc.base.errors import DependencyError
    from adrenoc.base.host.extras import pip_install
    from adrenoc.base.host.variables import read_variable
    from adrenoc.base.text.names import bundle_name
    from adrenoc.bundle.tar import SUFFIX
    from adrenoc.cli import console
    from adrenoc.cli.chat import open_talker
    from adrenoc.device.serve import is_loopback

    host, token = given.host, read_variable("ADRENOC_TOKEN")

    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        raise DependencyError(
            f"a server needs the Python package {missing[0]}, which is not installed",
            hint=pip_install("serve"),
        )
    if not (token or is_loopback(host)):
        raise click.UsageError(f"--host {host} lets others ask: they need to know ADRENOC_TOKEN")
    from adrenoc.device.openai.listen import bind, listen
    from adrenoc.device.openai.server import Served, make_app

    with (
        bind(host, given.port) as there,
        open_talker(given.path, given.place, needs_template=False) as talker,
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
            console.print_title(served.model, f"at {url}, Ctrl-C ends")
            console.print_fields([("note", note) for note in talker.decoder.notes])
        any_name = () if is_loopback(host) else ("*",)
        listen(make_app(served, token=token, hosts=any_name), there)
