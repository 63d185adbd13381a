"""The parts of an attention over a cache, each of some of its rows, put together.

What a part is stands in `mixed_parts.py`.
"""

from __future__ import annotations

from adrenoc.base.tvmapi import construct, fconst, iconst, lane, load_numbers, maximum, splat, tirx
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.cache.step_attention import Mixed
from adrenoc.kernels.team import ACCUMULATOR


def write_part(builder: KernelBuilder, mixed: Mixed, parts: Access) -> None:
    """Store what a work-group has of its rows."""
    group, zero = len(mixed.values), iconst(0)
    blocks = parts.extents.blocks - 1
    for g, value in enumerate(mixed.values):
        query = builder.let(mixed.kept * iconst(group) + iconst(g), "query")
        with builder.when(mixed.is_mine):
            parts.write(mixed.split, mixed.block, zero, query, value)
        vector, number = divmod(g, LANES)
        nothing = fconst(0.0, ACCUMULATOR)
        scores = (lane(mixed.largest[vector], number), lane(mixed.totals[vector], number))
        with builder.when(mixed.is_mine & (mixed.block < iconst(1))):
            told = construct([*scores, nothing, nothing])
            parts.write(mixed.split, iconst(blocks), zero, query, told)


def join_parts(
    builder: KernelBuilder, parts: Access, sinks: Access | None, epilogue: Epilogue
) -> None:
    """Emit the mix of all rows: one thread makes four numbers of a head.

    `sinks`, one a head, are scores of no row.
    """
    e, zero = parts.extents, iconst(0)
    blocks = e.blocks - 1
    block, query = builder.threads(blocks, e.w)[:2]
    state = builder.registers(2, dtype=ACCUMULATOR)
    state[0] = parts.texel(zero, iconst(blocks), zero, query)
    with builder.loop(e.n - 1, "split", rolled=True) as split:
        state[0] = maximum(state[0], parts.texel(split + iconst(1), iconst(blocks), zero, query))
    largest = builder.let(lane(state[0], 0), "largest")
    state[0] = splat(fconst(0.0, ACCUMULATOR))
    state[1] = splat(fconst(0.0, ACCUMULATOR))
    with builder.loop(e.n, "split", rolled=True) as split:
        scores = builder.let(parts.texel(split, iconst(blocks), zero, query), "scores")
        power = builder.let(tirx.exp(lane(scores, 0) - largest), "power")
        state[0] = state[0] + splat(power) * parts.texel(split, block, zero, query)
        state[1] = state[1] + splat(power * lane(scores, 1))
    total = state[1]
    if sinks is not None:
        sink = load_numbers(sinks.buffer, query, 0, 1, aligned=False)
        total = total + splat(tirx.exp(sink - largest))
    mixed = builder.let(state[0] / total, "mixed")
    epilogue.write(zero, query * iconst(blocks) + block, zero, zero, mixed)
