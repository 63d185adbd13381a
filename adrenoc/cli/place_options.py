"""Options that say where a bundle runs: a device here, a server, a server of a tracker, a phone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.files.native_path import OTHER_CACHE_FOLDER, spell_native_path
from adrenoc.cli.guarded import InputPath
from adrenoc.cli.options import MOST_SECONDS, Decorator, FiniteRange, join_options

if TYPE_CHECKING:
    from adrenoc.device.remote import RemoteAddress
    from adrenoc.device.result import ProgramOptions

_RUNTIME = click.option(
    "--runtime",
    type=InputPath(),
    metavar="DIR",
    help="The runtime for the phone (adrenoc runtime build -o DIR).  [default: built]",
)
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
        help="Run on the machine where `adrenoc runtime serve` runs.",
    ),
    click.option(
        "--tracker",
        metavar="HOST:PORT",
        help="Run on a server of the kind --key that TVM's tracker there knows.",
    ),
    click.option(
        "--adb",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[SERIAL]",
        help="Run on the phone that is connected by adb, or on that of this serial number.",
    ),
    _RUNTIME,
    click.option(
        "--key",
        default="",
        help="The key that the server asks for; with --tracker the kind of device.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=FiniteRange(min=0.1, max=MOST_SECONDS),
        default=60.0,
        show_default=True,
        help="Seconds to wait for any answer of the server.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class PlaceChoice:
    """What the options say: `cl_device` of this machine, of the server at `address`, or of a phone.

    `adb` is the phone's serial number, empty for the only one and None for no phone; `runtime` is
    what is to run there.
    """

    cl_device: str
    address: RemoteAddress | None = None
    adb: str | None = None
    runtime: Path | None = None
    timeout_s: float = 60.0

    @property
    def is_remote(self) -> bool:
        """Whether it is another machine."""
        return self.address is not None or self.adb is not None


def runtime_option() -> Decorator:
    """`--runtime`, for commands whose devices are named in other ways."""
    return _RUNTIME


def place_options() -> Decorator:
    """`--cl-device`, `--rpc`, `--tracker`, `--adb`, `--runtime`, `--key` and `--timeout`."""
    return join_options(*_OPTIONS)


def choose_place(
    *,
    cl_device: str,
    server: str | None,
    tracker: str | None,
    adb: str | None,
    runtime: Path | None,
    key: str,
    timeout_s: float,
) -> PlaceChoice:
    """Read the options of `place_options`.

    Raises:
        OptionError: an address is of another form.
        click.UsageError: two places are named, or a tracker without a kind of device.
    """
    from adrenoc.device.remote import RemoteAddress

    if sum(place is not None for place in (server, tracker, adb)) > 1:
        raise click.UsageError("--rpc, --tracker and --adb name different places")
    address = None
    if server is not None:
        address = RemoteAddress.server(server, key=key, timeout_s=timeout_s)
    elif tracker is not None:
        if not key:
            raise click.UsageError("--tracker needs --key, the kind of device")
        address = RemoteAddress.tracker(tracker, key=key, timeout_s=timeout_s)
    return PlaceChoice(
        cl_device=cl_device, address=address, adb=adb, runtime=runtime, timeout_s=timeout_s
    )


@contextmanager
def reach(place: PlaceChoice) -> Iterator[RemoteAddress | None]:
    """The address of the place while the block runs; starts a server on a phone, None is here.

    Raises:
        AdbError: no such phone, or it does not run our server.
        DependencyError: adbutils, or what builds the runtime, is missing.
    """
    if place.adb is None:
        yield place.address
        return
    from adrenoc.cli import console
    from adrenoc.device.adb import adb_server, pick_device
    from adrenoc.native.android.runtime_build import build_runtime

    phone = pick_device(place.adb, timeout_s=place.timeout_s)
    with console.ConsoleReporter() as reporter:
        runtime = place.runtime or build_runtime(abi=phone.abi, reporter=reporter).folder
    with adb_server(phone, runtime, timeout_s=place.timeout_s) as address:
        yield address


def program_folder(place: PlaceChoice) -> str:
    """Where built kernels are kept: in the cache folder here, and where a server wants there.

    Raises:
        OutputError: the cache folder is not there and cannot be made.
    """
    from adrenoc.base.files.outputs import cache_errors
    from adrenoc.base.files.read import cache_folder

    if place.is_remote:
        return ""
    folder = cache_folder() / "programs"
    with cache_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    return spell_native_path(folder, hint=OTHER_CACHE_FOLDER)


def programs_of(place: PlaceChoice, keep: bool, qualcomm_rule: bool) -> ProgramOptions | None:
    """How built kernels are kept for the next run; None where they are not."""
    from adrenoc.device.result import ProgramOptions

    if not keep:
        return None
    return ProgramOptions(folder=program_folder(place), qualcomm_rule=qualcomm_rule)
