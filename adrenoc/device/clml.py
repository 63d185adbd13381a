"""The regions of OpenCL ML in a bundle that runs: what a device made of them, and their times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from adrenoc.bundle.manifest import RegionInfo
from adrenoc.device.place import Place
from adrenoc.device.profile import TimedLaunch
from adrenoc.device.result import RegionRun

_TEXTURES = "/textures"
"""Ends the name of the entry in a profile that stands before a region's own kernels."""


def prepare_regions(place: Place, module: Any) -> tuple[RegionRun, ...]:
    """Make each region of a loaded module ready; nothing where the runtime knows no regions."""
    function = place.function("adrenoc.clml.regions")
    if function is None:
        return ()
    known = {field.name for field in fields(RegionRun)}
    found = [
        RegionRun(**{key: value for key, value in facts.items() if key in known})
        for facts in json.loads(function(module, place.number))
    ]
    # The runtime lists them as they were linked; symbols count them as they stand in the model.
    return tuple(sorted(found, key=lambda region: (len(region.symbol), region.symbol)))


def clml_ms(launches: Sequence[TimedLaunch], symbol: str) -> float:
    """Time of a region's own commands in a profile."""
    return sum(
        launch.time_ms
        for launch in launches
        if launch.kernel.startswith(f"{symbol}/") and not launch.kernel.endswith(_TEXTURES)
    )


def textures_ms(launches: Sequence[TimedLaunch], region: RegionInfo) -> float | None:
    """Time of the kernels that run in place of a region; None where they did not."""
    names = [launch.kernel for launch in launches]
    if region.symbol + _TEXTURES not in names:
        return None
    start = names.index(region.symbol + _TEXTURES) + 1
    stop = start + len(region.kernels)
    if tuple(names[start:stop]) != region.kernels:
        return None
    return sum(launch.time_ms for launch in launches[start:stop])
