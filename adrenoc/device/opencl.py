"""The OpenCL devices of this machine: the system's, and a software device if one is installed."""

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from adrenoc.base.errors import DeviceError
from adrenoc.base.host.extras import pip_install
from adrenoc.bundle.manifest import RegionInfo
from adrenoc.device.place import RunPlace
from adrenoc.device.profile import TimedLaunch
from adrenoc.device.result import RegionRun


def list_devices() -> list[dict[str, Any]]:
    """Return each OpenCL device as plain data (`adrenoc.native.opencl.devices`), by device number.

    Raises DependencyError where the native runtime cannot be built or loaded; DeviceError where
    there is no OpenCL library, or it fails.
    """
    from adrenoc.native import opencl

    _prepare()
    return opencl.devices()


@cache
def _prepare() -> None:
    """Load the runtime, once; the software device can be added only before the first call."""
    from adrenoc import native

    native.use_software_device()
    native.load()


def pick_device(wanted: str) -> tuple[int, dict[str, Any]]:
    """Return the number and the facts of the device `wanted`: a number or a part of its name.

    An empty `wanted` takes the first device that has images. Raises DeviceError where there is no
    device, none of that name, or none with images.
    """
    from adrenoc.native import opencl

    return choose_device(list_devices(), wanted, absent=opencl.absent_devices())


def choose_device(
    devices: list[dict[str, Any]], wanted: str, *, absent: str = "", server: str = ""
) -> tuple[int, dict[str, Any]]:
    """Choose a device as `pick_device` does, among `devices` of this machine or of a `server`.
    `absent` is why there are no more, as the runtime there tells."""
    why = f"; {absent}" if absent else ""
    if not devices:
        hint = f"{pip_install('opencl')} brings a software device"
        if server:
            hint = "adrenoc doctor, or clinfo, on that machine shows what its drivers say"
        where = server or "this machine"
        raise DeviceError(f"there is no OpenCL device on {where}{why}", hint=hint)
    titles = [f"{facts['name']} ({facts['platform']})" for facts in devices]
    listed = "; ".join(f"{number} = {title}" for number, title in enumerate(titles))
    for number, (facts, title) in enumerate(zip(devices, titles, strict=True)):
        if wanted.isdigit():
            fits = number == int(wanted)
        elif wanted:
            fits = wanted.lower() in title.lower()
        else:
            fits = facts["images"]["supported"]
        if fits:
            return number, facts
    missing = f'no OpenCL device "{wanted}"' if wanted else "no OpenCL device has images"
    raise DeviceError(f"{missing}; there is {listed}{why}", hint="adrenoc doctor shows them all")


_TEXTURES = "/textures"
"""Ends the name of the entry in a profile that stands before a region's own kernels."""


def prepare_regions(place: RunPlace, module: Any) -> tuple[RegionRun, ...]:
    """Make each region of a loaded module ready."""
    function = place.function("adrenoc.clml.regions")
    known = {field.name for field in fields(RegionRun)}
    found = [
        RegionRun(**{key: value for key, value in facts.items() if key in known})
        for facts in json.loads(function(module, place.number))
    ]
    # The runtime lists them as they were linked; symbols count them as they stand in the model.
    return tuple(sorted(found, key=lambda region: (len(region.symbol), region.symbol)))


def clml_ms(launches: Sequence[TimedLaunch], symbol: str) -> float:
    """Return time of a region's own commands in a profile."""
    return sum(
        launch.time_ms
        for launch in launches
        if launch.kernel.startswith(f"{symbol}/") and not launch.kernel.endswith(_TEXTURES)
    )


def textures_ms(launches: Sequence[TimedLaunch], region: RegionInfo) -> float | None:
    """Return time of the kernels that run in place of a region; None where they did not."""
    names = [launch.kernel for launch in launches]
    if region.symbol + _TEXTURES not in names:
        return None
    start = names.index(region.symbol + _TEXTURES) + 1
    stop = start + len(region.kernels)
    if tuple(names[start:stop]) != region.kernels:
        return None
    return sum(launch.time_ms for launch in launches[start:stop])
