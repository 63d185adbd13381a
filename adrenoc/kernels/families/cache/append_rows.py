"""New keys or values of some tokens, written into their rows of a cache; keys may be normed by
their heads, and rotated, first, and both rounded to what the cache keeps.

One thread makes four numbers of one head of one token.  The cache is [1, heads, rows, head], row
by row; the first new row is a number in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from adrenoc.base.tvmapi import Expr, cast, floormod, iconst
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.cache.head_norm import HeadNorm, norm_head
from adrenoc.kernels.families.cache.quanta import Quanta, round_row, store_texel
from adrenoc.kernels.families.cache.rotation import Rotation, head_texel, known_position, rotate


class HoldsRows(Protocol):
    """Caches of rows, of which they may hold the last ones alone."""

    @property
    def rows(self) -> int:
        """How many there may be."""

    @property
    def held(self) -> int:
        """How many of them have a place."""


@dataclass(frozen=True, kw_only=True)
class NewRows:
    """What is written: heads of so many numbers, from channel `first` of each token on.

    There may be `rows` rows, of which the cache holds the last `held`.
    """

    x: Access
    position: Access
    rotation: Rotation | None
    norm: HeadNorm | None
    quanta: Quanta | None
    tokens: int
    heads: int
    head: int
    rows: int
    held: int
    first: int


def append_rows(builder: KernelBuilder, new: NewRows, cache: Access) -> None:
    """Emit cache[0, head, position + token, :] = x[token, first + head * size :], made ready."""
    blocks = new.head // LANES
    block, head, token = builder.threads(blocks, new.heads, new.tokens)
    row = builder.let(cast(new.position.element([iconst(0)]), "int32") + token, "row")
    position = known_position(builder, new.position, token, new.rows)
    start = head * iconst(blocks) + iconst(new.first // LANES)
    read = norm_head(builder, new.norm, blocks, head_texel(new.x, token, start))
    value = rotate(builder, new.rotation, position, block, blocks, read)
    value = round_row(builder, new.quanta, value, head * iconst(blocks) + block)
    with builder.when((row >= iconst(0)) & (row < iconst(new.rows))):
        store_texel(builder, new.quanta, cache, (head, place_row(row, new)), block, value)


def place_row(row: Expr, operands: HoldsRows) -> Expr:
    """Return where a row lies: in a cache of the last ones, in the place of one that no token
    sees."""
    return row if operands.held == operands.rows else floormod(row, operands.held)
