"""What both importers make of windows and planes: pads, Fourier transforms, linear resizes and
non-maximum suppression.

Pads are written as ONNX writes them: all beginnings, then all ends.  A transform is a product with
one matrix of both parts.  Each result of a resize is a mix of two rows and two columns: which they
are and what share each has lies in a table of integers, which no preset rounds.  Suppression is a
loop in which each step depends on the last, so the CPU runs it.

Source: ONNX operator reference: DFT-20; non_max_suppression.h and detection_postprocess.cc of
LiteRT.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script import tirx as T  # noqa: N812

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.values import dtype_of, make_constant, static_shape


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window that slides over `extents`; of each axis its kernel, stride and dilation."""

    extents: Sequence[int]
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]

    @property
    def spans(self) -> list[int]:
        """Return how many elements of an axis it reaches over."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def pads(self, auto_pad: str, given: Sequence[int] | None = None) -> list[int]:
        """Return the explicit pads of a convolution or pool."""
        none = [0] * (2 * len(self.extents))
        if auto_pad in ("NOTSET", "VALID"):
            return list(given) if given and auto_pad == "NOTSET" else none
        if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            raise RefusedError(f"unknown auto_pad '{auto_pad}'")
        begin, end = [], []
        for extent, span, stride in zip(self.extents, self.spans, self.strides, strict=True):
            total = max((-(-extent // stride) - 1) * stride + span - extent, 0)
            small, large = total // 2, total - total // 2
            begin.append(small if auto_pad == "SAME_UPPER" else large)
            end.append(large if auto_pad == "SAME_UPPER" else small)
        return begin + end

    def grow(self, pads: Sequence[int]) -> list[int]:
        """Return pads grown at the end so that rounding down gives what ceil_mode asks for."""
        axes, grown = len(self.extents), list(pads)
        for axis, (extent, span) in enumerate(zip(self.extents, self.spans, strict=True)):
            stride, padded = self.strides[axis], extent + pads[axis] + pads[axis + axes]
            outputs = -(-(padded - span) // stride) + 1
            # A window may not start behind the data and its leading pad.
            if (outputs - 1) * stride >= extent + pads[axis]:
                outputs -= 1
            grown[axis + axes] += max((outputs - 1) * stride + span - padded, 0)
        return grown

    def check(self, pads: Sequence[int]) -> None:
        """Check that it fits into the padded data once at least."""
        axes = len(self.extents)
        if (len(self.kernel), len(self.dilations), len(pads)) != (axes, axes, 2 * axes):
            raise RefusedError(f"a window {list(self.kernel)} does not go with {axes} axes")
        for axis, (extent, span) in enumerate(zip(self.extents, self.spans, strict=True)):
            padded = extent + pads[axis] + pads[axis + axes]
            if not 0 < span <= padded:
                raise RefusedError(f"its window spans {span} elements of an axis that has {padded}")


_LARGEST_MATRIX = 1 << 26
"""Elements of a transform's matrix, which has both parts of each."""


def transform(
    emit: Callable[[relax.Expr], relax.Expr],
    x: relax.Expr,
    shape: Sequence[int],
    axis: int,
    *,
    length: int | None,
    inverse: bool,
    onesided: bool,
) -> relax.Expr:
    """Transform along `axis` by a product; the last axis holds real and imaginary parts.

    `length` pads or cuts the axis first.  With `onesided` the half of the spectrum that says all of
    real numbers is made, or taken."""
    held = shape[axis] * max(shape[axis], length or 0) * 4
    if held > _LARGEST_MATRIX:
        raise RefusedError(f"its matrix has {held} elements, expected up to {_LARGEST_MATRIX}")
    matrix = _dft_matrix(shape[axis], shape[-1], length, inverse=inverse, onesided=onesided)
    made, parts = matrix.shape[2:]
    rank = len(shape)
    order = [*(a for a in range(rank - 1) if a != axis), axis, rank - 1]
    rest = [shape[a] for a in order[:-2]]
    rows = relax.op.permute_dims(x, order)
    rows = relax.op.reshape(rows, [int(np.prod(rest)), shape[axis] * shape[-1]])
    flat = matrix.reshape(shape[axis] * shape[-1], made * parts).astype(dtype_of(x))
    product = emit(relax.op.matmul(rows, make_constant(flat)))
    product = relax.op.reshape(product, [*rest, made, parts])
    return relax.op.permute_dims(product, [int(a) for a in np.argsort(order)])


def _dft_matrix(
    extent: int, parts: int, length: int | None, *, inverse: bool, onesided: bool
) -> np.ndarray:
    """Return [extent, parts in, outputs, parts out] of the transform."""
    to_real = inverse and onesided
    length = length or (2 * (extent - 1) if to_real else extent)
    used = min(extent, length // 2 + 1 if to_real else length)
    outputs = length // 2 + 1 if onesided and not inverse else length
    n, k = np.arange(used)[:, None], np.arange(outputs)[None, :]
    sign = 1 if inverse else -1
    roots = np.exp(sign * 2j * np.pi * n * k / length) / (length if inverse else 1)
    if to_real:  # the other half of the spectrum is the conjugate of this one
        roots = roots * np.where((n == 0) | (2 * n == length), 1, 2)
    full = np.zeros((extent, outputs), np.complex128)
    full[:used] = roots
    # (a + bi)(c + di): what the real and the imaginary part of the input give.
    by_part = np.stack(
        [np.stack([full.real, full.imag], -1), np.stack([-full.imag, full.real], -1)]
    )
    return np.moveaxis(by_part, 0, 1)[:, :parts, :, : 1 if to_real else 2]


@dataclass(frozen=True, kw_only=True, eq=False)
class ResizeNeighbours:
    """Two elements for each result along an axis, with shares, as int32 or as bits of floats."""

    first: np.ndarray
    second: np.ndarray
    of_first: np.ndarray
    of_second: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Elements, then shares, in order."""
        return self.first, self.second, self.of_first, self.of_second


def neighbours_in_fixed_point(
    first: np.ndarray, second: np.ndarray, of_second: np.ndarray, bits: int
) -> ResizeNeighbours:
    """Return shares as integers with so many bits behind the point; they add up to one."""
    whole = np.asarray(of_second, np.int32)
    return ResizeNeighbours(
        first=np.asarray(first, np.int32),
        second=np.asarray(second, np.int32),
        of_first=np.asarray((1 << bits) - whole, np.int32),
        of_second=whole,
    )


def mix_neighbours(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    rows: ResizeNeighbours,
    columns: ResizeNeighbours,
    *,
    first_axis: int,
    term: Callable[[Any, Any, Any], Any],
    finish: Callable[[Any], Any],
) -> relax.Expr:
    """Mix along an axis and the next one. `term` is of the share of a column, that of a row and the
    element; the four terms are summed row by row, and `finish` makes the result of the sum."""
    shape = static_shape(x)
    if shape is None:
        raise RefusedError("it has no static shape")
    kinds = (*rows.columns, *columns.columns)
    starts = np.cumsum([0, *(len(kind) for kind in kinds)]).tolist()
    size = [*shape]
    size[first_axis : first_axis + 2] = len(rows.first), len(columns.first)

    def mix(x: te.Tensor, table: te.Tensor) -> te.Tensor:
        def look_up(kind: int, place: Any) -> Any:
            return table[starts[kind] + place]

        def element(*at: Any) -> Any:
            outer, inner = at[:first_axis], at[first_axis + 2 :]
            i, j = at[first_axis], at[first_axis + 1]
            total: Any = None
            for a in (0, 1):
                for b in (0, 1):
                    read = x(*outer, look_up(a, i), look_up(4 + b, j), *inner)
                    made = term(look_up(6 + b, j), look_up(2 + a, i), read)
                    total = made if total is None else total + made
            return finish(total)

        return te.compute(size, element, name="mix_neighbours")

    table = make_constant(np.concatenate(kinds))
    return builder.call_te(mix, x, table, primfunc_name_hint="mix_neighbours")


_GONE = -1e30
"""Less than any score."""


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """What is kept: at most `by_class` boxes of each class and `total` of all.

    Candidates score above `least`, or as much where `least_counts`.  A box that overlaps a chosen
    one by more than `overlap` goes, or by as much where `overlap_counts`; the scores of others fall
    by exp(decay * overlap^2)."""

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
    by batch and by class; where there are no more, all are -1."""
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
