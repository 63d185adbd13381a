"""How much of a device's memory the runtime holds."""

from __future__ import annotations

import json

from adrenoc.device.place import Place
from adrenoc.device.trace import Tracer


class MemoryMeter:
    """Measures what the runtime holds on a device, from now on."""

    def __init__(self, place: Place, tracer: Tracer) -> None:
        self._tracer = tracer
        self._number = place.number
        self._stats = place.function("adrenoc.opencl.memory_stats")
        release = place.function("adrenoc.opencl.release_pool")
        if release is not None:
            release(place.number)
        self._before = self._read("allocated_bytes")

    def peak_bytes(self) -> int | None:
        """Return the most that was held since then, beyond what was held before."""
        peak, held = self._count_new("peak_bytes"), self._count_new("allocated_bytes")
        self._tracer.read("memory held, bytes", held)
        self._tracer.read("most memory held, bytes", peak)
        return peak

    def _count_new(self, key: str) -> int | None:
        value = self._read(key)
        return None if value is None or self._before is None else value - self._before

    def _read(self, key: str) -> int | None:
        return None if self._stats is None else int(json.loads(self._stats(self._number))[key])
