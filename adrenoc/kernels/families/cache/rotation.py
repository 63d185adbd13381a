"""Rotary positions: pairs of numbers of a head turned by an angle of the token's position.

Half-split pairs are (j, j + R/2), interleaved ones (2j, 2j + 1), of the first R numbers of a head;
the rest passes through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    construct,
    iconst,
    if_then_else,
    lane,
    load_numbers,
    maximum,
    minimum,
    simplify,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.walk import widen

Texel = Callable[[Expr], Expr]
"""Block of four numbers of a head -> these numbers, in float."""


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """`cos` and `sin` hold a row of `width` / 2 numbers for each position, flat."""

    cos: Access
    sin: Access
    width: int
    interleaved: bool


def rotate(
    builder: KernelBuilder,
    rotation: Rotation | None,
    position: Expr,
    block: Expr,
    blocks: int,
    texel: Texel,
) -> Expr:
    """Four numbers of a head at `block` of its `blocks`, turned by the angle of `position`."""
    if rotation is None:
        return builder.let(texel(block), "x")
    rotated = rotation.width // LANES
    if rotated == blocks:
        return _turn(builder, rotation, position, block, texel)
    # What passes through reads where it is: the other half of a pair would lie beyond the head.
    within = block < iconst(rotated)
    nearest = builder.let(if_then_else(within, block, iconst(0)), "block")
    turned = _turn(builder, rotation, position, nearest, texel)
    kept = builder.let(texel(block), "x")
    return builder.let(if_then_else(within, turned, kept), "x")


def _turn(
    builder: KernelBuilder, rotation: Rotation, position: Expr, block: Expr, texel: Texel
) -> Expr:
    if rotation.interleaved:
        return _turn_neighbours(builder, rotation, position, block, texel)
    half = rotation.width // 2 // LANES
    first = block < iconst(half)
    other = builder.let(if_then_else(first, block + iconst(half), block - iconst(half)), "other")
    row = position * iconst(rotation.width // 2)
    at = builder.let(row + if_then_else(first, block, other) * iconst(LANES), "angle")
    cos = builder.let(load_numbers(rotation.cos.buffer, at, 0, LANES, aligned=True), "cos")
    sin = builder.let(load_numbers(rotation.sin.buffer, at, 0, LANES, aligned=True), "sin")
    x, y = builder.let(texel(block), "x"), builder.let(texel(other), "y")
    turned = builder.let(y * sin, "turned")
    return builder.let(if_then_else(first, x * cos - turned, x * cos + turned), "x")


def _turn_neighbours(
    builder: KernelBuilder, rotation: Rotation, position: Expr, block: Expr, texel: Texel
) -> Expr:
    at = position * iconst(rotation.width // 2) + block * iconst(2)
    x = builder.let(texel(block), "x")
    lanes: list[Expr] = []
    for pair in range(2):
        cos = builder.let(load_numbers(rotation.cos.buffer, at, pair, 1, aligned=False), "cos")
        sin = builder.let(load_numbers(rotation.sin.buffer, at, pair, 1, aligned=False), "sin")
        a, b = lane(x, 2 * pair), lane(x, 2 * pair + 1)
        lanes += [a * cos - b * sin, b * cos + a * sin]
    return builder.let(construct(lanes), "x")


def known_position(builder: KernelBuilder, position: Access, token: Expr, rows: int) -> Expr:
    """Return the row of new token number `token`, kept within the rows of the cache.

    What fills up the last tokens of a prompt may lie beyond; it is not stored, nor read.
    """
    first = position.element([iconst(0)])
    row = minimum(cast(first, "int32") + token, iconst(rows - 1))
    return builder.let(maximum(row, iconst(0)), "position")


def head_texel(x: Access, token: Expr, first_block: Expr) -> Texel:
    """Reads a head of a token: its blocks lie beside each other from `first_block` on."""

    def read(block: Expr) -> Expr:
        n, h, w = place_of_token(x, token)
        return widen(x.texel(n, simplify(first_block + block), h, w))

    return read


def place_of_token(x: Access, token: Expr) -> tuple[Expr, Expr, Expr]:
    """(n, h, w) of a token of a batch of one, whose tokens lie along one axis."""
    e = x.extents
    along = [iconst(0), iconst(0), iconst(0)]
    for number, extent in enumerate((e.n, e.h, e.w)):
        if extent > 1:
            along[number] = token
    return along[0], along[1], along[2]
