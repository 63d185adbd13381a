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

import itertools
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.errors import ModelFormatError, OptionError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.decoder_names import POSITIONS
from adrenoc.importers.onnx.graph import OnnxGraph
from adrenoc.importers.onnx.probe import BATCHED, ExtentProber, is_near, look_back
from adrenoc.importers.onnx.refusals import AS_IT_IS

_TURNING = frozenset(("Add", "Sub", "Mul", "Neg", "Concat", "Slice", "Split", "RotaryEmbedding"))
"""Operators that exporters spell a rotation with."""


@dataclass(frozen=True, kw_only=True)
class FoundRotation:
    """`x` [1, heads, tokens, head], its first `width` numbers turned by tables of the tokens."""

    x: str
    cos: str
    sin: str
    width: int
    interleaved: bool


def find_rotation(graph: OnnxGraph, name: str) -> FoundRotation | None:
    """Return what turns a tensor [1, heads, tokens, head]; None where nothing that is known does.

    It is looked at by numbers: so it does not matter how an exporter spells it.
    """
    shape = graph.shape_of(name)
    if shape is None or len(shape) != BATCHED:
        return None
    chain = next(look_back(graph, name, _TURNING), None)
    if chain is None:
        return None
    given, seen = chain.try_numbers((1, 1, *shape[2:]))
    tables = {n: held for n, held in chain.constants.items() if _is_table(held, shape)}
    for cos, sin in itertools.permutations(tables, 2):
        held = [tables[n].astype(np.float64).reshape(shape[2], -1) for n in (cos, sin)]
        last = held[0].shape[1]
        for width, interleaved in ((last, False), (2 * last, False), (2 * last, True)):
            made = _turn(given, held, width, interleaved=interleaved)
            if made is not None and is_near(seen, made):
                return FoundRotation(
                    x=chain.source, cos=cos, sin=sin, width=width, interleaved=interleaved
                )
    return None


def _is_table(value: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Return whether a constant has a row for each token."""
    return value.dtype.kind == "f" and value.ndim > 1 and value.size == shape[2] * value.shape[-1]


def _turn(
    x: np.ndarray, tables: list[np.ndarray], width: int, *, interleaved: bool
) -> np.ndarray | None:
    """Return `x` with its first numbers turned; None where it has fewer."""
    half = width // 2
    if width > x.shape[-1] or width % 2 or tables[0].shape != tables[1].shape:
        return None
    first = slice(0, width, 2) if interleaved else slice(0, half)
    second = slice(1, width, 2) if interleaved else slice(half, width)
    cos, sin = (table[:, :half] for table in tables)
    made = x.astype(np.float64)
    a, b = made[..., first].copy(), made[..., second].copy()
    made[..., first], made[..., second] = a * cos - b * sin, b * cos + a * sin
    return made


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
        """Return constants [rows, width / 2] of a rotation; None where its tables are none."""
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
        """Return how many positions a table has: at least `there`, fewer than `missing`."""
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
