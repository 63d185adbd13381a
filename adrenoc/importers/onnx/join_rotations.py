"""Make what a graph computes of positions before an attention over a cache the attention's own.

A decoder's positions are the numbers of the rows that the attention adds.  So rotations of queries
and keys are done by the attention, and biases of scores become constant tables by distance.

Before -> after:
    q = RotaryEmbedding(x, position_ids, cosines, sines), keys alike
    GroupQueryAttention(q, keys, ...)
    ->
    GroupQueryAttention(x, ..., cosines, sines) with `do_rotary`

    GroupQueryAttention(..., attention_bias) -> GroupQueryAttention(..., a constant)

Masks, and what else is added to scores, are looked at by numbers, for pasts of several lengths
(`probe.py`).  A mask is a causal one, or one of a window of the attention; biases that hang on
nothing but how far a row lies before the token are a table of that.

A graph that was folded for one length of its past (`probe.py`) has cosines, sines and rows of
learned positions of the new tokens alone.  What such a constant is for every row is computed once,
and held against other lengths of the past.  A number that grows with the past, as of decoders that
count their tokens, is read at the first position.

Exporters spell rotations out, perhaps of the first numbers of a head alone:
    y = x * cos + Concat(-x[second half], x[first half]) * sin
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from adrenoc.base.errors import (
    ModelFormatError,
    OptionError,
    RefusedError,
    UnsupportedOperatorError,
)
from adrenoc.base.text.spelling import list_names
from adrenoc.bundle.chat import POSITIONS
from adrenoc.importers.onnx.attention import BIAS, BY_DISTANCE, PLAIN_ROTATION, SINKS
from adrenoc.importers.onnx.found_attention import FoundMask, Seen, read_masks
from adrenoc.importers.onnx.graph import OnnxGraph, attributes
from adrenoc.importers.onnx.probe import BATCHED, ExtentProber, choose_pasts, is_near, look_back
from adrenoc.importers.onnx.refusals import AS_IT_IS, NotCovered

_OTHER_ROWS = (
    "the mask of {} hides other rows than those after each token, or than those before a window; "
    "expected a causal one"
)
_OTHER_BIAS = (
    "what is added to the scores of {} hangs on more than how far a row lies before the token, "
    "which is all that a table of it can say"
)
_ROUNDING = 8
"""How many units in the last place biases may be off what a table says of them."""


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """Reads masks of a folded graph that has `tokens` new ones, over caches of `rows`."""

    prober: ExtentProber
    graph: OnnxGraph
    tokens: int
    rows: int
    pasts: tuple[int, int]

    def read(
        self,
        masks: Sequence[FoundMask],
        *,
        causal: bool = False,
        before: bool = False,
        shifted: bool = True,
    ) -> tuple[int, np.ndarray | None]:
        """Return what masks say.

        With `causal` it hides by itself the rows after each token, or, where the past is joined
        `before` it, those after as many as there are new tokens.  Where scores may be `shifted`,
        all of a token by one number, the softmax is the same."""
        given = (masks, causal, before)
        first = self._look(*given, 1, self.rows - 1)
        row = None if first is None else first.rows[0]
        window = 0
        if row is not None and not row.all():
            window = int(row.sum())
            if not row[self.rows - window :].all():
                row = None
        checked = [(self.tokens, past) for past in self.pasts]
        if window and window + self.tokens + 2 <= self.rows:
            checked.append((self.tokens, window + 2))
        looks = [] if row is None else [(past, self._look(*given, n, past)) for n, past in checked]
        if first is None or not looks or not all(_is_causal(*look, window) for look in looks):
            raise RefusedError(_OTHER_ROWS)
        bias = self._read_bias(first, looks, shifted=shifted)
        return window, bias

    def _look(
        self, masks: Sequence[FoundMask], causal: bool, before: bool, tokens: int, past: int
    ) -> Seen | None:
        names = [mask.name for mask in masks]
        values = self.prober.values(names, tokens, past) if names else {}
        held = {name: self.graph.constants[name] for name in names if name not in values}
        seen = read_masks({**held, **values}, masks, tokens, past + tokens)
        if seen is None or not causal:
            return seen
        allowed = np.tril(np.ones(seen.rows.shape, bool), 0 if before else past)
        return Seen(rows=seen.rows & allowed, added=seen.added)

    def _read_bias(
        self, first: Seen, looks: Sequence[tuple[int, Seen | None]], *, shifted: bool
    ) -> np.ndarray | None:
        """Return the table of what is added, by how far a row lies before the token."""
        seen = [(past, look) for past, look in looks if look is not None]
        if first.added is None and all(look.added is None for _, look in seen):
            return None
        for is_shifted in (False, True) if shifted else (False,):
            added = first.bias(self.rows - 1, is_shifted=is_shifted)
            table = added[:, 0, ::-1]
            if all(_follows(table, past, look, is_shifted=is_shifted) for past, look in seen):
                return np.ascontiguousarray(table, np.float32)
        raise RefusedError(_OTHER_BIAS)


def _is_causal(past: int, seen: Seen | None, window: int) -> bool:
    if seen is None:
        return False
    tokens, rows = seen.rows.shape
    mine, others = past + np.arange(tokens)[:, None], np.arange(rows)
    expected = (others <= mine) & ((others > mine - window) if window else True)
    return bool((seen.rows == expected).all())


def _follows(table: np.ndarray, past: int, seen: Seen, *, is_shifted: bool) -> bool:
    """Return whether what is added to the rows that are seen is what the table says."""
    tokens, rows = seen.rows.shape
    added = seen.bias(past, is_shifted=is_shifted)
    before = past + np.arange(tokens)[:, None] - np.arange(rows)
    expected = table[:, np.clip(before, 0, table.shape[1] - 1)]
    known = seen.rows & (before < table.shape[1])
    size = max(float(np.abs(table).max()), float(np.abs(added).max()))
    off = np.abs(added - expected)[:, known]
    return bool((off <= _ROUNDING * seen.precision * size).all())


_POSITIONS_AT = 9
"""Input of GroupQueryAttention."""
_SAME_NUMBERS = ("Cast", "Identity", "Reshape", "Unsqueeze")
"""What exporters put between positions and what reads them."""
_ROTATES = ("do_rotary", "rotary_interleaved")


def join_rotations(graph: OnnxGraph, attentions: list[NodeProto], positions: str) -> None:
    """Change, in place, `attentions` that number their rows as `positions` does."""
    makers, readers = graph.makers(), graph.count_reads()
    joined: list[NodeProto] = []
    for node in attentions:
        if len(node.input) > _POSITIONS_AT and _is_same(makers, node.input[9], positions):
            node.input[_POSITIONS_AT] = ""
        rotations = [makers.get(name) for name in node.input[:2]]
        found = [one for one in rotations if one is not None and readers[one.output[0]] == 1]
        if len(found) == len(rotations) and _fit(graph, node, found, makers, positions):
            _join(node, found)
            joined += found
    gone = {id(node) for node in joined}
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in gone]
    left = sum(node.op_type == "RotaryEmbedding" for node in graph.nodes)
    for count, taken, reason in (
        (
            len(joined),
            "computed where keys are written and queries are read",
            f"'{positions}' are the numbers of the rows, by which the attention rotates",
        ),
        (
            left,
            "computed apart",
            f"queries and keys turn by other tables or positions than '{positions}', something "
            "else reads them too, or no attention over a cache follows",
        ),
    ):
        if count:
            graph.log.add(f"{count} rotations", taken, reason)


def _is_same(makers: Mapping[str, NodeProto], name: str, positions: str) -> bool:
    while name != positions:
        node = makers.get(name)
        if node is None or node.op_type not in _SAME_NUMBERS:
            return False
        name = node.input[0]
    return True


def _fit(
    graph: OnnxGraph,
    attention: NodeProto,
    rotations: list[NodeProto],
    makers: Mapping[str, NodeProto],
    positions: str,
) -> bool:
    """Return whether an attention can rotate in place of nodes for its queries and its keys."""
    own = attributes(attention)
    past = graph.shape_of(attention.input[3])
    if own.get("do_rotary", 0) or past is None or len(past) != 4:
        return False
    if any(node.op_type != "RotaryEmbedding" or node.domain == "" for node in rotations):
        return False
    first, second = rotations
    same = list(first.input[2:4]) == list(second.input[2:4])
    table = graph.constants.get(first.input[2])
    if not same or table is None or table.ndim != 2:
        return False
    kinds = [attributes(node) for node in rotations]
    if len({kind.get("interleaved", 0) for kind in kinds}) > 1:
        return False
    heads = (own.get("num_heads"), own.get("kv_num_heads"))
    return all(
        _is_same(makers, node.input[1], positions)
        and _rotates_heads(kind, count, past[3], 2 * table.shape[1])
        for node, kind, count in zip(rotations, kinds, heads, strict=True)
    )


def _rotates_heads(kind: Mapping[str, Any], heads: Any, head: int, rotated: int) -> bool:
    if any(kind.get(name, plain) != plain for name, (plain,) in PLAIN_ROTATION.items()):
        return False
    if kind.get("rotary_embedding_dim", 0) not in (0, rotated):
        return False
    count = kind.get("num_heads", 0)
    return count == heads if count else head == rotated


def _join(attention: NodeProto, rotations: list[NodeProto]) -> None:
    first = rotations[0]
    inputs = [*attention.input, *[""] * (9 - len(attention.input))]
    inputs[:2] = [node.input[0] for node in rotations]
    inputs[7:9] = first.input[2:4]
    kept = [a for a in attention.attribute if a.name not in _ROTATES]
    turned = attributes(first).get("interleaved", 0)
    del attention.input[:], attention.attribute[:]
    attention.input.extend(inputs)
    attention.attribute.extend(
        [
            *kept,
            *(
                helper.make_attribute(name, value)
                for name, value in zip(_ROTATES, (1, turned), strict=True)
            ),
        ]
    )


_WINDOW = "local_window_size"


def join_biases(
    graph: OnnxGraph, caches: Sequence[tuple[str, str]], tokens: int, rows: int
) -> None:
    """Change `graph` in place, for `tokens` new ones and caches of `rows`. Raises
    UnsupportedOperatorError where biases hang on more than how far a row lies before the token."""
    biased = [
        node
        for node in graph.nodes
        if node.op_type == "GroupQueryAttention"
        and len(node.input) > BIAS
        and node.input[BIAS]
        and not attributes(node).get(BY_DISTANCE, 0)
    ]
    if not biased:
        return
    prober = ExtentProber(graph=graph, caches=frozenset(past for past, _ in caches))
    pasts = choose_pasts(tokens, rows)
    reader = RowReader(prober=prober, graph=graph, tokens=tokens, rows=rows, pasts=pasts)
    refused = NotCovered()
    for node in biased:
        try:
            _join_bias(graph, reader, node)
        except RefusedError as error:
            refused.add(node.name or node.output[0], error)
    refused.raise_if_any()
    reason = "that is all that they hang on, by their numbers for pasts of several lengths"
    taken = "tables by how far a row lies before the token"
    graph.log.add(f"{len(biased)} attention biases", taken, reason)


def _join_bias(graph: OnnxGraph, reader: RowReader, node: NodeProto) -> None:
    own, name = attributes(node), node.input[BIAS]
    sunk = own.get("smooth_softmax", 0) == 1 or any(node.input[SINKS : SINKS + 1])
    mask = FoundMask(name=name)
    seen, bias = reader.read([mask], causal=True, shifted=not sunk)
    node.input[BIAS] = ""
    if bias is not None:
        wide = np.broadcast_to(bias, (own["num_heads"], bias.shape[1]))
        node.input[BIAS] = f"{name}/by distance"
        graph.set_constant(node.input[BIAS], np.ascontiguousarray(wide))
    before = own.get(_WINDOW, -1)
    windows = [window for window in (before, seen) if window > 0]
    kept = [a for a in node.attribute if a.name != _WINDOW]
    del node.attribute[:]
    node.attribute.extend(
        [
            *kept,
            helper.make_attribute(_WINDOW, min(windows, default=-1)),
            helper.make_attribute(BY_DISTANCE, 1),
        ]
    )


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
    It is looked at by numbers: so it does not matter how an exporter spells it."""
    shape = graph.shape_of(name)
    if shape is None or len(shape) != BATCHED:
        return None
    chain = next(look_back(graph, name, _TURNING), None)
    if chain is None:
        return None
    given, seen = chain.try_numbers((1, 1, *shape[2:]))
    # Whether a constant has a row for each token.
    tables = {
        n: held
        for n, held in chain.constants.items()
        if (held.dtype.kind == "f" and held.ndim > 1 and held.size == shape[2] * held.shape[-1])
    }
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
        None where it is something else."""
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
        """Return what a constant is for as many new tokens as tables have rows. Raises OptionError
        where what it is read of ends before."""
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
        Raises UnsupportedOperatorError where one is something else."""
        graph = self.graph
        graph.drop_unused()
        hanging = self.prober.find_hanging(graph.constants)
        later = self.prober.values(hanging, self.tokens, self.pasts[1]) if hanging else {}
        nodes: list[NodeProto] = []
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
            names = list_names(odd)
            raise UnsupportedOperatorError(
                f"{len(odd)} tensors beside masks and positions hang on how long the past is: "
                f"{names}; expected attention alone to",
                hint=AS_IT_IS,
            )
        graph.nodes = [*nodes, *graph.nodes]

    def _read_at_positions(self, name: str, nodes: list[NodeProto]) -> str:
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
