"""Options that say where a bundle runs: a device here, a server, or a server of a tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from adrenoc.device.remote import RemoteAddress

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_OPTIONS = (
    click.option(
        "--cl-device",
        default="",
        metavar="NUMBER|NAME",
        help="OpenCL device (adrenoc doctor).  [default: the first with images]",
    ),
    click.option(
        "--rpc",
        "server",
        metavar="HOST:PORT",
        help="Run on the machine where `adrenoc serve` runs.",
    ),
    click.option(
        "--tracker",
        metavar="HOST:PORT",
        help="Run on a server of the kind --key that TVM's tracker there knows.",
    ),
    click.option(
        "--key",
        default="",
        help="The key that the server asks for; with --tracker the kind of device.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=60.0,
        show_default=True,
        help="Seconds to wait for any answer of the server.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class PlaceChoice:
    """What the options say: `cl_device` of this machine, or of the server at `address`."""

    cl_device: str
    address: RemoteAddress | None


def place_options() -> Decorator:
    """`--cl-device`, `--rpc`, `--tracker`, `--key` and `--timeout`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_OPTIONS):
            function = option(function)
        return function

    return decorate


def choose_place(
    *, cl_device: str, server: str | None, tracker: str | None, key: str, timeout_s: float
) -> PlaceChoice:
    """Read the options of `place_options`.

    Raises:
        OptionError: an address is of another form.
        click.UsageError: two places are named, or a tracker without a kind of device.
    """
    from adrenoc.device.remote import RemoteAddress

    if server is not None and tracker is not None:
        raise click.UsageError("--rpc and --tracker name two places")
    address = None
    if server is not None:
        address = RemoteAddress.server(server, key=key, timeout_s=timeout_s)
    elif tracker is not None:
        if not key:
            raise click.UsageError("--tracker needs --key, the kind of device")
        address = RemoteAddress.tracker(tracker, key=key, timeout_s=timeout_s)
    return PlaceChoice(cl_device=cl_device, address=address)


def program_folder(place: PlaceChoice) -> str:
    """Where built kernels are kept: in the cache folder here, and where a server wants there."""
    from adrenoc.files import cache_folder

    if place.address is not None:
        return ""
    folder = cache_folder() / "programs"
    folder.parent.mkdir(parents=True, exist_ok=True)
    return str(folder)
