"""Where the wide pixels of a work-group lie in its local memory."""

from __future__ import annotations

from functools import reduce

from adrenoc.base.tvmapi import Expr, iconst, select
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.expansion.expansion_plan import Region


def places_of(
    builder: KernelBuilder, region: Region, first: Expr, row: Expr, col: Expr, pixels: int
) -> list[Expr]:
    """Return the places of so many pixels from (row, col) of the rectangle on, in a block.

    `first` is the place of its pixel (0, 0).  What is not in the rectangle goes to a place that
    nobody reads: to leave it out takes branches.
    """
    at = row * iconst(region.across.read) + col
    if not region.has_shift:
        to = builder.share(first + at, "to")
        return [to + iconst(p) for p in range(pixels)]
    at = builder.share(at, "at")
    places = []
    for p in range(pixels):
        place = select(
            _is_inside(region, row, col + iconst(p)), at + iconst(p), iconst(region.pixels)
        )
        places.append(builder.share(first + place, "to"))
    return places


def _is_inside(region: Region, row: Expr, col: Expr) -> Expr:
    """Return whether a pixel lies in the rectangle, where some may not."""
    tests = []
    for span, at in ((region.down, row), (region.across, col)):
        if span.shifted:
            tests += [at >= iconst(0), at < iconst(span.read)]
    return reduce(lambda a, b: a & b, tests)
