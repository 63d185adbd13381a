"""`adrenoc serve`: let another machine run bundles on this one."""

from __future__ import annotations

import click

from adrenoc.cli.guarded import HeavyCommand
from adrenoc.cli.options import MOST_SECONDS, FiniteRange, json_option


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
@json_option()
def serve_command(
    host: str,
    port: int,
    key: str,
    timeout_s: float,
    tracker: str | None,
    advertised: str,
    max_message_mib: int,
    is_open: bool,
    as_json: bool,
) -> None:
    """Serve TVM's RPC protocol until interrupted, for `adrenoc run BUNDLE --rpc HOST:PORT`.

    A peer can run any code here: listen to this machine alone unless the network is yours.  Bundles
    and built kernels are kept in the cache folder, so that they are sent and built once.
    """
    from adrenoc.cli import console
    from adrenoc.device.serve import RpcServer, ServeOptions, is_loopback
    from adrenoc.device.tracker import HostPort
    from adrenoc.files.read import cache_folder

    if tracker is not None and not key:
        raise click.UsageError("--tracker needs --key, the name of this kind of device")
    if not key and not is_open and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} lets anybody who reaches it run any code here: name a --key, or say "
            "--open where nobody else is"
        )
    where = None
    if tracker is not None:
        example = "adrenoc serve --tracker 127.0.0.1:9190 --key adreno"
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
        if not key and not is_loopback(host):
            reporter.warn(
                f"whoever reaches {host}:{server.port} runs any code here: there is no key"
            )
        while True:
            server.serve_one(reporter)
