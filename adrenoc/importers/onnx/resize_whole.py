"""Linear resizes of whole numbers and of quanta: as onnxruntime computes them, to the bit.

What lies a last bit below a whole number is cut off to the one before it, and what lies a last bit
below the middle of two quanta is rounded down, so that the order of the products counts: each
neighbour times a product of two shares, and four of these summed.  Bytes with their channels last
are computed in fixed point, with ten bits of each share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.tvmapi import tirx
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.mix_neighbours import (
    Neighbours,
    mix_neighbours,
    neighbours_in_fixed_point,
)
from adrenoc.importers.relax.values import constant_value, dtype_of, op_name

MODES = (
    "asymmetric",
    "half_pixel",
    "align_corners",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "tf_half_pixel_for_nn",
)

_HALF = np.float32(0.5)
_LOWEST = float(np.finfo(np.float32).min)
"""Below no product; between a product and a sum it keeps compilers from rounding but once."""
_SHARE_BITS = 10


def is_whole(node: Node) -> bool:
    """Return whether the numbers that a node resizes are integers."""
    return "int" in dtype_of(node.inputs[0])


def is_dequantised(node: Node) -> bool:
    """Return whether they are integers times one scale: (x - zero) * scale, as floats."""
    product = _look_up(node, node.inputs[0])
    if op_name(product) != "relax.multiply" or constant_value(product.args[1]) is None:
        return False
    centred = _look_up(node, product.args[0])
    if op_name(centred) == "relax.subtract":
        centred = _look_up(node, centred.args[0])
    return op_name(centred) == "relax.astype" and "int" in dtype_of(centred.args[0])


def _look_up(node: Node, expr: relax.Expr | None) -> Any:
    return node.bb.lookup_binding(expr) if isinstance(expr, relax.Var) else expr


def float_places(extent: int, target: int, scale: float | None, mode: str) -> np.ndarray:
    """Return where each result of an axis lies among its elements, in float32 as onnxruntime has
    it."""
    places = np.arange(target, dtype=np.float32)
    ratio = np.float32(target) / np.float32(extent) if scale is None else np.float32(scale)
    if ratio == 1.0:
        return places
    if target == 1 and mode in ("align_corners", "pytorch_half_pixel"):
        return np.zeros(1, np.float32)
    if mode == "half_pixel_symmetric":
        # In double between two floats, as constants of C++ have it.
        made = ratio * np.float32(extent)
        offset = np.float32(extent) / np.float32(2) * (np.float32(1) - np.float32(target) / made)
        exact = float(offset) + (places.astype(np.float64) + 0.5) / float(ratio) - 0.5
        return np.asarray(exact, np.float32)
    if mode == "align_corners":
        return np.asarray(places * np.float32(extent - 1) / np.float32(target - 1))
    if mode == "asymmetric":
        return np.asarray(places / ratio)
    middles = np.asarray((places + _HALF) / ratio)
    return middles if mode == "tf_half_pixel_for_nn" else np.asarray(middles - _HALF)


def nearest_places(
    extent: int, target: int, scale: float | None, mode: str, rounding: str
) -> np.ndarray | None:
    """Return the element that each result takes, or None where onnxruntime's rounding is
    another."""
    if mode not in MODES or rounding not in _ROUNDINGS:
        return None
    whole = _ROUNDINGS[rounding](float_places(extent, target, scale, mode))
    return np.asarray(np.clip(whole, 0, extent - 1).astype(np.int32))


def _nearest_below(places: np.ndarray) -> np.ndarray:
    return np.asarray(np.ceil(places.astype(np.float64) - 0.5))


def _nearest_above(places: np.ndarray) -> np.ndarray:
    return np.asarray(np.floor(places.astype(np.float64) + 0.5))


_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": _nearest_below,
    "round_prefer_ceil": _nearest_above,
}


def resize_whole(
    node: Node, places: tuple[np.ndarray, np.ndarray], *, first_axis: int
) -> relax.Expr:
    """Two axes of the input, the first of which is given, at these places, between two elements."""
    x = node.inputs[0]
    assert x is not None
    shape, dtype = node.shape(), dtype_of(x)
    fixed = first_axis + 2 < len(shape) and dtype in ("int8", "uint8")
    extents = shape[first_axis : first_axis + 2]
    find = _neighbours_in_fixed_point if fixed else _neighbours
    rows, columns = (find(p, n) for p, n in zip(places, extents, strict=True))

    def whole_term(column: Any, row: Any, read: Any) -> Any:
        return column * row * read.astype("int32")

    def float_term(column: Any, row: Any, read: Any) -> Any:
        product = _float(column) * _float(row) * read.astype("float32")
        return tirx.max(product, tirx.const(_LOWEST, "float32"))

    def finish(total: Any) -> Any:
        if fixed:
            return tirx.truncdiv(total, tirx.const(1 << 2 * _SHARE_BITS)).astype(dtype)
        return total if dtype == "float32" else tirx.trunc(total).astype(dtype)

    return mix_neighbours(
        node.bb,
        x,
        rows,
        columns,
        first_axis=first_axis,
        term=whole_term if fixed else float_term,
        finish=finish,
    )


def _neighbours(places: np.ndarray, extent: int) -> Neighbours:
    """Return the two elements about each place, and the shares of both as bits."""
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    first, second = _elements(places, extent)
    of_first = np.abs(places - second.astype(np.float32))
    of_second = np.abs(places - first.astype(np.float32))
    of_first, of_second = (np.where(first == second, _HALF, s) for s in (of_first, of_second))
    return Neighbours(
        first=first,
        second=second,
        of_first=of_first.view(np.int32),
        of_second=of_second.view(np.int32),
    )


def _neighbours_in_fixed_point(places: np.ndarray, extent: int) -> Neighbours:
    """Return the same with shares of ten bits behind the point, cut off."""
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    first, second = _elements(places, extent)
    cut = (places * np.float32(1 << _SHARE_BITS)).astype(np.int32)
    of_second = np.where(first == second, 1 << _SHARE_BITS - 1, cut - (first << _SHARE_BITS))
    return neighbours_in_fixed_point(first, second, of_second, _SHARE_BITS)


def _elements(places: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    first = places.astype(np.int32)
    return first, np.minimum(first + 1, extent - 1).astype(np.int32)


def _float(bits: Any) -> Any:
    return tirx.reinterpret("float32", bits)
