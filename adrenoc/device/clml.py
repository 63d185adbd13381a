"""The regions of OpenCL ML in a bundle that runs: what a device made of them, and their times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from adrenoc.device.place import Place
from adrenoc.device.profile import Launch
from adrenoc.manifest import RegionInfo

_TEXTURES = "/textures"
"""Ends the name of the entry in a profile that stands before a region's own kernels."""


@dataclass(frozen=True, kw_only=True)
class RegionRun:
    """One region on one device.

    `used` says that CLML runs it; else `reason` tells why its texture kernels do.  `library` is
    what runs it and `versions` its interfaces; `border_copies` and `inner_copies` are commands
    that only convert layouts, `shared` the tensors at the border that CLML works on where they
    lie.  `clml_ms` and `textures_ms` are of one profiled run each, without the kernels around the
    region.
    """

    symbol: str
    used: bool
    reason: str
    library: str
    versions: str
    operators: int
    border_copies: int
    inner_copies: int
    memory_bytes: int
    recorded: bool
    tuning: str
    shared: int = 0
    clml_ms: float | None = None
    textures_ms: float | None = None


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


def clml_ms(launches: Sequence[Launch], symbol: str) -> float:
    """Time of a region's own commands in a profile."""
    return sum(
        launch.time_ms
        for launch in launches
        if launch.kernel.startswith(f"{symbol}/") and not launch.kernel.endswith(_TEXTURES)
    )


def textures_ms(launches: Sequence[Launch], region: RegionInfo) -> float | None:
    """Time of the kernels that run in place of a region; None where they did not."""
    names = [launch.kernel for launch in launches]
    if region.symbol + _TEXTURES not in names:
        return None
    start = names.index(region.symbol + _TEXTURES) + 1
    stop = start + len(region.kernels)
    if tuple(names[start:stop]) != region.kernels:
        return None
    return sum(launch.time_ms for launch in launches[start:stop])
