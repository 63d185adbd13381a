"""Rotations of queries and keys as exporters spell them out.

    y = x * cos + Concat(-x[second half], x[first half]) * sin

perhaps of the first numbers of a head alone, with the others joined behind; or a node of the
standard's RotaryEmbedding.  Graphs are read folded: cosines and sines are constants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from adrenoc.importers.onnx.found_attention import AttentionFinder
from adrenoc.importers.onnx.graph import attributes, is_standard


@dataclass(frozen=True, kw_only=True)
class FoundRotation:
    """`x` [1, heads, tokens, head], its first `width` numbers turned by tables of the tokens."""

    x: str
    cos: str
    sin: str
    width: int
    interleaved: bool


def find_rotation(finder: AttentionFinder, name: str) -> FoundRotation | None:
    """Return what turns a tensor [1, heads, tokens, head]; None where nothing that is known
    does."""
    node = finder.makers.get(name)
    if node is None or not is_standard(node):
        return None
    if node.op_type == "RotaryEmbedding":
        return _of_node(finder, node)
    if node.op_type == "Concat" and len(node.input) == 2 and _is_last_axis(finder, node, name):
        return _of_part(finder, node)
    return _of_halves(finder, name)


def _is_last_axis(finder: AttentionFinder, node: onnx.NodeProto, name: str) -> bool:
    shape = finder.graph.shape_of(name)
    return attributes(node).get("axis") in (-1, -1 if shape is None else len(shape) - 1)


def _of_node(finder: AttentionFinder, node: onnx.NodeProto) -> FoundRotation | None:
    constants, own = finder.graph.constants, attributes(node)
    given = [name for name in node.input if name]
    shape = finder.graph.shape_of(node.input[0])
    if len(given) != 3 or any(name not in constants for name in given[1:]):
        return None
    if shape is None or len(shape) != 4:
        return None
    width = 2 * constants[given[1]].shape[-1]
    return FoundRotation(
        x=given[0],
        cos=given[1],
        sin=given[2],
        width=width,
        interleaved=bool(own.get("interleaved", 0)),
    )


def _of_part(finder: AttentionFinder, node: onnx.NodeProto) -> FoundRotation | None:
    """Turned numbers with those behind that are not."""
    turned = _of_halves(finder, node.input[0])
    if turned is None:
        return None
    first, rest = _slice_of(finder, turned.x), _slice_of(finder, node.input[1])
    if first is None or rest is None or first[0] != rest[0]:
        return None
    shape = finder.graph.shape_of(first[0])
    if shape is None:
        return None
    whole = (first[1:], rest[1:]) == ((0, turned.width), (turned.width, shape[-1]))
    return FoundRotation(**{**vars(turned), "x": first[0]}) if whole else None


def _of_halves(finder: AttentionFinder, name: str) -> FoundRotation | None:
    constants = finder.graph.constants
    node = finder.makers.get(name)
    if node is None or node.op_type != "Add":
        return None
    sides = [finder.makers.get(n) for n in node.input]
    parts = []
    for side in sides:
        if side is None or side.op_type != "Mul":
            return None
        tables = [n for n in side.input if n in constants]
        others = [n for n in side.input if n not in constants]
        if len(tables) != 1 or len(others) != 1:
            return None
        parts.append((others[0], tables[0]))
    for (x, cos), (swapped, sin) in (parts, parts[::-1]):
        shape = finder.graph.shape_of(x)
        if shape is None or len(shape) != 4:
            continue
        width = shape[3]
        if _is_swap(finder, swapped, x, width) and _is_doubled(constants, cos, sin, width):
            return FoundRotation(x=x, cos=cos, sin=sin, width=width, interleaved=False)
    return None


def _is_swap(finder: AttentionFinder, name: str, x: str, width: int) -> bool:
    """Return whether a tensor is Concat(-second half of x, first half of x)."""
    node = finder.makers.get(name)
    if node is None or node.op_type != "Concat" or len(node.input) != 2:
        return False
    negative = finder.makers.get(node.input[0])
    if not _is_last_axis(finder, node, name) or negative is None or negative.op_type != "Neg":
        return False
    second, first = _slice_of(finder, negative.input[0]), _slice_of(finder, node.input[1])
    half = width // 2
    return second == (x, half, width) and first == (x, 0, half)


def _is_doubled(constants: dict[str, np.ndarray], cos: str, sin: str, width: int) -> bool:
    """Return whether both tables say the same of both numbers of each pair."""
    tables = (constants[cos], constants[sin])
    half = width // 2
    return all(
        table.shape[-1] == width and (table[..., :half] == table[..., half:]).all()
        for table in tables
    )


def _slice_of(finder: AttentionFinder, name: str) -> tuple[str, int, int] | None:
    """(x, begin, end) of a slice along the last axis, or of a part of a split."""
    node = finder.makers.get(name)
    if node is None or not is_standard(node) or node.op_type not in ("Slice", "Split"):
        return None
    whole, part = finder.graph.shape_of(node.input[0]), finder.graph.shape_of(name)
    if whole is None or part is None or whole[:-1] != part[:-1]:
        return None
    size = whole[-1]
    if node.op_type == "Split":
        before = list(node.output)[: list(node.output).index(name)]
        shapes = [shape for one in before if (shape := finder.graph.shape_of(one)) is not None]
        if len(shapes) != len(before):
            return None
        begin = sum(shape[-1] for shape in shapes)
        return str(node.input[0]), begin, begin + part[-1]
    begin, end = _bounds_of(finder, node)
    begin, end = (max(0, n + size) if n < 0 else min(n, size) for n in (begin, end))
    return (str(node.input[0]), begin, end) if end - begin == part[-1] else None


def _bounds_of(finder: AttentionFinder, node: onnx.NodeProto) -> tuple[int, int]:
    """Begin and end of a slice along one axis in steps of one; else none that fit."""
    if len(node.input) > 1:
        held = [finder.graph.constants.get(n) for n in node.input[1:]]
        numbers = [int(one.reshape(-1)[0]) for one in held if one is not None and one.size == 1]
        whole = len(numbers) == len(held)
    else:
        own = attributes(node)
        named = [own.get("starts"), own.get("ends")]
        numbers = [int(one[0]) for one in named if isinstance(one, list) and len(one) == 1]
        whole = len(numbers) == 2
    return (numbers[0], numbers[1]) if whole and numbers[3:] in ([], [1]) else (0, 0)
