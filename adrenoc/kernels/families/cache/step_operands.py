"""What the attention of one new token reads, and how its threads share the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, construct, fconst
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.cache.head_norm import HeadNorm
from adrenoc.kernels.families.cache.quanta import Quanta
from adrenoc.kernels.families.cache.rotation import Rotation
from adrenoc.kernels.team import ACCUMULATOR


@dataclass(frozen=True, kw_only=True)
class StepTile:
    """`threads`, a power of two, share a part of the rows; `lanes` of them each row."""

    threads: int
    lanes: int

    @property
    def work_group(self) -> tuple[int, int, int]:
        """Threads in x, y, z."""
        return self.threads, 1, 1

    def turns(self, blocks: int) -> int:
        """Threads that share the same four channels of a head of so many blocks."""
        return self.threads // blocks

    def shared_bytes(self, blocks: int, group: int) -> int:
        """Local memory: heads as they are made ready, parts of scores, powers, folds."""
        vectors = 2 * (group + 1) * blocks + self.parts(blocks, group)
        vectors += 2 * self.threads * vectors_of(group)
        return vectors * LANES * FLOAT_BYTES

    def parts(self, blocks: int, group: int) -> int:
        """Vectors of scores that wait to be added up, and later of mixes."""
        mixes = self.turns(blocks) * blocks * group
        return max(self.threads * self.lanes * vectors_of(group), mixes)


@dataclass(frozen=True, kw_only=True)
class StepOperands:
    """Queries, a new key and a new value, each `first` channels into a tensor of one token.

    `quanta` are of keys and of values; `bias`, `window`, `cap` and `scale` are as in
    `CachedOperands`; `splits` is how many parts there are.
    """

    heads: tuple[Access, Access, Access]
    firsts: tuple[int, int, int]
    norms: tuple[HeadNorm | None, HeadNorm | None]
    rotation: Rotation | None
    bias: Access | None
    quanta: tuple[Quanta | None, Quanta | None]
    position: Access
    keys: Access
    values: Access
    queries: int
    kept: int
    head: int
    rows: int
    held: int
    scale: float
    window: int
    cap: float
    splits: int

    @property
    def blocks(self) -> int:
        """Of four numbers of a head."""
        return self.head // LANES

    @property
    def group(self) -> int:
        """Query heads that share a head of keys."""
        return self.queries // self.kept


def vectors_of(group: int) -> int:
    """Vectors that hold a number for each query head of a group."""
    return -(-group // LANES)


def pack_numbers(numbers: Sequence[Expr]) -> list[Expr]:
    """Numbers as vectors of four, zeros behind the last."""
    zero = fconst(0.0, ACCUMULATOR)
    padded = [*numbers, *[zero] * (-len(numbers) % LANES)]
    return [construct(padded[i : i + LANES]) for i in range(0, len(padded), LANES)]
