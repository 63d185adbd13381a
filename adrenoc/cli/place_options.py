"""`--on`: where a bundle runs: a device here, a server, a server of a tracker, a phone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.files.outputs import cache_errors
from adrenoc.base.files.read import OTHER_CACHE_FOLDER, cache_folder, spell_native_path
from adrenoc.base.host.variables import read_choice, read_number, read_path
from adrenoc.cli import console
from adrenoc.cli.guarded import PLACE_NAMES
from adrenoc.cli.model_params import Parsed
from adrenoc.cli.records import option

if TYPE_CHECKING:
    from adrenoc.device.remote import RemoteAddress
    from adrenoc.device.result import ProgramOptions

_ADB, _TRACKER, _OPENCL = "adb", "tracker:", "opencl:"
MOST_SECONDS = 1e6
"""The most seconds that any wait may be told to last: clocks and sockets of systems take no
infinity."""


@dataclass(frozen=True, kw_only=True)
class PlaceChoice:
    """What `--on` says: `cl_device` of this machine, of the server at `where`, or of a phone.

    A server asks for `key`; of a tracker, that is the kind of device.  `adb` is the phone's serial
    number, empty for the only one and None for no phone.
    """

    text: str = ""
    cl_device: str = ""
    where: str = ""
    tracker: str = ""
    key: str = ""
    adb: str | None = None

    @property
    def is_remote(self) -> bool:
        """Return whether it is another machine."""
        return bool(self.where or self.tracker) or self.adb is not None

    def address(self, timeout_s: float) -> RemoteAddress | None:
        """Return where a server is, and how long to wait for it; None of others.

        Raises OptionError where an address is of another form, click.UsageError where a tracker is
        named without a kind of device.
        """
        from adrenoc.device.remote import RemoteAddress

        if self.where:
            return RemoteAddress.parse(self.where, key=self.key, timeout_s=timeout_s)
        if not self.tracker:
            return None
        if not self.key:
            raise click.UsageError(
                f"--on {self.text} needs a kind of device: tracker:KIND@HOST:PORT"
            )
        return RemoteAddress.parse(self.tracker, key=self.key, tracked=True, timeout_s=timeout_s)


HERE = PlaceChoice()


def read_place(text: str) -> PlaceChoice:
    """Read `adb[:SERIAL]`, `[KEY@]HOST:PORT`, `tracker:KIND@HOST:PORT` or `opencl:NUMBER|NAME`;
    addresses are read where they are used."""
    kind, _, serial = text.partition(":")
    if kind == _ADB and "@" not in text:
        return PlaceChoice(text=text, adb=serial)
    if text.startswith(_OPENCL):
        return PlaceChoice(text=text, cl_device=text.removeprefix(_OPENCL))
    key, _, where = text.removeprefix(_TRACKER).rpartition("@")
    where, _, cl_device = where.partition("/")
    tracked = text.startswith(_TRACKER)
    return PlaceChoice(
        text=text,
        where="" if tracked else where or ":",
        tracker=where or ":" if tracked else "",
        key=key,
        cl_device=cl_device,
    )


_FORMS = (
    "adb or adb:SERIAL, a phone; [KEY@]HOST:PORT, where `adrenoc runtime serve` runs; "
    "tracker:KIND@HOST:PORT, a server that TVM's tracker knows; opencl:NUMBER or opencl:NAME, a "
    "device here (adrenoc doctor).  --rpc HOST:PORT and --adb[=SERIAL] say the same"
)


def place_option() -> Any:
    """Declare a field as the place where a command works."""
    return option(
        *PLACE_NAMES,
        type=Parsed(read_place),
        default=HERE,
        metavar="PLACE",
        help=f"Where to run: {_FORMS}.  [default: here, on the first with images]",
    )


def places_option(text: str) -> Any:
    """Declare a field as the places where a command works side by side."""
    return option(
        *PLACE_NAMES,
        type=Parsed(read_place),
        metavar="PLACE",
        help=f"{text}; may be repeated: {_FORMS}.",
    )


def timeout_s(usual: float = 60.0) -> float:
    """Return how long to wait for any answer (s). Raises OptionError where ADRENOC_TIMEOUT says no
    such time."""
    return read_number("ADRENOC_TIMEOUT", usual, least=0.1, most=MOST_SECONDS)


@contextmanager
def reach(place: PlaceChoice, wait_s: float | None = None) -> Iterator[RemoteAddress | None]:
    """Hold the place's address while the block runs; starts a server on a phone, None is here.

    Raises AdbError where no such phone, or it does not run our server; DependencyError where
    adbutils, or what builds the runtime, is missing.
    """
    wait_s = timeout_s() if wait_s is None else wait_s
    if place.adb is None:
        yield place.address(wait_s)
        return
    from adrenoc.device.adb import adb_server, pick_device
    from adrenoc.native.android.runtime_wheel import find_runtime

    phone = pick_device(place.adb, timeout_s=wait_s)
    with console.ConsoleReporter() as reporter:
        runtime = read_path("ADRENOC_RUNTIME") or find_runtime(phone.abi, reporter).folder
    with adb_server(phone, runtime, timeout_s=wait_s) as address:
        yield address


def program_folder(place: PlaceChoice) -> str:
    """Return where built kernels are kept: in the cache folder here, where a server wants there.
    Raises OutputError where the cache folder is not there and cannot be made."""
    if place.is_remote:
        return ""
    folder = cache_folder() / "programs"
    with cache_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    return spell_native_path(folder, hint=OTHER_CACHE_FOLDER)


def choose_programs(place: PlaceChoice) -> ProgramOptions | None:
    """Return how built kernels are kept for the next run; None where they are not. Raises
    OptionError where ADRENOC_PROGRAM_CACHE says no such way."""
    from adrenoc.device.result import ProgramOptions

    way = read_choice("ADRENOC_PROGRAM_CACHE", "off", "qualcomm")
    if way == "off":
        return None
    return ProgramOptions(folder=program_folder(place), qualcomm_rule=way == "qualcomm")
