"""Uploads and downloads: by copies, by maps of the driver's memory, in memory of the host's own."""

from __future__ import annotations

from adrenoc.lab.calibrate.measure import Measure, Probe, last_rate, name_steps, rates
from adrenoc.lab.calibrate.micro_kernel import Deed

_KIB = (64, 1024, 16384)
_WAYS = {
    "write": "to a buffer, by a copy",
    "read": "from a buffer, by a copy",
    "map_write": "to a buffer of the driver's, mapped and filled",
    "map_read": "from a buffer of the driver's, mapped and read",
    "own_write": "to a buffer in the host's own memory, mapped and given back",
    "own_read": "from a buffer in the host's own memory, mapped and given back",
    "image_write": "to an image of halves, by a copy",
    "image_read": "from an image of halves, by a copy",
}


def _deeds(way: str) -> tuple[Probe, ...]:
    return tuple(
        Probe(
            kernel=Deed(words={"deed": "copy", "way": way, "bytes": kib * 1024}),
            work=kib * 1024.0,
            x=kib,
        )
        for kib in _KIB
    )


def _measure_way(way: str) -> Measure:
    return Measure(
        name=f"copy.{way}",
        title=f"bytes {_WAYS[way]}, by KiB; the figure is that of {_KIB[-1]}",
        unit="GB/s",
        kernels=lambda *_: _deeds(way),
        figure=last_rate,
        curve=rates,
        word=name_steps,
        lacks=lambda device: device.lacks_images if way.startswith("image") else "",
        scales=False,
    )


MEASURES = tuple(map(_measure_way, _WAYS))
