"""Attention of new tokens over the rows of a cache that are there, which a number in memory says.

Rows of queries are all heads that share a head of keys, of one token after the other, so that a
work-group reads each key once for all of them.  It goes over the rows that its last token sees, and
over none that lie before its first one's window; within a run, what a token does not see gets the
lowest score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.base import tvmapi
from adrenoc.base.tvmapi import (
    Expr,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_numbers,
    load_texel,
    maximum,
    minimum,
    select,
    splat,
    tirx,
)
from adrenoc.importers.relax.cache_constants import (
    OF_ATTENTION,
    OF_ROWS,
    head_of,
    name_constants,
    rows_of,
)
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.attention.attention import AttentionWork, candidates, estimate_clocks
from adrenoc.kernels.families.attention.attention_walk import (
    AttentionSizes,
    AttentionTile,
    AttentionWalk,
)
from adrenoc.kernels.families.cache.new_rows import (
    HeadNorm,
    NewRows,
    Rotation,
    RowQuanta,
    append_rows,
    head_texel,
    known_position,
    load_quanta,
    norm_head,
    open_texel,
    place_of_token,
    place_row,
    rotate,
)
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.walk import ACCUMULATOR, NO_SCORE


@dataclass(frozen=True, kw_only=True)
class CachedOperands:
    """Queries [token, first + head * size], keys and values [1, kv head, row, size].

    `sinks` are scores beside those of the rows, one a head; `bias` is added to the scores of a
    head, [heads, rows] flat, by how many rows a row lies before the token.  `quanta` are of keys
    and of values.  `window` is how many rows a token sees, itself included, 0 for all; `cap` bounds
    scores as cap * tanh(score / cap), 0 does not.
    """

    q: Access
    keys: Access
    values: Access
    position: Access
    rotation: Rotation | None
    norm: HeadNorm | None
    sinks: Access | None
    bias: Access | None
    quanta: tuple[RowQuanta | None, RowQuanta | None]
    tokens: int
    heads: int
    kv_heads: int
    head: int
    rows: int
    held: int
    first: int
    scale: float
    window: int
    cap: float

    @property
    def blocks(self) -> int:
        """Blocks of four numbers that a head has."""
        return self.head // LANES


def cached_attention(
    builder: KernelBuilder,
    tile: AttentionTile,
    operands: CachedOperands,
    numbers: tuple[str, str],
    epilogue: Epilogue,
) -> None:
    """Emit out[token, head * size :] = softmax(scale * q keys^T) values over the rows seen.

    Exponentials and queries lie in local memory as the dtypes `numbers`.
    """
    _Cached(builder, tile, operands, numbers, epilogue).emit()


class _Cached(AttentionWalk):
    masks_keys = True

    def __init__(
        self,
        builder: KernelBuilder,
        tile: AttentionTile,
        operands: CachedOperands,
        numbers: tuple[str, str],
        epilogue: Epilogue,
    ) -> None:
        o, group = operands, operands.heads // operands.kv_heads
        sizes = AttentionSizes(
            rows=o.tokens * group,
            keys=o.rows,
            depth=o.head,
            value_blocks=o.blocks,
            n=1,
            h=o.kv_heads,
        )
        super().__init__(builder, tile, sizes, *numbers)
        self._o, self._epilogue = operands, epilogue
        tokens = [floordiv(row, group) for row in self.rows]
        self._tokens = [builder.let(token, "token") for token in tokens]
        self._heads = [
            builder.let(self.h * iconst(group) + floormod(row, group), "head") for row in self.rows
        ]
        self._positions = [self._position_of(token) for token in self._tokens]
        first, behind = self.group_rows
        last = floordiv(minimum(behind, iconst(sizes.rows)) - iconst(1), group)
        self._first = self._position_of(floordiv(first, group))
        self._last = self._position_of(last)

    def _position_of(self, token: Expr) -> Expr:
        return known_position(self.builder, self._o.position, token, self._o.rows)

    def visit(self) -> None:
        builder, run, first = self.builder, self.run, iconst(0)
        if self._o.window:
            seen = maximum(self._first - iconst(self._o.window - 1), iconst(0))
            first = builder.let(floordiv(seen, run), "first")
        runs = builder.let(floordiv(self._last, run) - first + iconst(1), "runs")
        if self.parts > 1:  # of as many runs each, for they meet at barriers
            runs = builder.let(floordiv(runs + iconst(self.parts - 1), self.parts), "runs")
            first = builder.let(first + self.part * runs, "first")
        with builder.loop(runs, "run", rolled=True) as i:
            self.visit_run(builder.let((first + i) * iconst(run), "key"), run)

    def query(self, block: Expr, r: int) -> Expr:
        builder, o = self.builder, self._o
        start = self._heads[r] * iconst(o.blocks) + iconst(o.first // LANES)
        read = norm_head(builder, o.norm, o.blocks, head_texel(o.q, self._tokens[r], start))
        value = rotate(builder, o.rotation, self._positions[r], block, o.blocks, read)
        value = value * splat(fconst(o.scale, ACCUMULATOR))
        return open_texel(o.quanta[0], value, self.h * iconst(o.blocks) + block)

    def place_key(self, key: Expr, keys: int) -> Expr:
        """Return the first texel of a row that is there: behind the last, of the last."""
        row = place_row(minimum(key, self._last), self._o)
        return (self.h * iconst(self._o.held) + row) * iconst(self._o.blocks)

    def key(self, block: Expr, key: Expr) -> Expr:
        return _load(self._o.keys, self._o.quanta[0], key + block)

    def value(self, block: Expr, key: Expr) -> Expr:
        return _load(self._o.values, self._o.quanta[1], self.place_key(key, self.run) + block)

    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        o, position = self._o, self._positions[r]
        if o.cap:
            cap = splat(fconst(o.cap, ACCUMULATOR))
            value = self.builder.let(cap * tirx.tanh(value / cap), "s")
        scores = []
        if o.bias is not None:
            value = self.builder.let(value, "s")
        for i in range(LANES):
            key = block * iconst(LANES) + iconst(i)
            score = lane(value, i)
            if o.bias is not None:
                at = self._heads[r] * iconst(o.rows) + maximum(position - key, iconst(0))
                score = score + load_numbers(o.bias.buffer, at, 0, 1, aligned=False)
            seen = key <= position
            if o.window:
                seen = seen & (key > position - iconst(o.window))
            scores.append(select(seen, score, fconst(NO_SCORE, ACCUMULATOR)))
        return construct(scores)

    def mix_values(self, first: Expr, keys: int) -> None:
        builder, step = self.builder, self.mix_step
        there = minimum(self._last - first + iconst(1), iconst(keys))
        steps = builder.let(floordiv(there + iconst(step - 1), step), "steps")
        with builder.loop(steps, "keys", rolled=True) as i:
            self.mix_keys(first, i * iconst(step), range(step))

    def count_beside(self, total: Expr, largest: Expr) -> Expr:
        sinks = self._o.sinks
        if sinks is None:
            return total
        held = [load_numbers(sinks.buffer, head, 0, 1, aligned=False) for head in self._heads]
        return self.builder.let(total + tirx.exp(construct(held) - largest), "total")

    def write(self, r: int, block: Expr, value: Expr) -> None:
        value = open_texel(self._o.quanta[1], value, self.h * iconst(self._o.blocks) + block)
        n, h, w = place_of_token(self._o.q, self._tokens[r])
        self._epilogue.write(n, self._heads[r] * iconst(self._o.blocks) + block, h, w, value)


def _load(cache: Access, quanta: RowQuanta | None, at: Expr) -> Expr:
    """Return four numbers of a row as the cache keeps them, in float."""
    return load_texel(cache.buffer, at) if quanta is None else load_quanta(quanta, cache, at)


def append_rows_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: the cache, new rows, the first row's number; perhaps cosines, sines, gains."""
    cache, x, position, *others = node.inputs
    kernel = context.kernel(node, "append_rows")
    held = name_constants(OF_ROWS, node.attrs, others)
    _, heads, count, width = context.graph.tensors[cache].shape
    new = NewRows(
        x=kernel.input(x),
        position=kernel.input(position),
        rotation=rotation_of(kernel, node, held["tables"]),
        norm=gains_of(kernel, node, held["gains"]),
        quanta=quanta_of(kernel, node, held["scales"]),
        tokens=tokens_of(context.graph.tensors[x].shape),
        heads=heads,
        head=head_of(width, int(node.attrs["bits"])),
        rows=rows_of(count, node.attrs),
        held=count,
        first=int(node.attrs["first"]),
    )
    out, _ = kernel.output()
    append_rows(kernel.builder, new, out)
    return kernel.call()


def cached_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: queries, the first one's row, keys, values; perhaps constants (`OF_ATTENTION`)."""
    attrs = node.attrs
    q, position, keys, values, *others = node.inputs
    constants = name_constants(OF_ATTENTION, attrs, others)
    _, kv_heads, count, width = context.graph.tensors[keys].shape
    head = head_of(width, int(attrs["bits"]))
    tokens, heads = tokens_of(context.graph.tensors[q].shape), int(attrs["heads"])
    tile = _choose_tile(context, node, tokens * (heads // kv_heads), context.graph.operand(keys))
    kernel = context.kernel(node, "cached_attention")
    operands = CachedOperands(
        q=kernel.input(q),
        keys=kernel.input(keys),
        values=kernel.input(values),
        position=kernel.input(position),
        rotation=rotation_of(kernel, node, constants["tables"]),
        norm=gains_of(kernel, node, constants["gains"]),
        sinks=numbers_of(kernel, constants["sinks"], "sinks"),
        bias=numbers_of(kernel, constants["bias"], "bias"),
        quanta=both_quanta_of(kernel, node, constants["scales"]),
        tokens=tokens,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        rows=rows_of(count, attrs),
        held=count,
        first=int(attrs["first"]),
        scale=float(attrs["scale"]),
        window=int(attrs["window"]),
        cap=float(attrs["cap"]),
    )
    _, epilogue = kernel.output()
    held = _held_dtype(context)
    cached_attention(kernel.builder, tile, operands, (held, held), epilogue)
    return kernel.call()


def _choose_tile(context: RuleContext, node: Node, rows: int, keys: OperandSpec) -> AttentionTile:
    """Return the schedule for so many rows of queries a head of keys, half of whose rows are
    there."""
    _, kept, there, width = keys.shape
    head = head_of(width, int(node.attrs["bits"]))
    machine, limits = context.machine, context.limits
    held_bytes = tvmapi.bytes_of(_held_dtype(context))
    work = AttentionWork(
        heads=kept,
        rows=rows,
        keys=-(-there // 2),
        depth_blocks=head // LANES,
        value_blocks=head // LANES,
        storage_bytes=tvmapi.bytes_of(keys.dtype),
        power_bytes=held_bytes,
        query_bytes=held_bytes,
    )
    return context.choose(
        node,
        "cached_attention",
        candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine, limits),
    )


def _held_dtype(context: RuleContext) -> str:
    """Return the dtype of exponentials and queries in local memory."""
    return "float16" if context.options.compute_dtype == "float16" else "float32"


def tokens_of(shape: tuple[int, ...]) -> int:
    """Return tokens of a tensor of a batch of one, whose last axis holds the channels."""
    return math.prod(shape[:-1])


def rotation_of(kernel: NodeKernel, node: Node, tables: Sequence[str]) -> Rotation | None:
    """Return how heads are turned, by cosines and sines; None where they are not."""
    if not tables:
        return None
    cos, sin = (kernel.flat(name, "angles", np.ravel, _widen, "float32") for name in tables)
    return Rotation(
        cos=cos,
        sin=sin,
        width=int(node.attrs["rotated"]),
        interleaved=bool(node.attrs["interleaved"]),
    )


def gains_of(kernel: NodeKernel, node: Node, names: Sequence[str]) -> HeadNorm | None:
    """Return how heads are normed, by at most one constant; None where they are not."""
    gains = numbers_of(kernel, names, "gains")
    return None if gains is None else HeadNorm(gains=gains, epsilon=float(node.attrs["epsilon"]))


def quanta_of(kernel: NodeKernel, node: Node, names: Sequence[str]) -> RowQuanta | None:
    """Return how a cache keeps its numbers, by at most one constant; None where as they are."""
    scales = numbers_of(kernel, names, "scales")
    return None if scales is None else RowQuanta(scales=scales, bits=int(node.attrs["bits"]))


def both_quanta_of(
    kernel: NodeKernel, node: Node, names: Sequence[str]
) -> tuple[RowQuanta | None, RowQuanta | None]:
    """Return the same of keys and of values."""
    return quanta_of(kernel, node, names[:1]), quanta_of(kernel, node, names[1:])


def numbers_of(kernel: NodeKernel, names: Sequence[str], kind: str) -> Access | None:
    """At most one constant, flat in float32; None where there is none."""
    held = [kernel.flat(name, kind, np.ravel, _widen, "float32") for name in names]
    return held[0] if held else None


def _widen(table: np.ndarray) -> np.ndarray:
    return table.astype(np.float32, copy=False)
