"""Attention of new tokens over the rows of a cache that are there, which a number in memory says.

Rows of queries are all heads that share a head of keys, of one token after the other, so that a
work-group reads each key once for all of them.  It goes over the rows that its last token sees, and
over none that lie before its first one's window; within a run, what a token does not see gets the
lowest score.
"""

from functools import partial

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_numbers,
    maximum,
    minimum,
    select,
    splat,
    tirx,
)
from adrenoc.importers.relax.own import OF_ATTENTION, head_of
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.families.attention.attention import AttentionWork, candidates, estimate_clocks
from adrenoc.kernels.families.attention.attention_walk import AttentionTile, AttentionWalk
from adrenoc.kernels.families.cache.new_rows import (
    declare_form,
    head_texel,
    known_position,
    load_row,
    norm_head,
    open_texel,
    place_of_token,
    rotate,
    tokens_of,
)
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.walk import ACCUMULATOR, NO_SCORE


class _Cached(AttentionWalk):
    masks_keys = True

    def __init__(self, kernel: NodeKernel, tile: AttentionTile, numbers: str) -> None:
        node, graph = kernel.node, kernel.context.graph
        q, position, keys, values, *others = node.inputs
        self._q, self._k, self._v, self._first_token = (
            kernel.input(name) for name in (q, keys, values, position)
        )
        f = self._form = declare_form(kernel, node, keys, OF_ATTENTION, others)
        self._first_block = int(node.attrs["first"]) // LANES
        _, self._epilogue = kernel.output()
        builder, group = kernel.builder, int(node.attrs["heads"]) // f.kept
        rows = Extents(1, f.head, f.kept, tokens_of(graph.tensors[q].shape) * group)
        super().__init__(builder, tile, rows, f.rows, f.blocks, numbers, numbers)
        tokens = [floordiv(row, group) for row in self.rows]
        self._tokens = [builder.let(token, "token") for token in tokens]
        self._heads = [
            builder.let(self.h * iconst(group) + floormod(row, group), "head") for row in self.rows
        ]
        self._positions = [self._position_of(token) for token in self._tokens]
        first, behind = self.group_rows
        last = floordiv(minimum(behind, iconst(rows.w)) - iconst(1), group)
        self._first = self._position_of(floordiv(first, group))
        self._last = self._position_of(last)

    def _position_of(self, token: Expr) -> Expr:
        return known_position(self.builder, self._first_token, token, self._form.rows)

    def visit(self) -> None:
        builder, run, first = self.builder, self.run, iconst(0)
        if self._form.window:
            seen = maximum(self._first - iconst(self._form.window - 1), iconst(0))
            first = builder.let(floordiv(seen, run), "first")
        runs = builder.let(floordiv(self._last, run) - first + iconst(1), "runs")
        if self.parts > 1:  # of as many runs each, for they meet at barriers
            runs = builder.let(floordiv(runs + iconst(self.parts - 1), self.parts), "runs")
            first = builder.let(first + self.part * runs, "first")
        with builder.loop(runs, "run", rolled=True) as i:
            self.visit_run(builder.let((first + i) * iconst(run), "key"), run)

    def query(self, block: Expr, r: int) -> Expr:
        builder, o = self.builder, self._form
        start = self._heads[r] * iconst(o.blocks) + iconst(self._first_block)
        read = norm_head(builder, o.norms[0], o.blocks, head_texel(self._q, self._tokens[r], start))
        value = rotate(builder, o.rotation, self._positions[r], block, o.blocks, read)
        value = value * splat(fconst(o.scale, ACCUMULATOR))
        return open_texel(o.quanta[0], value, self.h * iconst(o.blocks) + block)

    def place_key(self, key: Expr, keys: int) -> Expr:
        """Return the first texel of a row that is there: behind the last, of the last."""
        row = self._form.place_row(minimum(key, self._last))
        return (self.h * iconst(self._form.held) + row) * iconst(self._form.blocks)

    def key(self, block: Expr, key: Expr) -> Expr:
        return load_row(self._k, self._form.quanta[0], key + block)

    def value(self, block: Expr, key: Expr) -> Expr:
        return load_row(self._v, self._form.quanta[1], self.place_key(key, self.run) + block)

    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        o, position = self._form, self._positions[r]
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
        sinks = self._form.sinks
        if sinks is None:
            return total
        held = [load_numbers(sinks.buffer, head, 0, 1, aligned=False) for head in self._heads]
        return self.builder.let(total + tirx.exp(construct(held) - largest), "total")

    def write(self, r: int, block: Expr, value: Expr) -> None:
        value = open_texel(self._form.quanta[1], value, self.h * iconst(self._form.blocks) + block)
        n, h, w = place_of_token(self._q, self._tokens[r])
        self._epilogue.write(n, self._heads[r] * iconst(self._form.blocks) + block, h, w, value)


def cached_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: queries, the first one's row, keys, values; perhaps constants (`OF_ATTENTION`).

    The estimate takes half of the rows to be there.
    """
    q, _, keys, *_ = node.inputs
    spec = context.graph.operand(keys)
    _, kept, there, width = spec.shape
    blocks = head_of(width, int(node.attrs["bits"])) // LANES
    # Exponentials and queries lie in local memory.
    numbers = "float16" if context.options.compute_dtype == "float16" else "float32"
    work = AttentionWork(
        heads=kept,
        rows=tokens_of(context.graph.tensors[q].shape) * (int(node.attrs["heads"]) // kept),
        keys=-(-there // 2),
        depth_blocks=blocks,
        value_blocks=blocks,
        storage_bytes=bytes_of(spec.dtype),
        power_bytes=bytes_of(numbers),
        query_bytes=bytes_of(numbers),
    )
    estimate = partial(estimate_clocks, limits=context.limits)
    tile = context.search(node, "cached_attention", work, candidates, estimate)
    kernel = context.kernel(node, "cached_attention")
    _Cached(kernel, tile, numbers).emit()
    return kernel.call()
