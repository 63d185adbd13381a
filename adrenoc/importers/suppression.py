"""Non-maximum suppression: a loop in which each step depends on the last, so the CPU runs it.

Source: non_max_suppression.h and detection_postprocess.cc of LiteRT.
"""

# No future annotations: TVMScript reads the types of the parameters from the closure.
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
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


def selection(boxes: int, classes: int, rules: Suppression, batches: int = 0) -> Any:
    """Return a function of corners and scores to rows of float, [total, 3], best first.

    Of corners [boxes, 4] and scores [boxes, classes] a row holds the number of the box, its class
    and its score; where there are no more, the number is -1, and the others are 0.  Of several
    `batches`, [batches, boxes, 4] and [batches, classes, boxes], it holds batch, class and number,
    by batch and by class; where there are no more, all are -1.
    """
    least = _exclude(rules.least, counts=rules.least_counts)
    limit = _exclude(rules.overlap, counts=rules.overlap_counts)
    by_class, total, decay = min(rules.by_class, boxes), rules.total, float(rules.decay)
    groups, missing = (classes, -1.0) if batches else (1, 0.0)
    members, most = classes // groups, by_class if batches else total
    outer = (batches,) if batches else ()
    held = (batches, classes, boxes) if batches else (boxes, classes)

    @T.prim_func(private=True, s_tir=True)
    def select(  # type: ignore[no-untyped-def]  # noqa: PLR0912
        corners: T.Buffer((*outer, boxes, 4), "float32"),  # type: ignore[valid-type]
        scores: T.Buffer(held, "float32"),  # type: ignore[valid-type]
        picked: T.Buffer((total, 3), "float32"),  # type: ignore[valid-type]
    ):
        left = T.alloc_buffer((boxes,), "float32")
        kept = T.alloc_buffer((boxes * members,), "float32")
        best = T.alloc_buffer((1,), "float32")
        place = T.alloc_buffer((1,), "int32")
        count = T.alloc_buffer((1,), "int32")
        shared = T.alloc_buffer((1,), "float32")
        count[0] = 0
        for i in range(total):
            for j in range(3):
                picked[i, j] = T.if_then_else(j == 0, T.float32(-1), T.float32(missing))
        for b in range(max(batches, 1)):
            for g in range(groups):
                for j in range(members):
                    for i in range(boxes):
                        best[0] = _score(scores, b, g * members + j, i)
                        left[i] = T.if_then_else(
                            best[0] > T.float32(least), best[0], T.float32(_GONE)
                        )
                        kept[i * members + j] = T.float32(_GONE)
                    place[0] = 0
                    for _step in range(by_class):
                        if place[0] >= 0:  # else nothing is left
                            best[0] = T.float32(_GONE)
                            place[0] = -1
                            for i in range(boxes):
                                if left[i] > best[0]:
                                    best[0] = left[i]
                                    place[0] = i
                            if place[0] >= 0:
                                kept[place[0] * members + j] = best[0]
                                left[place[0]] = T.float32(_GONE)
                                for i in range(boxes):
                                    if left[i] > T.float32(_GONE):
                                        shared[0] = _overlap(corners, b, i, place[0])
                                        if shared[0] > T.float32(limit):
                                            left[i] = T.float32(_GONE)
                                        else:
                                            left[i] = _fall(left[i], shared[0], decay)
                                            if left[i] <= T.float32(least):
                                                left[i] = T.float32(_GONE)
                place[0] = 0
                for _step in range(most):
                    if place[0] >= 0:  # else nothing is left
                        best[0] = T.float32(_GONE)
                        place[0] = -1
                        for i in range(boxes * members):
                            if kept[i] > best[0]:
                                best[0] = kept[i]
                                place[0] = i
                        if place[0] >= 0:
                            kept[place[0]] = T.float32(_GONE)
                            for j in range(3):
                                picked[count[0], j] = _entry(
                                    batches, j, (b, g, place[0]), members, best[0]
                                )
                            count[0] = count[0] + 1

    return select


def _exclude(bound: float, *, counts: bool) -> float:
    """Return the number that what is above `bound` exceeds, and the bound where it counts."""
    if not counts:
        return float(bound)
    return float(np.nextafter(np.float32(bound), np.float32(-np.inf)))


def _entry(batches: int, at: Any, where: tuple[Any, Any, Any], members: int, best: Any) -> Any:
    """Return entry `at` of a row: batch, class and box; or the box and the class of a place."""
    place = where[2]
    row = where if batches else (place // members, place % members, best)
    first, second, third = (part.astype("float32") for part in row)
    return tirx.if_then_else(at == 0, first, tirx.if_then_else(at == 1, second, third))


def _fall(score: Any, overlap: Any, decay: float) -> Any:
    return score * T.exp(T.float32(decay) * overlap * overlap) if decay else score


def _score(scores: Any, batch: Any, j: Any, i: Any) -> Any:
    return scores[batch, j, i] if len(scores.shape) > 2 else scores[i, j]


def first_found(count: int) -> Any:
    """Return a function of marks [count]: the numbers of those that are not 0, then -1."""

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


def _overlap(corners: Any, batch: Any, a: Any, b: Any) -> Any:
    """Return the share of two boxes' union that both cover; corners may come in any order."""

    def side(box: Any, axis: int) -> tuple[Any, Any]:
        outer = (batch,) if len(corners.shape) > 2 else ()
        ends = ((*outer, box, axis), (*outer, box, axis + 2))
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
