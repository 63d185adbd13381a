"""Which tensors hold whole numbers, and of which range: those of 256 numbers fit into bytes.

Before -> after:
    q = conv2d[conv2d add multiply round clip astype astype add](x, w, b)
    q: whole numbers from -117 to 138
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from adrenoc.families.operators import gives
from adrenoc.families.shared.operator import Numbers
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.tvmapi import IF_THEN_ELSE, Expr, dtype_of, tirx, tvm

Range = tuple[float, float]
"""The least and the greatest of whole numbers; infinite where nothing bounds them."""

NUMBERS_OF_A_BYTE = 256
_ROUNDING = ("tirx.round", "tirx.nearbyint", "tirx.floor", "tirx.ceil", "tirx.trunc")


def whole_numbers(graph: Graph) -> dict[str, Range]:
    """The range of each tensor that holds nothing but whole numbers."""
    found: dict[str, Range] = {}
    for name, tensor in graph.tensors.items():
        if tensor.value is None and tensor.dtype in ("int8", "uint8"):
            info = np.iinfo(tensor.dtype)
            found[name] = (float(info.min), float(info.max))
    for node in graph.nodes:
        known = _of_node(node, found)
        if known is not None:
            found[node.output] = known
    return found


def shift_of(body: Body, ranges: Mapping[str, Range]) -> tuple[Any, float] | None:
    """(load, number) of an expression that adds a number to an element, whatever it converts."""
    expr, shift = body.value, 0.0
    while not isinstance(expr, tvm.ir.TensorLoad):
        if isinstance(expr, tirx.Cast):
            inner = _range(expr.value, _loads(body, ranges))
            if inner is None or _range(expr, _loads(body, ranges)) != inner:
                return None
            expr = expr.value
        elif isinstance(expr, tirx.Add) and isinstance(expr.b, tirx.FloatImm):
            expr, shift = expr.a, shift + float(expr.b.value)
        else:
            return None
    return expr, shift


def _of_node(node: Node, ranges: Mapping[str, Range]) -> Range | None:
    if node.body is not None and node.body.reduced:
        return None
    known: Range | None = None
    if node.body is not None:
        known = _range(node.body.value, _loads(node.body, ranges))
    elif gives(node, Numbers.PICKED) and node.prologue is None:
        known = ranges.get(node.inputs[0])
    if node.epilogue is None:
        return known
    return range_in(node.epilogue.value, node.epilogue, _with_result(ranges, known))


def given_ranges(node: Node, ranges: Mapping[str, Range]) -> Mapping[str, Range]:
    """The ranges of what a node's epilogue reads, its operator's result among them."""
    return _with_result(ranges, _of_node(replace(node, epilogue=None), ranges))


def _with_result(ranges: Mapping[str, Range], known: Range | None) -> Mapping[str, Range]:
    return dict(ranges) if known is None else {**ranges, Node.RESULT: known}


def range_in(expr: Expr, body: Body, ranges: Mapping[str, Range]) -> Range | None:
    """The whole numbers that a part of a body gives; None where it gives others."""
    return _range(expr, _loads(body, ranges))


def _loads(body: Body, ranges: Mapping[str, Range]) -> Callable[[Any], Range | None]:
    def of_load(load: Any) -> Range | None:
        for buffer, name in body.sources.items():
            if load.source.same_as(buffer):
                return ranges.get(name)
        return None

    return of_load


def _range(  # noqa: PLR0911 (one a kind)
    expr: Expr, of_load: Callable[[Any], Range | None]
) -> Range | None:
    """The whole numbers that an expression gives; None where it gives others."""
    if isinstance(expr, tirx.FloatImm | tirx.IntImm):
        value = float(expr.value)
        return (value, value) if math.isfinite(value) and value == round(value) else None
    if isinstance(expr, tvm.ir.TensorLoad):
        return of_load(expr)
    if isinstance(expr, tirx.Cast):
        return _of_cast(expr, _range(expr.value, of_load))
    if isinstance(expr, tirx.Add | tirx.Max | tirx.Min):
        a, b = _range(expr.a, of_load), _range(expr.b, of_load)
        if a is None or b is None:
            return None
        if isinstance(expr, tirx.Add):
            return a[0] + b[0], a[1] + b[1]
        kept = max if isinstance(expr, tirx.Max) else min
        return kept(a[0], b[0]), kept(a[1], b[1])
    if isinstance(expr, tirx.Select):
        return _either([_range(part, of_load) for part in (expr.true_value, expr.false_value)])
    if isinstance(expr, tvm.ir.Call):
        name = getattr(expr.op, "name", "")
        if name == IF_THEN_ELSE:
            return _either([_range(part, of_load) for part in expr.args[1:]])
        if name in _ROUNDING:
            return _range(expr.args[0], of_load) or (-math.inf, math.inf)
    return None


def _of_cast(expr: Any, inner: Range | None) -> Range | None:
    dtype = dtype_of(expr)
    if dtype.startswith("float"):
        return inner
    if not dtype.startswith(("int", "uint")):
        return None
    info = np.iinfo(dtype)
    if inner is not None and info.min <= inner[0] and inner[1] <= info.max:
        return inner
    return float(info.min), float(info.max)


def _either(parts: list[Range | None]) -> Range | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def byte_lows(ranges: Mapping[str, Range]) -> dict[str, int]:
    """Tensor -> the number that a byte of zero stands for, where 256 numbers hold its range.

    Zero is always among them: it is what lies outside of an image.
    """
    lows: dict[str, int] = {}
    for name, (low, high) in ranges.items():
        least, most = min(low, 0.0), max(high, 0.0)
        if most - least < NUMBERS_OF_A_BYTE:
            lows[name] = int(least)
    return lows
