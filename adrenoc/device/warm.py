"""Build a bundle's kernels for a device before anybody waits for them."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass

from adrenoc.base.errors import DeviceError
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.write_bundle import add_programs
from adrenoc.device.choose_edition import choose_edition
from adrenoc.device.place import Place, start_build
from adrenoc.device.remote import RemoteAddress, remote_place
from adrenoc.device.result import ProgramOptions, ProgramReport, ms_since
from adrenoc.device.run import local_place


@dataclass(frozen=True, kw_only=True)
class Warmed:
    """What was built for which device; `embedded` are the files that were put into the bundle.

    `notes` tell which kernels were built, where the bundle has some for several GPUs.
    """

    device: str
    driver: str
    build_ms: float
    programs: ProgramReport
    embedded: tuple[str, ...] = ()
    embedded_bytes: int = 0
    notes: tuple[str, ...] = ()


def warm(
    bundle: Bundle,
    *,
    device: str,
    address: RemoteAddress | None,
    programs: ProgramOptions,
    embed: bool,
) -> Warmed:
    """Build the kernels of `bundle` that the device runs, and keep them where `programs` says.

    These are of each of its buckets, in the edition of that device.

    The device is one of this machine, or of the server at `address`.

    With `embed` they are put into the bundle too: it then starts without a compiler on every device
    of that name with that driver.

    Raises:
        RemoteError, BundleError, DeviceError, OutputError: see `run_bundle`, `run_remote` and
            `add_programs`.
    """
    with ExitStack() as stack:
        place: Place
        if address is None:
            place = stack.enter_context(local_place(bundle, device))
        else:
            place = stack.enter_context(remote_place(bundle, address, device))
        started = time.perf_counter()
        report = ProgramReport()
        modules = []
        chosen = choose_edition(bundle, place.facts)
        for bucket in open_buckets(chosen.bundle):
            modules.append(place.load(bucket))
            with start_build(place, bucket, modules[-1], programs) as wait_for_kernels:
                built = wait_for_kernels()
            report = report if built is None else report.plus(built)
        build_ms = ms_since(started)
        files: dict[str, bytes] = {}
        for module in modules if embed else ():
            files |= _files(place, module)
    if files:
        add_programs(bundle, files)
    return Warmed(
        device=str(place.facts["name"]),
        driver=str(place.facts["driver"]),
        build_ms=build_ms,
        programs=report,
        notes=chosen.notes,
        embedded=tuple(files),
        embedded_bytes=sum(len(content) for content in files.values()),
    )


def _files(place: Place, module: object) -> dict[str, bytes]:
    """Return the built kernels of a module, as files by name."""
    names = place.function("adrenoc.opencl.program_names")
    content = place.function("adrenoc.opencl.program_file")
    if names is None or content is None:
        raise DeviceError(
            "the runtime there cannot give its kernels away: it is an older one",
            hint="start `adrenoc runtime serve` or `adrenoc_rpc` of this version there",
        )
    found = json.loads(names(module, place.number))
    return {name: bytes(content(module, place.number, name)) for name in found}
