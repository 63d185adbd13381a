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


Gaps = Mapping[tuple[str, str], int]
"""(result, source) -> by how many bytes the result has to begin before the source."""


def plan_memory(blocks: Sequence[Block], gaps: Gaps) -> MemoryPlan:
    """The smallest of several plans: first fit, in orders by size and in seeded random ones."""
    orders = [
        sorted(blocks, key=lambda b: -b.size_bytes),
        sorted(blocks, key=lambda b: (b.first, -b.size_bytes)),
        sorted(blocks, key=lambda b: (-b.last, -b.size_bytes)),
    ]
    shuffle = random.Random(0)
    orders += [shuffle.sample(list(blocks), len(blocks)) for _ in range(_TRIES)]
    floor = _floor(blocks, gaps)
    best: MemoryPlan | None = None
    for order in orders:
        found = _first_fit(order, gaps)
        if best is None or found.size_bytes < best.size_bytes:
            best = found
        if best.size_bytes <= floor:
            break
    return best or MemoryPlan(offsets={}, size_bytes=0)


def _floor(blocks: Sequence[Block], gaps: Gaps) -> int:
    """No plan is smaller than the largest block."""
    return max((aligned(block.size_bytes) for block in blocks), default=0)


def aligned(size_bytes: int) -> int:
    """Up to whole words."""
    return -(-size_bytes // _ALIGN) * _ALIGN


def _first_fit(order: Sequence[Block], gaps: Gaps) -> MemoryPlan:
    placed: list[tuple[Block, int]] = []
    for block in order:
        alive = [(b, at) for b, at in placed if b.first <= block.last and block.first <= b.last]
        candidates = {0, *(at + aligned(b.size_bytes) for b, at in alive)}
        for other, at in alive:
            for key, way in (((block.key, other.key), -1), ((other.key, block.key), 1)):
                if key in gaps:
                    candidates.add(max(0, at + way * aligned(gaps[key])))
        spots = sorted(candidates)
        spot = next(s for s in spots if all(_apart(block, s, b, at, gaps) for b, at in alive))
        placed.append((block, spot))
    return MemoryPlan(
        offsets={block.key: at for block, at in placed},
        size_bytes=max((at + aligned(b.size_bytes) for b, at in placed), default=0),
    )


def _apart(block: Block, at: int, other: Block, other_at: int, gaps: Gaps) -> bool:
    """Whether two blocks that are alive at once may lie so."""
    if at + block.size_bytes <= other_at or other_at + other.size_bytes <= at:
        return True
    gap = gaps.get((block.key, other.key))
    if gap is not None and at + gap <= other_at:
        return True
    gap = gaps.get((other.key, block.key))
    return gap is not None and other_at + gap <= at
