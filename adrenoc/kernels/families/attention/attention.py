"""Attention in one kernel: scores, softmax and the mix of values, of tensors as they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, fconst, maximum, splat
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.attention.attention_tile import AttentionTile
from adrenoc.kernels.families.attention.attention_walk import AttentionSizes, AttentionWalk
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import widen

Rescore = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]
"""(n, h, row, block of keys, scores) -> what the softmax gets: scaled, masked."""

Write = Callable[[Expr, Expr, Expr, Expr, Expr], None]
"""Stores (n, h, row, block of channels, value)."""


_LEAST_TOTAL = 1e-30
"""Far below the exponential of the largest score, which is one: what nothing is divided by."""


@dataclass(frozen=True, kw_only=True)
class AttentionOperands:
    """What a kernel reads and writes, by its own coordinates.

    Shapes:
        q: N and H batch, W = rows, C = depth
        k: N and H batch, W = keys, C = depth
        v: N and H batch, W = keys, C = channels
    """

    q: Access
    k: Access
    v: Access
    scale: float
    value_scale: float
    rescore: Rescore | None
    write: Write
    guarded: bool
    """Whether rows without any score come out as zeros, and not as no numbers."""


def attention(
    builder: KernelBuilder, tile: AttentionTile, operands: AttentionOperands, power: str, query: str
) -> None:
    """Emit softmax(scale * q k^T, rescored) v.

    Exponentials lie in local memory as `power`, queries as `query`.
    """
    _Attention(builder, tile, operands, power, query).emit()


class _Attention(AttentionWalk):
    def __init__(
        self,
        builder: KernelBuilder,
        tile: AttentionTile,
        operands: AttentionOperands,
        power: str,
        query: str,
    ) -> None:
        q = operands.q.extents
        sizes = AttentionSizes(
            rows=q.w,
            keys=operands.k.extents.w,
            depth=q.c,
            value_blocks=operands.v.extents.blocks,
            n=q.n,
            h=q.h,
        )
        super().__init__(builder, tile, sizes, power, query)
        self._of = operands

    def query(self, block: Expr, r: int) -> Expr:
        return widen(self._of.q.texel(self.n, block, self.h, self.rows[r]))

    def key(self, block: Expr, key: Expr) -> Expr:
        return widen(self._of.k.texel(self.n, block, self.h, key))

    def value(self, block: Expr, key: Expr) -> Expr:
        return widen(self._of.v.texel(self.n, block, self.h, key))

    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        of = self._of
        if of.scale != 1.0:
            value = self.builder.let(value * splat(fconst(of.scale, ACCUMULATOR)), "s")
        if of.rescore is None:
            return value
        return of.rescore(self.n, self.h, self.rows[r], block, value)

    def count_beside(self, total: Expr, largest: Expr) -> Expr:
        if not self._of.guarded:
            return super().count_beside(total, largest)
        return maximum(total, splat(fconst(_LEAST_TOTAL, ACCUMULATOR)))

    def write(self, r: int, block: Expr, value: Expr) -> None:
        if self._of.value_scale != 1.0:
            value = value * splat(fconst(self._of.value_scale, ACCUMULATOR))
        self._of.write(self.n, self.h, self.rows[r], block, value)
