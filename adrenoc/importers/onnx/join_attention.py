"""A decoder of standard operators whose past grows by Concat, by operators that add rows in place.

Before -> after:
    present = Concat(past, k, axis 2); y = MatMul(Softmax(scores + mask), ...)
    y, present, ... = com.microsoft.GroupQueryAttention(q, k, v, past, ..., past_length)

    x * cos + rotated x * sin, tables of the new tokens    com.microsoft.RotaryEmbedding
    any other constant of the new tokens' positions        Gather(of all positions, position_ids)

What masks and tables are is looked at by numbers, for pasts of several lengths (`probe.py`): so it
does not matter how an exporter computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from adrenoc.decision import Decision
from adrenoc.errors import UnsupportedOperatorError
from adrenoc.importers.onnx.cached import FIRST_ROW
from adrenoc.importers.onnx.contrib_dynamic import DOMAIN
from adrenoc.importers.onnx.found_attention import (
    MULTI_HEAD,
    AttentionFinder,
    FoundAttention,
    FoundCache,
)
from adrenoc.importers.onnx.found_rotation import FoundRotation, find_rotation
from adrenoc.importers.onnx.found_scores import read_mask
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, attributes, node_label
from adrenoc.importers.onnx.position_tables import AS_IT_IS, PositionTables
from adrenoc.importers.onnx.probe import POSITIONS, Prober
from adrenoc.importers.onnx.qdq import fuse_qdq
from adrenoc.text.spelling import list_first

PAST_LENGTH = "past_length"
"""The input of the bundle that says how many rows are there."""


def join_attention(
    graph: OnnxGraph, caches: Sequence[tuple[str, str]], tokens: int, rows: int
) -> list[Decision]:
    """Change `graph` in place, for `tokens` new ones and caches of `rows`.

    A graph whose caches no standard operator makes is left as it is.

    Raises:
        UnsupportedOperatorError: attention or a mask is in no form that is known, or something
            else hangs on how long the past is.
    """
    makers = {name: node for node in graph.nodes for name in node.output}
    kinds = {makers[present].op_type for _, present in caches if present in makers}
    if not kinds & {"Concat", "Attention", "Identity", MULTI_HEAD}:
        return []
    decisions = fuse_qdq(graph)
    prober = Prober(graph=graph, caches=frozenset(past for past, _ in caches))
    pasts = _choose_pasts(tokens, rows)
    base = prober.fold(tokens, pasts[0])
    finder = AttentionFinder(base, caches)
    found = finder.find()
    _check_found(finder, found, caches)
    tables = PositionTables(graph=base, prober=prober, tokens=tokens, rows=rows, pasts=pasts)
    joiner = _Joiner(graph=base, prober=prober, finder=finder, tables=tables)
    for one in found:
        joiner.join(one)
    tables.read_at_positions()
    _check_readers(base, caches)
    given = {spec.name: graph.types[spec.name] for spec in graph.inputs}
    graph.nodes, graph.constants = base.nodes, base.constants
    graph.types = {**base.types, **given}
    graph.types.setdefault(POSITIONS, TensorType(element=TensorProto.INT64, shape=(1, tokens)))
    windows = sorted({window for window in joiner.windows if window})
    return [
        *decisions,
        Decision(
            subject=f"{len(found)} attentions",
            taken="read and write their caches in place",
            reason="products, masks and softmax are those of an attention over the rows up to "
            "each token" + (f", of the last {windows[0]} in some" if windows else ""),
        ),
        *joiner.decisions,
    ]


def _choose_pasts(tokens: int, rows: int) -> tuple[int, int]:
    """Two lengths of a past to look at the graph with, within the cache where it has room."""
    room = max(rows - tokens, 2)
    return min(5, room - 1), min(9, room)


def _check_found(
    finder: AttentionFinder, found: Sequence[FoundAttention], caches: Sequence[tuple[str, str]]
) -> None:
    """Refuse caches that no attention was found over: of others nobody knows what N rows mean.

    Raises:
        UnsupportedOperatorError: naming them all, with what makes the first.
    """
    read = {cache.past for one in found for cache in (one.keys, one.values)}
    missing = [(past, present) for past, present in caches if past not in read]
    if not missing:
        return
    names = list_first((f"'{present}'" for _, present in missing), between=", ")
    maker = finder.makers.get(missing[0][1])
    raise UnsupportedOperatorError(
        f"{len(missing)} of {len(caches)} caches are read by no attention that is known: {names}, "
        f"the first made by {'nothing' if maker is None else maker.op_type}; expected "
        "MatMul(Softmax(MatMul(queries, keys) + mask), values) or the standard's Attention",
        hint=AS_IT_IS,
    )


def _check_readers(graph: OnnxGraph, caches: Sequence[tuple[str, str]]) -> None:
    """Refuse what else reads a cache: it would find rows that hold no token yet.

    Raises:
        UnsupportedOperatorError: naming them all.
    """
    held = {name for pair in caches for name in pair}
    others = [
        node
        for node in graph.nodes
        if node.op_type != "GroupQueryAttention" and held.intersection(node.input)
    ]
    if others:
        where = list_first((node_label(node) for node in others), between=", ")
        raise UnsupportedOperatorError(
            f"{len(others)} nodes beside attention read caches: {where}, the first of them "
            f"{others[0].op_type}; expected attention alone to",
            hint=AS_IT_IS,
        )


@dataclass(kw_only=True)
class _Joiner:
    """Writes the operators over caches into the folded graph."""

    graph: OnnxGraph
    prober: Prober
    finder: AttentionFinder
    tables: PositionTables
    windows: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """How many new tokens a run has."""
        return self.tables.tokens

    @property
    def rows(self) -> int:
        """How many rows a cache has."""
        return self.tables.rows

    def join(self, one: FoundAttention) -> None:
        """Put an attention over caches in the place of one that is spelt out."""
        window = self._window(one)
        self.windows.append(window)
        q, (k, v) = one.query, (one.keys.new, one.values.new)
        kept, head = self._extents_of(one.keys)
        heads = self._width(q) // head
        nodes: list[onnx.NodeProto] = []
        turned = [find_rotation(self.finder, name) for name in (q, k)]
        tables = [self.tables.of_rotation(rotation) for rotation in turned]
        if tables[0] is not None and tables[0] == tables[1]:
            names = [self._rotate(nodes, rotation, tables[0]) for rotation in turned if rotation]
        else:
            names = [self._rows(nodes, name) for name in (q, k)]
        names.append(self._rows(nodes, v))
        mixed = self.tables.name("mixed")
        total = self.tables.write_constant(np.array(self.rows, np.int32))
        node = helper.make_node(
            "GroupQueryAttention",
            [*names, one.keys.past, one.values.past, PAST_LENGTH, total],
            [mixed, one.keys.present, one.values.present],
            domain=DOMAIN,
            name=one.out,
            num_heads=heads,
            kv_num_heads=kept,
            scale=one.scale,
            softcap=one.cap,
            local_window_size=window or -1,
            **{FIRST_ROW: 1},
        )
        nodes.append(node)
        if self._is_flat(q):
            node.output[0] = one.out
        else:
            self._hand_out(nodes, one.out, mixed, heads, head)
        self._insert(nodes, one)

    def _insert(self, nodes: list[onnx.NodeProto], one: FoundAttention) -> None:
        """Put nodes where the attention stood, without those that made what they make."""
        made = {name for node in nodes for name in node.output}
        at = next(i for i, n in enumerate(self.graph.nodes) if one.out in n.output)
        before, after = self.graph.nodes[:at], self.graph.nodes[at + 1 :]
        kept = [[n for n in part if not made.intersection(n.output)] for part in (before, after)]
        self.graph.nodes = [*kept[0], *nodes, *kept[1]]

    def _window(self, one: FoundAttention) -> int:
        """How many rows each token sees, 0 for all up to its own.

        Raises:
            UnsupportedOperatorError: its mask says something else.
        """
        names = [mask.name for mask in one.masks]
        row = self._seen(one, names, 1, self.rows - 1)
        window = 0
        if row is not None and not row.all():
            window = int(row.sum())
            if not row[0, self.rows - window :].all():
                row = None
        checked = [(self.tokens, past) for past in self.tables.pasts]
        if window and window + self.tokens + 2 <= self.rows:
            checked.append((self.tokens, window + 2))
        for tokens, past in checked:
            seen = None if row is None else self._seen(one, names, tokens, past)
            mine = past + np.arange(tokens)[:, None]
            others = np.arange(past + tokens)
            expected = (others <= mine) & ((others > mine - window) if window else True)
            if seen is None or not (seen == expected).all():
                raise UnsupportedOperatorError(
                    f"the mask of the attention '{one.out}' hides other rows than those after each "
                    "token, or than those before a window; expected a causal one",
                    hint=AS_IT_IS,
                )
        return window

    def _seen(
        self, one: FoundAttention, names: list[str], tokens: int, past: int
    ) -> np.ndarray | None:
        values = self.prober.values(names, tokens, past) if names else {}
        held = {n: self.graph.constants[n] for n in names if n not in values}
        seen = read_mask({**held, **values}, one.masks, tokens, past + tokens)
        if seen is not None and one.causal:
            seen = seen & np.tril(np.ones(seen.shape, bool), 0 if one.before else past)
        return seen

    def _is_flat(self, name: str) -> bool:
        """Whether a tensor is [1, tokens, heads * head]."""
        known = self.graph.types.get(name)
        return known is not None and known.shape is not None and len(known.shape) == 3

    def _width(self, name: str) -> int:
        """Numbers of all heads of a token."""
        if self._is_flat(name):
            return (self.graph.types[name].shape or (0,))[-1]
        heads, head = self._heads(name)
        return heads * head

    def _extents_of(self, cache: FoundCache) -> tuple[int, int]:
        """Heads and numbers a head that a cache keeps."""
        shape = self.graph.types[cache.past].shape or ()
        return shape[1], shape[3]

    def _heads(self, name: str) -> tuple[int, int]:
        """Heads and numbers a head of a tensor [1, heads, tokens, head].

        Raises:
            UnsupportedOperatorError: it is of another form.
        """
        known = self.graph.types.get(name)
        shape = None if known is None else known.shape
        if shape is None or len(shape) != 4 or shape[0] != 1 or shape[2] != self.tokens:
            raise UnsupportedOperatorError(
                f"'{name}', which an attention reads, has the shape {list(shape or ())}; expected "
                f"[1, heads, {self.tokens}, numbers of a head]",
                hint=AS_IT_IS,
            )
        return shape[1], shape[3]

    # Tensors of one row a token

    def _rows(self, nodes: list[onnx.NodeProto], name: str) -> str:
        """[1, heads, tokens, head] as [1, tokens, heads * head]."""
        if self._is_flat(name):
            return name
        heads, head = self._heads(name)
        maker = self.finder.makers.get(name)
        apart = ""
        if maker is not None and maker.op_type == "Transpose":
            order: Any = attributes(maker).get("perm")
            if order == [0, 2, 1, 3]:
                apart = maker.input[0]
        if not apart:
            apart = self.tables.name("apart")
            nodes.append(helper.make_node("Transpose", [name], [apart], perm=[0, 2, 1, 3]))
        before = self.finder.makers.get(apart)
        width = heads * head
        if before is not None and before.op_type == "Reshape":
            known = self.graph.types.get(before.input[0])
            if known is not None and known.shape == (1, self.tokens, width):
                return str(before.input[0])
        whole = self.tables.name("rows")
        nodes.append(self._reshape(apart, whole, 1, self.tokens, width))
        return whole

    def _hand_out(
        self, nodes: list[onnx.NodeProto], out: str, mixed: str, heads: int, head: int
    ) -> None:
        """The result with heads apart, as the graph reads it."""
        readers = self.finder.readers.get(out, [])
        apart = (1, self.tokens, heads, head)
        if len(readers) == 1 and readers[0].op_type == "Transpose":
            order: Any = attributes(readers[0]).get("perm")
            if order == [0, 2, 1, 3] and out not in self.graph.outputs:
                nodes.append(self._reshape(mixed, readers[0].output[0], *apart))
                return
        name = self.tables.name("by heads")
        nodes.append(self._reshape(mixed, name, *apart))
        nodes.append(helper.make_node("Transpose", [name], [out], perm=[0, 2, 1, 3]))

    def _reshape(self, x: str, out: str, *shape: int) -> onnx.NodeProto:
        return helper.make_node(
            "Reshape", [x, self.tables.write_constant(np.array(shape, np.int64))], [out]
        )

    def _rotate(
        self,
        nodes: list[onnx.NodeProto],
        rotation: FoundRotation,
        tables: tuple[str, str, int, bool] | None,
    ) -> str:
        assert tables is not None
        heads, head = self._heads(rotation.x)
        cos, sin, width, interleaved = tables
        partial = {} if width == head else {"rotary_embedding_dim": width}
        turned = self.tables.name("turned")
        x = self._rows(nodes, rotation.x)
        nodes.append(
            helper.make_node(
                "RotaryEmbedding",
                [x, POSITIONS, cos, sin],
                [turned],
                domain=DOMAIN,
                num_heads=heads,
                interleaved=int(interleaved),
                **partial,
            )
        )
        return turned
