"""How the results of several parts of the keys become one: each is scaled to the largest score.

The parts of a softmax can be computed apart, each by its own largest score, and be added once that
of all is known (flash decoding).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, iconst, lane, maximum, splat, tirx
from adrenoc.kernels.families.attention.attention_tile import ROWS
from adrenoc.kernels.families.attention.row_folds import RowFolds


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a part gave, by row: its largest score, the sum of its exponentials, its values."""

    largest: Expr
    total: Expr
    mixed: list[Expr]


def merge_parts(
    folds: RowFolds, share: Share, count_beside: Callable[[Expr, Expr], Expr]
) -> Callable[[int], Expr]:
    """Bring the shares of all parts to local memory; returns what gives a row of their sum.

    `count_beside` adds to the sum of exponentials, by the largest score, what belongs to no part.
    `folds.told` holds four vectors a thread, and nothing that anybody still reads.
    """
    builder, place, told = folds.builder, folds.place, folds.told
    wide, high, parts = place.extents
    count = iconst(high * parts)
    with builder.when(tirx.EQ(place.x, iconst(0))):
        told[place.number(place.part)] = share.largest
        told[count + place.number(place.part)] = share.total
    builder.barrier()
    numbers = [place.number(iconst(part)) for part in range(parts)]
    scores = [builder.let(told[number], "largest") for number in numbers]
    whole = scores[0]
    for score in scores[1:]:
        whole = maximum(whole, score)
    whole = builder.let(whole, "largest")
    totals = [told[count + n] * tirx.exp(s - whole) for n, s in zip(numbers, scores, strict=True)]
    total = builder.let(count_beside(sum(totals[1:], totals[0]), whole), "total")
    factor = builder.let(tirx.exp(share.largest - whole) / total, "factor")
    builder.barrier()

    def position(part: Expr, r: int) -> Expr:
        row = (part * iconst(ROWS) + iconst(r)) * iconst(high) + place.y
        return row * iconst(wide) + place.x

    for r, value in enumerate(share.mixed):
        told[position(place.part, r)] = value * splat(lane(factor, r))
    builder.barrier()

    def sum_shares(r: int) -> Expr:
        shares = [told[position(iconst(part), r)] for part in range(parts)]
        return builder.let(sum(shares[1:], shares[0]), "merged")

    return sum_shares
