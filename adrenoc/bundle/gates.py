"""Gates: by how much a figure of a bundle may grow before a build fails.

`launches,size=1%` allows no more launches, and one percent more bytes; `memory=2MiB` and
`time=30us` allow an amount.

The figures that a build is judged by: of one bundle, without running it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adrenoc.base.errors import OptionError
from adrenoc.base.text.spelling import did_you_mean, show_bytes, show_ms
from adrenoc.bundle.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a bundle takes.  `kernels` are texts, `launches` how often one starts in a run, `copies`
    those that only move elements, between devices too.  `time_us` is the sum of the launches'
    floors by the target's rates, without what launching takes; None where they do not tell of each
    launch."""

    kernels: int
    launches: int
    copies: int
    texture_nodes: int
    buffer_nodes: int
    cpu_nodes: int
    memory_bytes: int
    size_bytes: int
    time_us: float | None


def figures_of(bundle: Bundle) -> Figures:
    """Return the figures of a bundle, or of one of its buckets."""
    manifest = bundle.manifest
    statistics = manifest.statistics
    launches = bundle.launches()
    floors = [launch.floor_us for launch in launches]
    known = [floor for floor in floors if floor is not None]
    return Figures(
        kernels=len(manifest.kernels),
        launches=len(launches) or sum(kernel.calls for kernel in manifest.kernels),
        copies=statistics.pad_kernels
        + statistics.copy_kernels
        + statistics.layout_kernels
        + statistics.device_copies,
        texture_nodes=statistics.nodes_texture,
        buffer_nodes=statistics.nodes_buffer,
        cpu_nodes=statistics.nodes_cpu,
        memory_bytes=manifest.memory.peak_bytes,
        size_bytes=bundle.bytes,
        time_us=round(sum(known), 3) if floors and len(known) == len(floors) else None,
    )


_BYTES = {"": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}
_TIMES = {"": 1.0, "us": 1.0, "ms": 1000.0}


@dataclass(frozen=True, kw_only=True)
class _Gated:
    """The field of `Figures`, how people read it, and the units of an amount."""

    key: str
    show: Callable[[Any], str] = str
    units: Mapping[str, float] = field(default_factory=lambda: {"": 1.0})


_FIGURES = {
    "kernels": _Gated(key="kernels"),
    "launches": _Gated(key="launches"),
    "copies": _Gated(key="copies"),
    "memory": _Gated(key="memory_bytes", show=show_bytes, units=_BYTES),
    "size": _Gated(key="size_bytes", show=show_bytes, units=_BYTES),
    "time": _Gated(key="time_us", show=lambda us: show_ms(us / 1000), units=_TIMES),
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[A-Za-z]*)")
_HINT = "such as --fail-on launches,size=1%,memory=2MiB,time=30us"


@dataclass(frozen=True, kw_only=True)
class GrowthLimit:
    """One figure that may grow by a share of what it was (`share`) and by an `amount`."""

    name: str
    share: float = 0.0
    amount: float = 0.0
    said: str = ""

    def broken_by(self, before: Figures, after: Figures) -> str:
        """Return a sentence where the figure grew by more; empty where it did not."""
        key = _FIGURES[self.name].key
        was, now = getattr(before, key), getattr(after, key)
        if was is None or now is None:
            return (
                f"{self.name}: not known {'before' if was is None else 'after'}, the target lacks "
                "rates; this gate needs a GPU whose are known, such as adreno:750"
            )
        if now <= was * (1 + self.share) + self.amount:
            return ""
        allowed = f"{self.said} more" if self.said else "no more"
        show = _FIGURES[self.name].show
        return f"{self.name}: {show(was)} before, {show(now)} after, allowed {allowed}"


def parse_gates(text: str) -> tuple[GrowthLimit, ...]:
    """Gates between commas, each `NAME` or `NAME=TOLERANCE`."""
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(part: str) -> GrowthLimit:
    name, has_tolerance, tolerance = (piece.strip() for piece in part.partition("="))
    if name not in _FIGURES:
        raise OptionError(
            f'there is no gate "{name}"{did_you_mean(name, list(_FIGURES))}; gates are '
            f"{', '.join(_FIGURES)}",
            hint=_HINT,
        )
    if not has_tolerance:
        return GrowthLimit(name=name)
    found = _AMOUNT.fullmatch(tolerance)
    units = _FIGURES[name].units
    known = found is not None and found[2] in ("%", *units)
    if found is None or not known or not math.isfinite(float(found[1])):
        expected = ", ".join(["5%", *(f"5{unit}" for unit in units)])
        raise OptionError(
            f'the gate {name} may grow by "{tolerance}"; expected one of {expected}', hint=_HINT
        )
    number = float(found[1])
    if found[2] == "%":
        return GrowthLimit(name=name, share=number / 100, said=tolerance)
    return GrowthLimit(name=name, amount=number * units[found[2]], said=tolerance)


def list_broken(gates: Sequence[GrowthLimit], before: Figures, after: Figures) -> tuple[str, ...]:
    """Return a sentence for each gate that is broken, in their order."""
    said = (gate.broken_by(before, after) for gate in gates)
    return tuple(sentence for sentence in said if sentence)
