"""Ranges of input shapes, and the buckets that stand for them.

A bucket is one choice of all extents, compiled ahead.  `NAME:1..8,3,224..512/96` holds ranges:

    8            this extent
    1..8         doubled from the first to the last: 1, 2, 4, 8
    224..512/96  by steps, and the last: 224, 320, 416, 512
    1|4|6        these extents
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.errors import ShapeError
from adrenoc.ir.options import Shapes, is_extent, parse_shape

MOST_BUCKETS = 32
"""Each is compiled and linked by itself."""

_RANGE = re.compile(r"([0-9]{1,10})\.\.([0-9]+)(?:/([0-9]{1,10}))?")
_HINT = "adrenoc compile MODEL --shape input:1..8,3,224..512/96,224..512/96"


@dataclass(frozen=True, kw_only=True)
class ShapeRange:
    """The extents that each dimension of an input can have, ascending, and how they were written.

    Ranges that are written alike at the same axis of several inputs vary together: a batch, or
    the length of a sentence and of its mask.
    """

    name: str
    extents: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]


def parse_shape_or_range(text: str) -> tuple[str, tuple[int, ...]] | ShapeRange:
    """Read `NAME:D,D,...` of the command line, where a D may be a range. Raises ShapeError where it
    has another form, or a range is empty."""
    name, _, dims = text.rpartition(":")
    texts = tuple(part.strip() for part in dims.split(","))
    if not any(mark in part for part in texts for mark in ("..", "|")):
        return parse_shape(text)
    if not name:
        raise ShapeError(f'--shape "{text}": expected NAME:D,D,...', hint=_HINT)
    extents = tuple(_extents(part, text) for part in texts)
    return ShapeRange(name=name, extents=extents, texts=texts)


def _extents(part: str, text: str) -> tuple[int, ...]:
    found = _RANGE.fullmatch(part)
    if is_extent(part) and int(part):
        return (int(part),)
    numbers = part.split("|")
    if len(numbers) > 1 and all(map(is_extent, numbers)):
        extents = {int(number) for number in numbers}
    elif found is not None and is_extent(found[2]) and found[3] != "0":
        first, last, step = (int(v) if v else 0 for v in found.groups())
        extents = {first, last}
        at = first
        while 0 < at < last and len(extents) <= MOST_BUCKETS:
            extents.add(at)
            at = at + step if step else at * 2
        if first > last:
            extents = {0}
    else:
        extents = {0}
    if min(extents) < 1:
        raise ShapeError(
            f'--shape "{text}": "{part}" is no extent; expected 8, 1..8, 64..256/64 or 1|4|8, from '
            "1 on and ascending",
            hint=_HINT,
        )
    return tuple(sorted(extents))


def buckets_of(ranges: Sequence[tuple[str, tuple[int, ...]] | ShapeRange]) -> tuple[Shapes, ...]:
    """Return all choices of extents, the one with the most elements last. Raises ShapeError where
    there are more than `MOST_BUCKETS`."""
    keys: dict[tuple[int, str], tuple[int, ...]] = {}
    for one in ranges:
        if isinstance(one, ShapeRange):
            numbered = enumerate(zip(one.texts, one.extents, strict=True))
            keys.update({(a, t): e for a, (t, e) in numbered if len(e) > 1})
    count = math.prod(len(extents) for extents in keys.values())
    if count > MOST_BUCKETS:
        raise ShapeError(
            f"the ranges of --shape make {count} buckets; expected up to {MOST_BUCKETS}",
            hint="larger steps, or a list of the extents that you need: 1|8",
        )
    buckets = []
    for choice in itertools.product(*keys.values()):
        chosen = dict(zip(keys, choice, strict=True))
        buckets.append(tuple(_shape_of(one, chosen) for one in ranges))
    return tuple(sorted(buckets, key=_elements))


def _shape_of(
    one: tuple[str, tuple[int, ...]] | ShapeRange, chosen: dict[tuple[int, str], int]
) -> tuple[str, tuple[int, ...]]:
    if not isinstance(one, ShapeRange):
        return one
    numbered = enumerate(zip(one.texts, one.extents, strict=True))
    return one.name, tuple(chosen.get((a, t), e[0]) for a, (t, e) in numbered)


def _elements(bucket: Shapes) -> tuple[int, Shapes]:
    return sum(math.prod(dims) for _, dims in bucket), bucket
