"""Where tensors lie in the arena: as few bytes as are alive at once, results over their sources.

Each tensor is alive from the operator that makes it to the last that reads it.  Two that are alive
at once lie apart, but for a result over the source that dies in making it: that may begin so many
bytes before the source that nothing is overwritten before it is read.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TRIES = 300
_ALIGN = 4


@dataclass(frozen=True, kw_only=True)
class Block:
    """Something that lives in the arena while operators `first` to `last` run."""

    key: str
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Offsets in the arena by key, and its size."""

    offsets: Mapping[str, int]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """A result may lie over its source, by beginning `bytes_before` it or, unless `exact`, more."""

    bytes_before: int
    exact: bool = False


Overlaps = Mapping[tuple[str, str], Overlap]
"""How two tensors may overlap, by (result, source)."""


def plan_memory(blocks: Sequence[Block], overlaps: Overlaps) -> MemoryPlan:
    """Return the smallest of several plans: first fit, in orders by size and in seeded random
    ones."""
    orders = [
        sorted(blocks, key=lambda b: -b.size_bytes),
        sorted(blocks, key=lambda b: (b.first, -b.size_bytes)),
        sorted(blocks, key=lambda b: (-b.last, -b.size_bytes)),
    ]
    shuffle = random.Random(0)
    orders += [shuffle.sample(list(blocks), len(blocks)) for _ in range(_TRIES)]
    floor = _floor(blocks, overlaps)
    best: MemoryPlan | None = None
    for order in orders:
        found = _first_fit(order, overlaps)
        if best is None or found.size_bytes < best.size_bytes:
            best = found
        if best.size_bytes <= floor:
            break
    return best or MemoryPlan(offsets={}, size_bytes=0)


def _floor(blocks: Sequence[Block], overlaps: Overlaps) -> int:
    """No plan is smaller than the largest block."""
    return max((align_words(block.size_bytes) for block in blocks), default=0)


def align_words(size_bytes: int) -> int:
    """Bytes, rounded up to whole words."""
    return -(-size_bytes // _ALIGN) * _ALIGN


def _first_fit(order: Sequence[Block], overlaps: Overlaps) -> MemoryPlan:
    placed: list[tuple[Block, int]] = []
    for block in order:
        alive = [(b, at) for b, at in placed if b.first <= block.last and block.first <= b.last]
        candidates = {0, *(at + align_words(b.size_bytes) for b, at in alive)}
        for other, at in alive:
            for key, way in (((block.key, other.key), -1), ((other.key, block.key), 1)):
                if key in overlaps:
                    candidates.add(max(0, at + way * align_words(overlaps[key].bytes_before)))
        spots = sorted(candidates)
        spot = next(s for s in spots if all(_apart(block, s, b, at, overlaps) for b, at in alive))
        placed.append((block, spot))
    return MemoryPlan(
        offsets={block.key: at for block, at in placed},
        size_bytes=max((at + align_words(b.size_bytes) for b, at in placed), default=0),
    )


def _apart(block: Block, at: int, other: Block, other_at: int, overlaps: Overlaps) -> bool:
    """Return whether two blocks that are alive at once may lie so."""
    if at + block.size_bytes <= other_at or other_at + other.size_bytes <= at:
        return True
    return _overlaps_as_allowed(
        overlaps.get((block.key, other.key)), at, other_at
    ) or _overlaps_as_allowed(overlaps.get((other.key, block.key)), other_at, at)


def _overlaps_as_allowed(overlap: Overlap | None, result_at: int, source_at: int) -> bool:
    if overlap is None:
        return False
    spare = source_at - result_at - overlap.bytes_before
    return spare == 0 if overlap.exact else spare >= 0
