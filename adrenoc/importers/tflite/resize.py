"""Resizes: bytes and words as LiteRT computes them in fixed point, to the bit.

LiteRT resizes bytes by XNNPACK, with eleven bits of each share, and words by its reference kernel,
which has ten bits and takes places in fixed point, too.

Source: TFLite operator reference; XNNPACK's and LiteRT's kernels for what it leaves open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.tvmapi import select, tirx
from adrenoc.importers.imported import check_grown
from adrenoc.importers.relax.mix_neighbours import (
    Neighbours,
    mix_neighbours,
    neighbours_in_fixed_point,
)
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result

_BYTE_BITS, _WORD_BITS = 11, 10
_HALF = np.float32(0.5)


def _has_corners(node: Node, outputs: int) -> bool:
    return bool(node.option("AlignCorners", False)) and outputs > 1


def _is_half(node: Node) -> bool:
    return bool(node.option("HalfPixelCenters", False))


def _source_places(node: Node, axis: int, outputs: int) -> np.ndarray:
    """Return where each output element lies in the data, before rounding; in float32 as LiteRT."""
    extent = node.shape()[axis]
    check_grown(outputs)
    corner = int(_has_corners(node, outputs))
    scale = np.float32(extent - corner) / np.float32(outputs - corner)
    places = np.arange(outputs, dtype=np.float32)
    return np.asarray((places + _HALF) * scale if _is_half(node) else places * scale)


def _resize_nearest(node: Node) -> Result:
    x = node.data()
    for axis, outputs in zip((1, 2), node.ints(1), strict=True):
        extent = node.shape()[axis]
        places = _source_places(node, axis, outputs)
        corners = bool(node.option("AlignCorners", False))
        # Half away from zero, as C's round.
        whole = np.floor(places + 0.5) if corners else np.floor(places)
        index = np.clip(whole, 0, extent - 1).astype(np.int32)
        if not np.array_equal(index, np.arange(extent)):
            x = relax.op.take(x, make_constant(index), axis=axis, mode="clip")
    return node.move(x)


def _resize_bilinear(node: Node) -> Result:
    sizes = node.ints(1)
    if not node.info().is_quantised:
        return _mix_floats(node, sizes)
    if tuple(sizes) == node.shape()[1:3]:
        return node.move(node.data())
    words = node.info().dtype == "int16"
    find = _neighbours_of_words if words else _neighbours_of_bytes
    rows, columns = (find(node, axis, size) for axis, size in zip((1, 2), sizes, strict=True))
    wide = "int64" if words else "int32"  # 16 bits and two shares of 10 are more than 32
    bits = 2 * (_WORD_BITS if words else _BYTE_BITS)
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


def _neighbours_of_bytes(node: Node, axis: int, outputs: int) -> Neighbours:
    """As XNNPACK finds them: places in float32, shares rounded to eleven bits."""
    extent = node.shape()[axis]
    check_grown(outputs)
    corner = int(_has_corners(node, outputs))
    scale = np.float32(extent - corner) / np.float32(outputs - corner)
    places = np.arange(outputs, dtype=np.float32) * scale
    if _is_half(node):
        places = places + (_HALF * scale - _HALF)
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    first = places.astype(np.int32)
    share = np.rint((places - first.astype(np.float32)) * np.float32(1 << _BYTE_BITS))
    second = np.minimum(first + 1, extent - 1)
    return neighbours_in_fixed_point(first, second, share, _BYTE_BITS)


def _neighbours_of_words(node: Node, axis: int, outputs: int) -> Neighbours:
    """As LiteRT's kernel for integers finds them: ratios and places in ten bits of fraction."""
    extent, one = node.shape()[axis], 1 << _WORD_BITS
    check_grown(outputs)
    corner = int(_has_corners(node, outputs))
    ratio = (one * (extent - corner) + (outputs - corner) // 2) // (outputs - corner)
    places = np.arange(outputs, dtype=np.int64) * ratio
    if _is_half(node):
        places = places + ratio // 2 - one // 2
    # Division in C cuts off towards zero.
    first = np.clip(np.trunc(places / one), 0, extent - 1).astype(np.int64)
    second = np.minimum(np.trunc((places + one - 1) / one), extent - 1).astype(np.int64)
    return neighbours_in_fixed_point(first, second, places - first * one, _WORD_BITS)


def _mix_floats(node: Node, sizes: list[int]) -> Result:
    """Along one axis, then the other; each result element is a mix of two neighbours."""
    x = node.data()
    for axis, outputs in zip((1, 2), sizes, strict=True):
        extent = node.shape()[axis]
        places = _source_places(node, axis, outputs)
        if _is_half(node):
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
            along = [outputs if i == axis else 1 for i in range(len(node.shape()))]
            weight = make_constant(share.reshape(along))
            a = a + (b - a) * weight
        x = a
    return x if node.dtype() == "float32" else node.move(x)


RESIZE_OPS: dict[str, Convert] = {
    "RESIZE_BILINEAR": _resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
}
