"""Constants of a decoder's graph that hang on its positions, as tables of all rows of a cache.

A graph that was folded for one length of its past (`probe.py`) has cosines, sines and rows of
learned positions of the new tokens alone.  What such a constant is for every row is computed once,
and held against other lengths of the past.  A number that grows with the past, as of decoders that
count their tokens, is read at the first position.

Rotations of queries and keys as exporters spell them out.

    y = x * cos + Concat(-x[second half], x[first half]) * sin

perhaps of the first numbers of a head alone, with the others joined behind; or a node of the
standard's RotaryEmbedding.  Graphs are read folded: cosines and sines are constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.errors import ModelFormatError, OptionError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.decoder_names import POSITIONS
from adrenoc.importers.onnx.found_attention import AttentionFinder
from adrenoc.importers.onnx.graph import OnnxGraph, attributes, is_standard
from adrenoc.importers.onnx.probe import ExtentProber
from adrenoc.importers.onnx.refusals import AS_IT_IS


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
    """Return turned numbers with those behind that are not."""
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
    """Return (x, begin, end) of a slice along the last axis, or of a part of a split."""
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


@dataclass(kw_only=True)
class PositionTables:
    """Finds such constants in the folded graph, and writes tables of `rows` rows in their place."""

    graph: OnnxGraph
    prober: ExtentProber
    tokens: int
    rows: int
    pasts: tuple[int, int]
    _written: int = 0
    _tables: dict[bytes, str] = field(default_factory=dict)
    _known: dict[str, np.ndarray | None] = field(default_factory=dict)

    @property
    def _reach(self) -> int:
        """Rows that tables are computed for: those of the cache, and of what is looked at."""
        return max(self.rows, self.tokens + self.pasts[1])

    def of_rotation(self, rotation: FoundRotation | None) -> tuple[str, str, int, bool] | None:
        """Return constants [rows, width / 2] of a rotation; None where its tables are no such
        ones."""
        if rotation is None:
            return None
        names = []
        for name in (rotation.cos, rotation.sin):
            table = self._table(name)
            if table is None:
                return None
            flat = np.moveaxis(table[0], table[1], 0)
            if flat.size != len(flat) * flat.shape[-1]:
                return None
            flat = flat.reshape(len(flat), -1)[:, : rotation.width // 2]
            names.append(self.intern(flat))
        return names[0], names[1], rotation.width, rotation.interleaved

    def _table(self, name: str) -> tuple[np.ndarray, int] | None:
        """Return what a constant of the new tokens is for all rows, and the axis of the tokens.

        None where it is something else.
        """
        held = self.graph.constants[name]
        if not self.prober.find_hanging([name]):
            return None
        if name not in self._known:
            self._known[name] = self._look_at_all(name)
        whole = self._known[name]
        if whole is None or whole.ndim != held.ndim:
            return None
        values = [held, self.prober.values([name], self.tokens, self.pasts[1]).get(name)]
        for axis in range(held.ndim):
            if (held.shape[axis], whole.shape[axis]) != (self.tokens, self._reach):
                continue
            parts = [
                np.take(whole, range(past, past + self.tokens), axis=axis) for past in self.pasts
            ]
            if all(
                v is not None and np.array_equal(v, p) for v, p in zip(values, parts, strict=True)
            ):
                return np.take(whole, range(self.rows), axis=axis), axis
        return None

    def _look_at_all(self, name: str) -> np.ndarray | None:
        """Return what a constant is for as many new tokens as tables have rows.

        Raises:
            OptionError: what it is read of ends before.
        """
        try:
            return self.prober.values([name], self._reach, 0).get(name)
        except ModelFormatError as error:
            least = self.tokens + self.pasts[1]
            held = self._count_rows(name, least, self._reach)
            if held < min(least, self.rows):
                raise
            raise OptionError(
                f"the table of positions that '{name}' is read of has {held} rows, expected at "
                f"least the context's {self.rows}",
                hint=f"adrenoc compile MODEL --context {held}",
            ) from error

    def _count_rows(self, name: str, there: int, missing: int) -> int:
        """Return how many positions a table has: at least those of `there`, fewer than
        `missing`."""
        while missing - there > 1:
            middle = (there + missing) // 2
            try:
                self.prober.values([name], middle, 0)
            except ModelFormatError:
                missing = middle
            else:
                there = middle
        return there

    def read_at_positions(self) -> None:
        """Have what is left of constants that hang on the past's length read at the positions.

        Raises:
            UnsupportedOperatorError: one is something else.
        """
        graph = self.graph
        graph.drop_unused()
        hanging = self.prober.find_hanging(graph.constants)
        later = self.prober.values(hanging, self.tokens, self.pasts[1]) if hanging else {}
        nodes: list[onnx.NodeProto] = []
        odd = []
        for name in hanging:
            held = graph.constants[name]
            if name in later and np.array_equal(held, later[name]):
                continue
            read = self._read_at_positions(name, nodes)
            if not read:
                odd.append(name)
                continue
            for node in graph.nodes:
                node.input[:] = [read if n == name else n for n in node.input]
            del graph.constants[name]
        if odd:
            names = list_first((f"'{name}'" for name in odd), between=", ")
            raise UnsupportedOperatorError(
                f"{len(odd)} tensors beside masks and positions hang on how long the past is: "
                f"{names}; expected attention alone to",
                hint=AS_IT_IS,
            )
        graph.nodes = [*nodes, *graph.nodes]

    def _read_at_positions(self, name: str, nodes: list[onnx.NodeProto]) -> str:
        """Write into `nodes` what reads a constant's table; empty where it has none."""
        flat = self.write_constant(np.array([self.tokens], np.int64))
        index, read = self.name("positions"), self.name("at positions")
        places = helper.make_node("Reshape", [POSITIONS, flat], [index])
        table = self._table(name)
        if table is not None:
            held = self.intern(table[0])
            nodes += [places, helper.make_node("Gather", [held, index], [read], axis=table[1])]
            return read
        lengths = self._count_of_past(name)
        if lengths is None:
            return ""
        begin, first = self.write_constant(np.array([0], np.int64)), self.name("first position")
        number = self.name("of the past")
        shape = self.write_constant(np.array(self.graph.constants[name].shape, np.int64))
        nodes += [
            places,
            helper.make_node("Gather", [index, begin], [first], axis=0),
            helper.make_node("Gather", [self.intern(lengths), first], [number], axis=0),
            helper.make_node("Reshape", [number, shape], [read]),
        ]
        return read

    def _count_of_past(self, name: str) -> np.ndarray | None:
        """Return what one number is for each length of the past, where it grows by as much with
        each row; None where it does not. It must not hang on how many new tokens there are: a run
        may have more than were asked for."""
        held = self.graph.constants[name]
        pasts = sorted({0, *self.pasts, max(self.rows - self.tokens, *self.pasts)})
        looks = [(self.tokens, past) for past in pasts] + [(self.tokens + 1, pasts[0])]
        values = [self.prober.values([name], *look).get(name) for look in looks]
        if held.size != 1 or any(v is None or v.shape != held.shape for v in values):
            return None
        *numbers, with_more = np.array([v for v in values if v is not None]).reshape(-1)
        if not np.isfinite(numbers).all() or with_more != numbers[0]:
            return None
        step = (int(numbers[-1]) - int(numbers[0])) // (pasts[-1] - pasts[0])
        lengths = int(numbers[0]) + step * np.arange(max(self.rows, pasts[-1] + 1))
        lengths = lengths.astype(held.dtype)
        return lengths[: self.rows] if np.array_equal(lengths[pasts], numbers) else None

    def intern(self, value: np.ndarray) -> str:
        """Return a constant, once for all that are the same."""
        value = np.ascontiguousarray(value)
        key = repr((value.shape, str(value.dtype))).encode() + value.tobytes()
        if key not in self._tables:
            self._tables[key] = self.write_constant(value)
        return self._tables[key]

    def write_constant(self, value: np.ndarray) -> str:
        """Put a constant into the graph; return its name."""
        name = self.name("constant")
        self.graph.set_constant(name, value)
        return name

    def name(self, what: str) -> str:
        """Return a name that no other tensor of the graph has."""
        self._written += 1
        return f"decoder/{what} {self._written}"
