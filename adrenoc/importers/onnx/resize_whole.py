"""Linear resizes of whole numbers, which are cut off: as onnxruntime computes them, to the bit.

What lies a last bit below a whole number is cut off to the one before it, so that the order of
the products counts: each neighbour times a product of two shares, and four of these summed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te

from adrenoc.importers.onnx.node import Node
from adrenoc.relax.values import dtype_of, make_constant
from adrenoc.tvmapi import tirx

MODES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")

_HALF = np.float32(0.5)
_LOWEST = float(np.finfo(np.float32).min)
"""Below no product; between a product and a sum it keeps compilers from rounding but once."""


def is_whole(node: Node) -> bool:
    """Whether the numbers that a node resizes are integers."""
    return "int" in dtype_of(node.inputs[0])


def float_places(extent: int, target: int, scale: float | None, mode: str) -> np.ndarray:
    """Where each result of an axis lies among its elements, in float32 as onnxruntime has it."""
    places = np.arange(target, dtype=np.float32)
    ratio = np.float32(target) / np.float32(extent) if scale is None else np.float32(scale)
    if ratio == 1.0:
        return places
    if target == 1 and mode in ("align_corners", "pytorch_half_pixel"):
        return np.zeros(1, np.float32)
    if mode == "align_corners":
        return np.asarray(places * np.float32(extent - 1) / np.float32(target - 1))
    return np.asarray(places / ratio if mode == "asymmetric" else (places + _HALF) / ratio - _HALF)


def nearest_places(
    extent: int, target: int, scale: float | None, mode: str, rounding: str
) -> np.ndarray | None:
    """The element that each result takes, or None where onnxruntime's rounding is another."""
    if mode not in MODES or rounding not in ("floor", "ceil", "round_prefer_floor"):
        return None
    places = float_places(extent, target, scale, mode)
    whole = {"floor": np.floor, "ceil": np.ceil}.get(rounding, _nearest_below)(places)
    return np.asarray(np.clip(whole, 0, extent - 1).astype(np.int32))


def _nearest_below(places: np.ndarray) -> np.ndarray:
    return np.asarray(np.ceil(places.astype(np.float64) - 0.5))


def resize_whole(node: Node, places: tuple[np.ndarray, np.ndarray]) -> relax.Expr:
    """The last two axes of the input at these places, between two elements each."""
    x = node.inputs[0]
    assert x is not None
    shape = node.shape()
    kinds = [t for p, n in zip(places, shape[-2:], strict=True) for t in _neighbours(p, n)]
    starts = np.cumsum([0, *(len(kind) for kind in kinds)]).tolist()
    size = (*shape[:-2], *(len(p) for p in places))
    dtype = dtype_of(x)

    def resized(x: te.Tensor, table: te.Tensor) -> te.Tensor:
        def of(kind: int, place: Any) -> Any:
            return table[starts[kind] + place]

        def element(*at: Any) -> Any:
            outer, i, j = at[:-2], at[-2], at[-1]
            total: Any = None
            for a in (0, 1):
                for b in (0, 1):
                    share = _float(of(6 + b, j)) * _float(of(2 + a, i))
                    read = x(*outer, of(a, i), of(4 + b, j)).astype("float32")
                    term = tirx.max(share * read, tirx.const(_LOWEST, "float32"))
                    total = term if total is None else total + term
            return tirx.trunc(total).astype(dtype)

        return te.compute(size, element, name="resize_whole")

    table = make_constant(np.concatenate(kinds))
    return node.bb.call_te(resized, x, table, primfunc_name_hint="resize_whole")


def _neighbours(places: np.ndarray, extent: int) -> tuple[np.ndarray, ...]:
    """The two elements about each place, and the shares of both as bits: no preset rounds those."""
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    first = places.astype(np.int32)
    second = np.minimum(first + 1, extent - 1).astype(np.int32)
    of_first = np.abs(places - second.astype(np.float32))
    of_second = np.abs(places - first.astype(np.float32))
    of_first, of_second = (np.where(first == second, _HALF, s) for s in (of_first, of_second))
    return first, second, of_first.view(np.int32), of_second.view(np.int32)


def _float(bits: Any) -> Any:
    return tirx.reinterpret("float32", bits)
