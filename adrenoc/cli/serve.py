"""`adrenoc serve`: let another machine run bundles on this one."""

from __future__ import annotations

import click

from adrenoc.cli.options import json_option


@click.command("serve")
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
@click.option("--key", default="", help="What peers have to know.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds until a session is stopped; 0 for never.",
)
@json_option()
def serve_command(host: str, port: int, key: str, timeout_s: float, as_json: bool) -> None:
    """Serve TVM's RPC protocol until interrupted, for `adrenoc run BUNDLE --rpc HOST:PORT`."""
    from adrenoc.cli import console
    from adrenoc.device.serve import RpcServer

    server = RpcServer(host=host, port=port, key=key, timeout_s=timeout_s)
    if as_json:
        console.print_json({"host": host, "port": server.port})
    else:
        console.print_title("serve", f"listening on {host}:{server.port}")
    with console.ConsoleReporter() as reporter:
        while True:
            server.serve_one(reporter)
