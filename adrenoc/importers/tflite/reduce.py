"""Operators over windows and axes: pools, resizes, reductions, norms, softmax, Fourier transform.

LiteRT resizes bytes by XNNPACK, with eleven bits of each share, and words by its reference kernel,
which has ten bits and takes places in fixed point, too: so do these, to the bit.

Source: TFLite operator reference; XNNPACK's and LiteRT's kernels for what it leaves open; StableHLO
specification.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.base.tvmapi import select, tirx
from adrenoc.importers.imported import check_grown
from adrenoc.importers.relax.spatial import (
    ResizeNeighbours,
    mix_neighbours,
    neighbours_in_fixed_point,
    transform,
)
from adrenoc.importers.relax.values import dtype_of, make_constant
from adrenoc.importers.tflite.elementwise import Convert, binary, divide_towards_zero, pads_of
from adrenoc.importers.tflite.move import set_apart
from adrenoc.importers.tflite.node import Ints, QuantisedResult, Result, TfliteNode

_TIE = 2.0**-10
"""Pushes a mean that lies between two integers away from zero; others are further from a tie."""


def _window(node: TfliteNode) -> dict[str, Any]:
    kernel = [int(node.option("FilterHeight", 1)), int(node.option("FilterWidth", 1))]
    strides = node.steps("Stride{}")
    pads = pads_of(node, node.shape()[1:3], kernel, strides, [1, 1])
    return {"pool_size": kernel, "strides": strides, "padding": pads, "layout": "NHWC"}


def _average_pool(node: TfliteNode) -> Result:
    """Return the mean of a window's elements inside of the data; of quanta, ties away from zero."""
    if not (node.info().is_quantised or node.dtype().startswith("float")):
        raise RefusedError(f"it takes real numbers, and its input holds {node.dtype()}")
    pooled = relax.op.nn.avg_pool2d(node.data(), **_window(node), count_include_pad=False)
    info = node.info()
    if not info.is_quantised:
        return node.activate(pooled)
    whole = _nearest(node.emit(pooled), info.zero)
    return node.activate(node.move(whole))


def _nearest(mean: relax.Expr, zero: int) -> relax.Expr:
    """Return a mean of quanta as an integer: LiteRT rounds what is stored, ties away from zero."""
    border = make_constant(np.float32(-zero))
    positive = mean >= border
    up, down = make_constant(np.float32(_TIE)), make_constant(np.float32(-_TIE))
    return relax.op.round(mean + relax.op.where(positive, up, down))


def _l2_pool(node: TfliteNode) -> Result:
    square = node.real() * node.real()
    pooled = relax.op.nn.avg_pool2d(square, **_window(node), count_include_pad=False)
    return node.activate(relax.op.sqrt(node.emit(pooled)))


def _axes(node: TfliteNode) -> list[int]:
    rank = len(node.shape())
    return sorted({a % rank for a in node.ints(1)}) if rank else []


def _reduce(op: Callable[..., relax.Expr]) -> Convert:
    def convert(node: TfliteNode) -> Result:
        axes, keep = _axes(node), bool(node.option("KeepDims", False))
        if not axes:
            return node.move(node.data())
        return op(node.real(), axes, keep)

    return convert


def _mean(node: TfliteNode) -> Result:
    axes, keep = _axes(node), bool(node.option("KeepDims", False))
    if node.info().is_quantised:
        total = relax.op.mean(node.data(), axes, keep)
        return QuantisedResult(expr=total, scale=node.info().scales)
    if node.dtype().startswith("float"):
        return relax.op.mean(node.data(), axes, keep)
    count = int(np.prod([node.shape()[a] for a in axes]))
    total = node.emit(relax.op.sum(node.data(), axes, keep))  # whose dtype is asked for
    return divide_towards_zero(total, node.like(count))


def _sum(node: TfliteNode) -> Result:
    axes, keep = _axes(node), bool(node.option("KeepDims", False))
    if node.info().is_quantised:
        total = relax.op.sum(node.data(), axes, keep)
        return QuantisedResult(expr=total, scale=node.info().scales)
    return relax.op.sum(node.data(), axes, keep)


def _extreme(op: Callable[..., relax.Expr]) -> Convert:
    def convert(node: TfliteNode) -> Result:
        return node.move(op(node.data(), _axes(node), bool(node.option("KeepDims", False))))

    return convert


def _logical(op: Callable[..., relax.Expr]) -> Convert:
    """Fold all and any as the least and the greatest of zeros and ones."""

    def convert(node: TfliteNode) -> Result:
        numbers = node.data().astype("int32")
        found = op(numbers, _axes(node), bool(node.option("KeepDims", False)))
        return found.astype("bool")

    return convert


def _arg(op: Callable[..., relax.Expr]) -> Convert:
    """Find the place of the first of equals."""

    def convert(node: TfliteNode) -> Result:
        axis = int(node.scalar(1)) % len(node.shape())
        data = node.data()
        if node.dtype() == "bool":  # TVM knows no least of two truth values
            data = data.astype("int32")
        found = op(data, axis, False)
        return found.astype(node.results[0].dtype)

    return convert


def _cumsum(node: TfliteNode) -> Result:
    axis = int(node.scalar(1)) % len(node.shape())
    x = node.real()
    backwards = bool(node.option("Reverse", False))
    if backwards:
        x = node.emit(relax.op.flip(x, axis))
    total = relax.op.cumsum(x, axis, dtype_of(x), bool(node.option("Exclusive", False)))
    return relax.op.flip(node.emit(total), axis) if backwards else total


def _softmax(node: TfliteNode) -> Result:
    x, beta = node.real(), float(node.option("Beta", 1.0))
    if beta != 1.0:
        x = x * make_constant(np.float32(beta))
    return relax.op.nn.softmax(x, axis=-1)


def _l2_normalisation(node: TfliteNode) -> Result:
    """Normalise over the last axis."""
    x = node.real()
    total = relax.op.sum(x * x, [-1], True)
    inverse = relax.op.rsqrt(relax.op.maximum(total, make_constant(np.float32(1e-12))))
    return node.activate(x * inverse)


def _local_response(node: TfliteNode) -> Result:
    """Normalise over `radius` channels on each side: a product with a band of ones sums squares."""
    x, channels = node.real(), node.shape()[-1]
    radius = int(node.option("Radius"))
    square = x * x
    check_grown(channels * channels)
    places = np.arange(channels)
    band = (np.abs(places[:, None] - places[None, :]) <= radius).astype(np.float32)
    total = node.emit(relax.op.matmul(square, make_constant(band)))
    scaled = total * make_constant(np.float32(node.option("Alpha", 1.0)))
    base = node.emit(scaled) + make_constant(np.float32(node.option("Bias", 1.0)))
    return x * base ** make_constant(np.float32(-float(node.option("Beta", 1.0))))


def _rfft2d(node: TfliteNode) -> Result:
    """Transform along both axes; the result has pairs on a further axis."""
    shape, (rows, columns) = [*node.shape(), 1], node.ints(1)
    x, axis = node.emit(relax.op.reshape(node.real(), shape)), len(shape) - 2
    half = transform(node.emit, x, shape, axis, length=columns, inverse=False, onesided=True)
    shape[axis:] = columns // 2 + 1, 2
    return transform(
        node.emit, node.emit(half), shape, axis - 1, length=rows, inverse=False, onesided=False
    )


def _reduce_window(node: TfliteNode) -> Result:
    """Join what lies at the places of a window, one by one."""
    joins: dict[int, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
        1: relax.op.add,
        2: relax.op.multiply,
        3: relax.op.minimum,
        4: relax.op.maximum,
        5: relax.op.logical_and,
        6: relax.op.logical_or,
    }
    join = joins[int(node.option("ReduceFunction"))]
    window, strides, dilations = (node.ints(i) for i in (2, 3, 4))
    if math.prod(window) > 256:
        raise RefusedError(f"a window of {window}, expected at most 256 elements")
    total = relax.op.reshape(node.data(1), [])
    for part in window_taps(node.data(), node.shape(), window, strides, dilations):
        total = join(total, node.emit(part))
    return total


def window_taps(
    x: relax.Expr, shape: Ints, window: Ints, strides: Ints, dilations: Ints
) -> Iterator[relax.Expr]:
    """Yield what lies at each place of a window, for all windows: a slice by strides."""
    lasts = [
        (d - (w - 1) * r - 1) // s * s
        for d, w, s, r in zip(shape, window, strides, dilations, strict=True)
    ]
    for tap in itertools.product(*map(range, window)):
        begins = [t * r for t, r in zip(tap, dilations, strict=True)]
        ends = [b + last + 1 for b, last in zip(begins, lasts, strict=True)]
        axes = list(range(len(shape)))
        yield relax.op.strided_slice(x, axes, begins, ends, list(strides))


def _hlo_pad(node: TfliteNode) -> Result:
    """Put elements apart by `interior`, then pad; negative pads cut."""
    low, high, interior = (
        [int(v) for v in node.option(n)]
        for n in ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding")
    )
    return set_apart(node.data(), node.shape(), low, high, interior, node.data(1))


def _hlo_gather(node: TfliteNode) -> Result:
    """Take whole rows by a column of numbers: what an embedding lookup becomes."""
    option = node.option
    shape, own = node.shape(), node.shape(1)
    sizes = [int(v) for v in option("SliceSizes")]
    whole = [d if a else 1 for a, d in enumerate(shape)]
    rows = (
        list(option("CollapsedSliceDims")) == [0]
        and list(option("StartIndexMap")) == [0]
        and sizes == whole
        and int(option("IndexVectorDim")) == len(own) - 1
        and own[-1] == 1
        and list(option("OffsetDims")) == list(range(len(own) - 1, len(own) + len(shape) - 2))
    )
    if not rows:
        raise RefusedError("a gather that is no lookup of rows, expected whole rows")
    index = relax.op.reshape(node.data(1), own[:-1]).astype("int32")
    return relax.op.take(node.data(), index, axis=0, mode="clip")


_BYTE_BITS, WORD_BITS = 11, 10
_HALF = np.float32(0.5)


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of `extent` elements that is to have `outputs`, by the options of the operator."""

    extent: int
    outputs: int
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_grown(self.outputs)

    @property
    def is_half(self) -> bool:
        """Return whether an element's place is its middle."""
        return bool(self.options.get("HalfPixelCenters"))

    @property
    def intervals(self) -> tuple[int, int]:
        """Return how many steps the data has to so many of the results; corners: one less."""
        corner = int(bool(self.options.get("AlignCorners")) and self.outputs > 1)
        return self.extent - corner, self.outputs - corner

    @property
    def scale(self) -> np.float32:
        """Return how far results lie apart in the data."""
        have, want = self.intervals
        return np.float32(have) / np.float32(want)

    def places(self) -> np.ndarray:
        """Return where each result lies in the data, before rounding; in float32 as LiteRT."""
        places = np.arange(self.outputs, dtype=np.float32)
        return np.asarray((places + _HALF) * self.scale if self.is_half else places * self.scale)

    def nearest(self) -> np.ndarray:
        """Return the element that each result takes: half away from zero, as C's round."""
        whole = self.places() + 0.5 if self.options.get("AlignCorners") else self.places()
        return np.clip(np.floor(whole), 0, self.extent - 1).astype(np.int32)

    def words(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return two elements for each result and the share of the second, as LiteRT's kernel for
        integers finds them: ratios and places in ten bits of fraction."""
        (have, want), one = self.intervals, 1 << WORD_BITS
        ratio = (one * have + want // 2) // want
        places = np.arange(self.outputs, dtype=np.int64) * ratio
        if self.is_half:
            places = places + ratio // 2 - one // 2
        # Division in C cuts off towards zero.
        first = np.clip(np.trunc(places / one), 0, self.extent - 1).astype(np.int64)
        second = np.minimum(np.trunc((places + one - 1) / one), self.extent - 1).astype(np.int64)
        return first, second, places - first * one


def _axes_of(node: TfliteNode) -> list[tuple[int, ResizedAxis]]:
    sizes = zip((1, 2), node.ints(1), strict=True)
    options = node.operator.options
    return [(axis, ResizedAxis(node.shape()[axis], size, options)) for axis, size in sizes]


def _resize_nearest(node: TfliteNode) -> Result:
    x = node.data()
    for axis, resized in _axes_of(node):
        index = resized.nearest()
        if not np.array_equal(index, np.arange(resized.extent)):
            x = relax.op.take(x, make_constant(index), axis=axis, mode="clip")
    return node.move(x)


def _resize_bilinear(node: TfliteNode) -> Result:
    if not node.info().is_quantised:
        return _mix_floats(node)
    axes = [resized for _, resized in _axes_of(node)]
    if all(resized.extent == resized.outputs for resized in axes):
        return node.move(node.data())
    words = node.info().dtype == "int16"
    rows, columns = (
        neighbours_in_fixed_point(*one.words(), WORD_BITS) if words else _neighbours_of_bytes(one)
        for one in axes
    )
    wide = "int64" if words else "int32"  # 16 bits and two shares of 10 are more than 32
    bits = 2 * (WORD_BITS if words else _BYTE_BITS)
    half, one = (tirx.const(1 << n, wide) for n in (bits - 1, bits))

    def term(column: Any, row: Any, read: Any) -> Any:
        return (column * row).astype(wide) * read.astype("int32").astype(wide)

    def finish(total: Any) -> Any:
        if not words:
            return (total + half >> tirx.const(bits, wide)).astype("float32")
        away = select(total > tirx.const(0, wide), half, tirx.const(-(1 << bits - 1), wide))
        return tirx.truncdiv(total + away, one).astype("float32")

    mixed = mix_neighbours(
        node.emit.builder, node.data(), rows, columns, first_axis=1, term=term, finish=finish
    )
    return node.move(node.emit(mixed))


def _neighbours_of_bytes(one: ResizedAxis) -> ResizeNeighbours:
    """Return them as XNNPACK finds them: places in float32, shares rounded to eleven bits."""
    places = np.arange(one.outputs, dtype=np.float32) * one.scale
    if one.is_half:
        places = places + (_HALF * one.scale - _HALF)
    places = np.clip(places, np.float32(0), np.float32(one.extent - 1))
    first = places.astype(np.int32)
    share = np.rint((places - first.astype(np.float32)) * np.float32(1 << _BYTE_BITS))
    second = np.minimum(first + 1, one.extent - 1)
    return neighbours_in_fixed_point(first, second, share, _BYTE_BITS)


def _mix_floats(node: TfliteNode) -> Result:
    """Mix along one axis, then the other: each result is of two neighbours."""
    x = node.data()
    for axis, resized in _axes_of(node):
        extent, places = resized.extent, resized.places()
        if resized.is_half:
            places = places - _HALF
        low = np.floor(places)
        share = (places - low).astype(np.float32)
        first, second = (np.clip(low + step, 0, extent - 1).astype(np.int32) for step in (0, 1))
        # Beyond the first element there is nothing to mix with.
        share = np.where(places < 0, 0, share).astype(np.float32)
        first = np.where(places < 0, 0, first).astype(np.int32)
        if np.array_equal(first, np.arange(extent)) and not share.any():
            continue
        a = relax.op.take(x, make_constant(first), axis=axis, mode="clip")
        if share.any():
            b = relax.op.take(x, make_constant(second), axis=axis, mode="clip")
            along = [-1 if i == axis else 1 for i in range(len(node.shape()))]
            weight = make_constant(share.reshape(along))
            a = a + (b - a) * weight
        x = a
    return x if node.dtype() == "float32" else node.move(x)


REDUCE_OPS: dict[str, Convert] = {
    "ARG_MAX": _arg(relax.op.argmax),
    "ARG_MIN": _arg(relax.op.argmin),
    "AVERAGE_POOL_2D": _average_pool,
    "CUMSUM": _cumsum,
    "L2_NORMALIZATION": _l2_normalisation,
    "L2_POOL_2D": _l2_pool,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": lambda node: relax.op.nn.log_softmax(node.real(), axis=-1),
    "MAX_POOL_2D": lambda node: node.activate(
        node.move(relax.op.nn.max_pool2d(node.data(), **_window(node)))
    ),
    "MEAN": _mean,
    "REDUCE_ALL": _logical(relax.op.min),
    "REDUCE_ANY": _logical(relax.op.max),
    "REDUCE_MAX": _extreme(relax.op.max),
    "REDUCE_MIN": _extreme(relax.op.min),
    "REDUCE_PROD": _reduce(relax.op.prod),
    "REDUCE_WINDOW": _reduce_window,
    "RFFT2D": _rfft2d,
    "SOFTMAX": _softmax,
    "STABLEHLO_ADD": binary(relax.op.add),
    "STABLEHLO_GATHER": _hlo_gather,
    "STABLEHLO_MAXIMUM": binary(relax.op.maximum),
    "STABLEHLO_MINIMUM": binary(relax.op.minimum),
    "STABLEHLO_MULTIPLY": binary(relax.op.multiply),
    "STABLEHLO_PAD": _hlo_pad,
    "STABLEHLO_SHIFT_LEFT": lambda node: relax.op.left_shift(node.data(0), node.data(1)),
    "SUM": _sum,
    "RESIZE_BILINEAR": _resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
}
