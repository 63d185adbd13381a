"""Queries and the key of a new token in local memory: normed, rotated, queries scaled."""

from __future__ import annotations

from adrenoc.base.tvmapi import (
    Expr,
    fconst,
    floormod,
    iconst,
    if_then_else,
    maximum,
    minimum,
    splat,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.cache.rotation import Texel, head_texel, rotate
from adrenoc.kernels.families.cache.step_operands import StepOperands, StepTile
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.team import ACCUMULATOR


def share_heads(
    builder: KernelBuilder,
    tile: StepTile,
    operands: StepOperands,
    member: Expr,
    kept: Expr,
    position: Expr,
) -> SharedArray:
    """Return the blocks of the query heads of a group, then those of the key's head."""
    return _Heads(builder, tile, operands, member, kept, position).share()


class _Heads:
    def __init__(
        self,
        builder: KernelBuilder,
        tile: StepTile,
        operands: StepOperands,
        member: Expr,
        kept: Expr,
        position: Expr,
    ) -> None:
        self._builder, self._tile, self._o = builder, tile, operands
        self._member, self._kept, self._position = member, kept, position
        self._count = (operands.group + 1) * operands.blocks
        self._raw = builder.allocate_shared(self._count, dtype=ACCUMULATOR)
        self._ready = builder.allocate_shared(self._count, dtype=ACCUMULATOR)

    def share(self) -> SharedArray:
        """Read all, wait, then make each ready: half of what a rotation reads is another's."""
        builder = self._builder
        for item, inside in self._items():
            with builder.when(inside):
                self._raw[item] = self._read(item)
        builder.barrier()
        for item, inside in self._items():
            with builder.when(inside):
                self._make_ready(item)
        builder.barrier()
        return self._ready

    def _items(self) -> list[tuple[Expr, Expr | None]]:
        """Return the blocks that are this thread's, each with whether there is one."""
        threads, count = self._tile.threads, self._count
        found: list[tuple[Expr, Expr | None]] = []
        for first in range(0, count, threads):
            item = self._builder.let(self._member + iconst(first), "item")
            found.append((item, item < iconst(count) if first + threads > count else None))
        return found

    def _read(self, item: Expr) -> Expr:
        """Four numbers of a query head of the group, or of the key's, which comes last."""
        builder, o = self._builder, self._o
        queries = self._kept * iconst(o.group * o.blocks) + iconst(o.firsts[0] // LANES)
        keys = self._kept * iconst(o.blocks) + iconst(o.firsts[1] // LANES)
        is_query = item < iconst(o.group * o.blocks)
        x, k = o.heads[:2]
        if x is k:
            at = if_then_else(is_query, queries + item, keys + item - iconst(o.group * o.blocks))
            return head_texel(x, iconst(0), iconst(0))(builder.let(at, "at"))
        # Each is read inside of its own heads, whichever is wanted.
        of_query = builder.let(minimum(item, iconst(o.group * o.blocks - 1)), "at")
        of_key = builder.let(maximum(item - iconst(o.group * o.blocks), iconst(0)), "at")
        first = builder.let(head_texel(x, iconst(0), queries)(of_query), "q")
        return if_then_else(is_query, first, head_texel(k, iconst(0), keys)(of_key))

    def _make_ready(self, item: Expr) -> None:
        builder, o = self._builder, self._o
        first = builder.let(item - floormod(item, o.blocks), "head")
        is_query = item < iconst(o.group * o.blocks)
        scale = fconst(o.scale, ACCUMULATOR)
        factor = if_then_else(is_query, scale, fconst(1.0, ACCUMULATOR))
        read = self._norm(first, is_query)
        block = builder.let(floormod(item, o.blocks), "b")
        value = rotate(builder, o.rotation, self._position, block, o.blocks, read)
        value = value * splat(builder.let(factor, "factor"))
        quanta = o.quanta[0]
        if quanta is not None:  # a query meets keys as they are kept
            at = builder.let(self._kept * iconst(o.blocks) + block, "channel")
            value = builder.let(value, "value")
            rounded = quanta.round(value, at)
            value = if_then_else(is_query, value * quanta.scale(at), rounded)
        self._ready[item] = value

    def _norm(self, first: Expr, is_query: Expr) -> Texel:
        """Reads a head from local memory as its norm leaves it."""
        builder, o, raw = self._builder, self._o, self._raw
        of_query, of_key = o.norms
        if of_query is None or of_key is None:
            return lambda block: raw[first + block]
        squares = builder.registers(1, dtype=ACCUMULATOR)
        squares.fill(0.0)
        with builder.loop(o.blocks, "b", rolled=True) as i:
            squares[0] = squares[0] + raw[first + i] * raw[first + i]
        total = builder.let(squares[0], "squares")
        length = builder.let(of_query.scale(total, o.head), "length")

        def read(block: Expr) -> Expr:
            gain = builder.let(of_query.gain(block), "gain")
            other = builder.let(of_key.gain(block), "gain")
            return raw[first + block] * length * if_then_else(is_query, gain, other)

        return read
