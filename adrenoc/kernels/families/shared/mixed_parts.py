"""A token's numbers as attention over parts of a cache leaves them, mixed where they are read.

A part is the mix of values by its own powers, and behind that the largest score and the sum of
these powers: [split, query head, head + OF_SCORES].  A product of the token mixes them itself: each
of its work-groups needs all of the numbers, and puts them into local memory before it begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from adrenoc.base.tvmapi import (
    Expr,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_numbers,
    maximum,
    splat,
    tirx,
)
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.local_token import LocalToken
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.team import ACCUMULATOR, plus

OF_SCORES = LANES
"""Numbers of a part behind its mix; two are unused."""


class MixedParts(LocalToken):
    """Reads of the mix of `parts`, as one token of all heads; `sinks`, one a head, are scores of
    no row.

    Shapes:
        parts: N = split, W = query head, C = a head and its scores
    """

    def __init__(self, builder: KernelBuilder, parts: Access, sinks: Access | None) -> None:
        super().__init__(builder, parts)
        self._parts, self._sinks = parts, sinks

    @property
    def extents(self) -> Extents:
        """One token."""
        return token_of(self._parts.extents)

    def _compute(self, member: Expr, threads: int) -> SharedArray:
        builder, e, zero = self._builder, self._parts.extents, iconst(0)
        shares = self._share_powers(member, threads)
        blocks = e.blocks - 1
        mixed = builder.allocate_shared(blocks * e.w, dtype=ACCUMULATOR)
        count = blocks * e.w
        with builder.loop(-(-count // threads), "mix", rolled=True) as turn:
            at = builder.let(turn * iconst(threads) + member, "at")
            with builder.when(at < iconst(count) if count % threads else None):
                query = builder.let(floordiv(at, blocks), "query")
                block = builder.let(floormod(at, blocks), "block")
                texels = [
                    builder.let(self._parts.texel(iconst(n), block, zero, query), "part")
                    for n in range(e.n)
                ]
                mixed[at] = reduce(
                    plus,
                    (
                        texel * shares[query * iconst(e.n) + iconst(n)]
                        for n, texel in enumerate(texels)
                    ),
                )
        return mixed

    def _share_powers(self, member: Expr, threads: int) -> SharedArray:
        """Return what each part of each head is multiplied by, in local memory."""
        builder, e = self._builder, self._parts.extents
        scores_at, zero = iconst(e.blocks - 1), iconst(0)
        shares = builder.allocate_shared(e.w * e.n, dtype=ACCUMULATOR)
        with builder.loop(-(-e.w // threads), "head", rolled=True) as turn:
            query = builder.let(turn * iconst(threads) + member, "query")
            with builder.when(query < iconst(e.w) if e.w % threads else None):
                scores = [
                    builder.let(self._parts.texel(iconst(n), scores_at, zero, query), "scores")
                    for n in range(e.n)
                ]
                largest = lane(scores[0], 0)
                for one in scores[1:]:
                    largest = maximum(largest, lane(one, 0))
                largest = builder.let(largest, "largest")
                powers = [builder.let(tirx.exp(lane(one, 0) - largest), "power") for one in scores]
                total = self._add_up(powers, scores, query, largest)
                inverse = builder.let(fconst(1.0, ACCUMULATOR) / total, "inverse")
                for n, power in enumerate(powers):
                    shares[query * iconst(e.n) + iconst(n)] = splat(power * inverse)
        builder.barrier()
        return shares

    def _add_up(
        self, powers: Sequence[Expr], scores: Sequence[Expr], query: Expr, largest: Expr
    ) -> Expr:
        total = reduce(plus, (p * lane(one, 1) for p, one in zip(powers, scores, strict=True)))
        if self._sinks is not None:
            sink = load_numbers(self._sinks.buffer, query, 0, 1, aligned=False)
            total = total + tirx.exp(sink - largest)
        return self._builder.let(total, "total")


def token_of(parts: Extents) -> Extents:
    """Return the extents of the token whose numbers are in so many parts."""
    return Extents(1, (parts.blocks - 1) * LANES * parts.w, 1, 1)


def mix_clocks(parts: int, blocks: int, threads: int, machine: Machine) -> tuple[float, float]:
    """Return what the mix of so many blocks adds in a group of so many threads: how long each wave
    keeps the busiest pipe, and how long one takes alone."""
    if not parts:
        return 0.0, 0.0
    cost, rates = machine.cost.n_bits, machine.cost.pipes
    texels = math.ceil(blocks / threads) * parts
    slots = texels * (LANES + cost.read_slots)
    alu = slots / machine.lanes
    busiest = machine.threads_of(threads) * max(alu, texels / machine.texels_of(FLOAT_BYTES))
    # With one wait for 64 parts, 4 us were reckoned on an H100 where it took 54.
    at_once = machine.cost.conv_local.texels_a_wait
    waits = math.ceil(blocks / threads) * math.ceil(parts / at_once) + 1
    serial = waits * rates.buffer_latency_clocks + machine.slots_a_wave * slots
    return busiest, serial + 2 * cost.barrier_clocks


def mixed_bytes(parts: Extents) -> int:
    """Local memory that a work-group takes for the mix."""
    return LANES * FLOAT_BYTES * (parts.w * parts.n + (parts.blocks - 1) * parts.w)
