"""How a cache keeps numbers in few bits: as whole numbers, each times a scale of its channel.

Of eight bits they are signed bytes; of four bits two lie in a byte, the first in its low bits, each
with eight added.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    fconst,
    iconst,
    lane,
    load_bytes,
    load_nibbles,
    load_numbers,
    maximum,
    minimum,
    round_numbers,
    splat,
    store,
)
from adrenoc.importers.relax.cache_constants import NIBBLE
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder


@dataclass(frozen=True, kw_only=True)
class Quanta:
    """`scales` holds a number for each channel of all heads of the cache, flat."""

    scales: Access
    bits: int

    def scale(self, block: Expr) -> Expr:
        """Return the scales of four channels, at this block of all heads."""
        return load_numbers(self.scales.buffer, block * iconst(LANES), 0, LANES, aligned=True)

    def round(self, value: Expr, block: Expr) -> Expr:
        """Four numbers as whole ones, in float."""
        last = float((1 << (self.bits - 1)) - 1)
        whole = round_numbers(value / self.scale(block))
        bounds = [splat(fconst(bound, "float32")) for bound in (-last - 1, last)]
        return minimum(maximum(whole, bounds[0]), bounds[1])


def round_row(builder: KernelBuilder, quanta: Quanta | None, value: Expr, block: Expr) -> Expr:
    """Four numbers as the cache keeps them; `block` is one of all heads."""
    return value if quanta is None else builder.let(quanta.round(value, block), "rounded")


def open_texel(quanta: Quanta | None, value: Expr, block: Expr) -> Expr:
    """Four numbers by their scales: of what the cache keeps, or of a query that meets it."""
    return value if quanta is None else value * quanta.scale(block)


def store_texel(
    builder: KernelBuilder,
    quanta: Quanta | None,
    cache: Access,
    place: tuple[Expr, Expr],
    block: Expr,
    value: Expr,
) -> None:
    """Write four numbers, as the cache keeps them, to the block of a row; `place` is head, row."""
    stored = str(cache.spec.dtype)
    lanes = [lane(value, i) for i in range(LANES)]
    if quanta is not None and quanta.bits == NIBBLE:
        codes = [cast(one, "int32") + iconst(1 << (NIBBLE - 1)) for one in lanes]
        lanes = [
            low | (high << iconst(NIBBLE)) for low, high in zip(*[iter(codes)] * 2, strict=True)
        ]
    for i, number in enumerate(lanes):
        at: list[Expr] = [iconst(0), *place, block * iconst(len(lanes)) + iconst(i)]
        builder.emit(store(cache.buffer, at, cast(number, stored)))


def load_quanta(quanta: Quanta, cache: Access, at: Expr) -> Expr:
    """Four numbers of a cache as it keeps them, in float, at this block of all rows."""
    load = load_nibbles if quanta.bits == NIBBLE else load_bytes
    return load(cache.buffer, at)
