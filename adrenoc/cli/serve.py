"""`adrenoc runtime serve`: let another machine run bundles on this one."""

from __future__ import annotations

import click

from adrenoc.cli.guarded import HeavyCommand, wants_json
from adrenoc.cli.options import MOST_SECONDS, FiniteRange


def check_reach(host: str, *, key: str, has_tracker: bool) -> None:
    """Refuse an address at which more than this machine would reach a server without a secret.

    Raises:
        click.UsageError: whoever reaches it could run any code.
    """
    from adrenoc.device.serve import is_loopback

    if is_loopback(host) or (key and not has_tracker):
        return
    mend = "name a --key"
    if has_tracker:
        mend = (
            "a tracker gives the key to whoever asks; leave --host out and lead both ports "
            "through ssh (docs/how-to/phones.md)"
        )
    raise click.UsageError(
        f"--host {host} lets anybody who reaches it run any code here: {mend}, or say --open to "
        "`adrenoc runtime serve` where nobody else is"
    )


@click.command("serve", cls=HeavyCommand)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; 0.0.0.0 for all.  A peer can run any code here.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9090,
    show_default=True,
    help="The port; 0 takes any free one.",
)
@click.option(
    "--key", default="", help="What peers have to know; with --tracker the kind of device."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0, max=MOST_SECONDS),
    default=600.0,
    show_default=True,
    help="Seconds until a session is stopped; 0 for never.",
)
@click.option(
    "--tracker",
    metavar="HOST:PORT",
    help="Offer this server at TVM's tracker there, as a device of the kind --key.",
)
@click.option(
    "--advertise",
    "advertised",
    default="",
    metavar="ADDRESS",
    help="Where clients of the tracker reach this server.  [default: as the tracker sees it]",
)
@click.option(
    "--max-message",
    "max_message_mib",
    type=click.IntRange(1, 1 << 20),
    default=1024,
    show_default=True,
    help="Longest message of a peer in MiB; a longer one ends its session.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Listen beyond this machine without --key: whoever reaches the port runs code here.",
)
def serve_command(
    host: str,
    port: int,
    key: str,
    timeout_s: float,
    tracker: str | None,
    advertised: str,
    max_message_mib: int,
    is_open: bool,
) -> None:
    """Serve TVM's RPC protocol until interrupted, for `adrenoc run BUNDLE --rpc HOST:PORT`.

    A peer can run any code here: listen to this machine alone unless the network is yours.  Bundles
    and built kernels are kept in the cache folder, so that they are sent and built once.
    """
    as_json = wants_json()
    from adrenoc.base.files.read import cache_folder
    from adrenoc.cli import console
    from adrenoc.device.serve import RpcServer, ServeOptions, is_loopback
    from adrenoc.device.tracker import HostPort

    if not is_open:
        check_reach(host, key=key, has_tracker=tracker is not None)
    where = None
    if tracker is not None:
        if not key:
            raise click.UsageError("--tracker needs --key, the name of this kind of device")
        example = "adrenoc runtime serve --tracker 127.0.0.1:9190 --key adreno"
        where = HostPort.parse(tracker, what="the tracker", example=example)
    server = RpcServer(
        ServeOptions(
            host=host,
            port=port,
            key=key,
            tracker=where,
            advertised=advertised,
            session_s=timeout_s,
            store=cache_folder() / "served",
            max_message_bytes=max_message_mib << 20,
        )
    )
    if as_json:
        console.print_json({"host": host, "port": server.port})
    else:
        console.print_title("serve", f"listening on {host}:{server.port}")
    with console.ConsoleReporter() as reporter:
        if (not key or tracker is not None) and not is_loopback(host):
            no_secret = "the tracker gives the key to all" if key else "there is no key"
            reporter.warn(f"whoever reaches {host}:{server.port} runs any code here: {no_secret}")
        while True:
            server.serve_one(reporter)
