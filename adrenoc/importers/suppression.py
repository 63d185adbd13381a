"""Non-maximum suppression: a loop in which each step depends on the last, so the CPU runs it.

Source: non_max_suppression.h and detection_postprocess.cc of LiteRT.
"""

# No future annotations: TVMScript reads the types of the parameters from the closure.
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script import tirx as T  # noqa: N812

_GONE = -1e30
"""Less than any score."""


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """What is kept: at most `by_class` boxes of each class and `total` of all.

    Candidates score above `least`, or as much where `least_counts`.  A box that overlaps a chosen
    one by more than `overlap` goes, or by as much where `overlap_counts`; the scores of others
    fall by exp(decay * overlap^2).
    """

    by_class: int
    total: int
    least: float
    least_counts: bool
    overlap: float
    overlap_counts: bool
    decay: float = 0.0


def selection_by_class(batches: int, classes: int, boxes: int, rules: Suppression) -> Any:
    """Return a function of corners [batches, boxes, 4] and scores [batches, classes, boxes].

    It gives rows of batch, class and number of the box in float, [total, 3]: by batch, by class,
    best first.  Where there are no more, they hold -1.
    """
    least, limit = float(rules.least), float(rules.overlap)
    by_class, total = min(rules.by_class, boxes), rules.total

    @T.prim_func(private=True, s_tir=True)
    def select(  # type: ignore[no-untyped-def]
        corners: T.Buffer((batches, boxes, 4), "float32"),  # type: ignore[valid-type]
        scores: T.Buffer((batches, classes, boxes), "float32"),  # type: ignore[valid-type]
        picked: T.Buffer((total, 3), "float32"),  # type: ignore[valid-type]
    ):
        left = T.alloc_buffer((boxes,), "float32")
        best = T.alloc_buffer((1,), "float32")
        place = T.alloc_buffer((1,), "int32")
        count = T.alloc_buffer((1,), "int32")
        for i in range(total):
            for j in range(3):
                picked[i, j] = T.float32(-1)
        count[0] = 0
        for b in range(batches):
            for j in range(classes):
                for i in range(boxes):
                    left[i] = T.if_then_else(
                        scores[b, j, i] > T.float32(least), scores[b, j, i], T.float32(_GONE)
                    )
                place[0] = 0
                for _step in range(by_class):
                    if place[0] >= 0:  # else the class has nothing left
                        best[0] = T.float32(_GONE)
                        place[0] = -1
                        for i in range(boxes):
                            if left[i] > best[0]:
                                best[0] = left[i]
                                place[0] = i
                        if place[0] >= 0:
                            picked[count[0], 0] = T.Cast("float32", b)
                            picked[count[0], 1] = T.Cast("float32", j)
                            picked[count[0], 2] = T.Cast("float32", place[0])
                            count[0] = count[0] + 1
                            left[place[0]] = T.float32(_GONE)
                            for i in range(boxes):
                                if left[i] > T.float32(_GONE) and _overlap(
                                    corners, i, place[0], b
                                ) > T.float32(limit):
                                    left[i] = T.float32(_GONE)

    return select


def first_found(count: int) -> Any:
    """Return a function of marks [count] to the numbers of those that are not 0, in order, then
    -1."""

    @T.prim_func(private=True, s_tir=True)
    def find(  # type: ignore[no-untyped-def]
        marks: T.Buffer((count,), "float32"),  # type: ignore[valid-type]
        numbers: T.Buffer((count,), "int32"),  # type: ignore[valid-type]
    ):
        with T.sblock("find"):  # TVM asks for a block where as much goes in as comes out
            T.reads(marks[0:count])
            T.writes(numbers[0:count])
            found = T.sblock_alloc_buffer((1,), "int32")
            found[0] = 0
            for i in range(count):
                numbers[i] = -1
            for i in range(count):
                if marks[i] != T.float32(0):
                    numbers[found[0]] = i
                    found[0] = found[0] + 1

    return find


def selection(boxes: int, classes: int, rules: Suppression) -> Any:
    """Return a function of corners [boxes, 4] and scores [boxes, classes] to [total, 3] in float.

    A row holds the number of the box, its class and its score, best first; where there are no
    more, the number is -1.
    """
    least = _exclude(rules.least, counts=rules.least_counts)
    limit = _exclude(rules.overlap, counts=rules.overlap_counts)
    return _select_best(boxes, classes, rules, least, limit)


def _exclude(bound: float, *, counts: bool) -> float:
    """Return the number that is exceeded by what is above `bound`, and by the bound where it
    counts."""
    if not counts:
        return float(bound)
    return float(np.nextafter(np.float32(bound), np.float32(-np.inf)))


def _select_best(boxes: int, classes: int, rules: Suppression, least: float, limit: float) -> Any:
    by_class, total, decay = min(rules.by_class, boxes), rules.total, float(rules.decay)
    everything = boxes * classes

    @T.prim_func(private=True, s_tir=True)
    def select(  # type: ignore[no-untyped-def]  # noqa: PLR0912
        corners: T.Buffer((boxes, 4), "float32"),  # type: ignore[valid-type]
        scores: T.Buffer((boxes, classes), "float32"),  # type: ignore[valid-type]
        picked: T.Buffer((total, 3), "float32"),  # type: ignore[valid-type]
    ):
        left = T.alloc_buffer((boxes,), "float32")
        kept = T.alloc_buffer((everything,), "float32")
        best = T.alloc_buffer((1,), "float32")
        place = T.alloc_buffer((1,), "int32")
        shared = T.alloc_buffer((1,), "float32")
        for j in range(classes):
            for i in range(boxes):
                left[i] = T.if_then_else(
                    scores[i, j] > T.float32(least), scores[i, j], T.float32(_GONE)
                )
                kept[i * classes + j] = T.float32(_GONE)
            for _step in range(by_class):
                best[0] = T.float32(_GONE)
                place[0] = -1
                for i in range(boxes):
                    if left[i] > best[0]:
                        best[0] = left[i]
                        place[0] = i
                if place[0] >= 0:
                    kept[place[0] * classes + j] = best[0]
                    left[place[0]] = T.float32(_GONE)
                    for i in range(boxes):
                        if left[i] > T.float32(_GONE):
                            shared[0] = _overlap(corners, i, place[0])
                            if shared[0] > T.float32(limit):
                                left[i] = T.float32(_GONE)
                            else:
                                left[i] = left[i] * T.exp(T.float32(decay) * shared[0] * shared[0])
                                if left[i] <= T.float32(least):
                                    left[i] = T.float32(_GONE)
        for s in range(total):
            best[0] = T.float32(_GONE)
            place[0] = -1
            for i in range(everything):
                if kept[i] > best[0]:
                    best[0] = kept[i]
                    place[0] = i
            if place[0] >= 0:
                kept[place[0]] = T.float32(_GONE)
                picked[s, 0] = T.Cast("float32", place[0] // classes)
                picked[s, 1] = T.Cast("float32", place[0] % classes)
                picked[s, 2] = best[0]
            else:
                picked[s, 0] = T.float32(-1)
                picked[s, 1] = T.float32(0)
                picked[s, 2] = T.float32(0)

    return select


def _overlap(corners: Any, a: Any, b: Any, *batch: Any) -> Any:
    """Return the share of two boxes' union that both cover; corners may come in any order."""
    from tvm import tirx

    def side(box: Any, axis: int) -> tuple[Any, Any]:
        ends = ((*batch, box, axis), (*batch, box, axis + 2))
        first, second = (corners[at] for at in ends)
        return tirx.min(first, second), tirx.max(first, second)

    zero = tirx.const(0.0, "float32")
    both: Any = tirx.const(1.0, "float32")
    areas: list[Any] = [both, both]
    for axis in (0, 1):
        spans = [side(a, axis), side(b, axis)]
        low = tirx.max(spans[0][0], spans[1][0])
        high = tirx.min(spans[0][1], spans[1][1])
        both = both * tirx.max(high - low, zero)
        areas = [area * (s[1] - s[0]) for area, s in zip(areas, spans, strict=True)]
    union = areas[0] + areas[1] - both
    nothing = tirx.any(areas[0] <= zero, areas[1] <= zero)
    return tirx.if_then_else(nothing, zero, both / tirx.max(union, tirx.const(1e-30, "float32")))
