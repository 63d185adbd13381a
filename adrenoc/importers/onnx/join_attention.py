"""A decoder of standard operators whose past grows by Concat, by operators that add rows in place.

Before -> after:
    present = Concat(past, k, axis 2); y = MatMul(Softmax(scores + mask), ...)
    y, present, ... = com.microsoft.GroupQueryAttention(q, k, v, past, ..., past_length)

    x * cos + rotated x * sin, tables of the new tokens    com.microsoft.RotaryEmbedding
    any other constant of the new tokens' positions        Gather(of all positions, position_ids)

What masks and tables are is looked at by numbers, for pasts of several lengths (`probe.py`): so it
does not matter how an exporter computes them.

Latent attention (MLA) as attention over the rows that its caches hold.

Before -> after:
    keys, values = products of the rows of two caches     (other tensors hold both caches' rows)
    y = attention(q, keys, values)                        y = V attention(K^T q, rows, rows)

Rows have the numbers of both caches, one behind the other, and stand for the keys and the values of
all heads: so each of both caches holds them, and both are of one head.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import NodeProto, TensorProto, helper

from adrenoc.base.errors import RefusedError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first, list_names
from adrenoc.bundle.chat import PAST_LENGTH, POSITIONS
from adrenoc.importers.onnx.attention import BIAS, BY_DISTANCE, FIRST_ROW
from adrenoc.importers.onnx.contrib_quantised import fuse_qdq
from adrenoc.importers.onnx.found_attention import AttentionFinder, FoundAttention
from adrenoc.importers.onnx.graph import MICROSOFT, OnnxGraph, TensorType, attributes, node_label
from adrenoc.importers.onnx.join_rotations import (
    FoundRotation,
    PositionTables,
    RowReader,
    find_rotation,
)
from adrenoc.importers.onnx.probe import BATCHED, ExtentProber, LatentFinder, choose_pasts
from adrenoc.importers.onnx.refusals import AS_IT_IS, NotCovered


def _read_latent(
    nodes: list[NodeProto], tables: PositionTables, one: FoundAttention
) -> tuple[str, str]:
    """Return what looks for rows in place of queries [1, heads, tokens, numbers], and new rows."""
    assert one.latent is not None
    graph, tokens = tables.graph, tables.tokens
    heads = len(one.latent.keys)
    queries, rows = tables.name("latent queries"), tables.name("latent rows")
    # [heads, numbers of a key, numbers of a row]
    turned = tables.intern(one.latent.keys.transpose(0, 2, 1))
    nodes.append(helper.make_node("MatMul", [one.query, turned], [queries]))
    nodes.append(helper.make_node("Concat", [one.keys.new, one.values.new], [rows], axis=-1))
    element = graph.types[one.query].element
    for name, count in ((queries, heads), (rows, 1)):
        shape = (1, count, tokens, one.latent.width)
        graph.types[name] = TensorType(element=element, shape=shape)
    return queries, rows


def _hand_out_latent(
    nodes: list[NodeProto],
    tables: PositionTables,
    one: FoundAttention,
    mixed: str,
    reshape: Callable[..., NodeProto],
) -> None:
    """Write the result of each head out of the rows that it mixed."""
    assert one.latent is not None
    heads, width, numbers = one.latent.values.shape
    apart, turned, made = (tables.name(n) for n in ("by heads", "heads first", "latent values"))
    nodes.append(reshape(mixed, apart, 1, tables.tokens, heads, width))
    nodes.append(helper.make_node("Transpose", [apart], [turned], perm=[0, 2, 1, 3]))
    matrix = tables.intern(np.ascontiguousarray(one.latent.values))
    nodes.append(helper.make_node("MatMul", [turned, matrix], [made]))
    known = tables.graph.shape_of(one.out) or (1, heads, tables.tokens, numbers)
    nodes.append(reshape(made, one.out, *known))


_BEHIND_TOTAL = 7
"""Input of GroupQueryAttention behind the count of all tokens."""


def join_attention(
    graph: OnnxGraph, caches: Sequence[tuple[str, str]], tokens: int, rows: int
) -> None:
    """Change `graph` in place, for `tokens` new ones and caches of `rows`.

    A graph whose caches no standard operator makes is left as it is. Raises
    UnsupportedOperatorError where attention or a mask is in no form that is known, or something
    else hangs on how long the past is."""
    makers = graph.makers()
    kinds = {makers[present].op_type for _, present in caches if present in makers}
    if not kinds & {"Concat", "Attention", "Identity", "MultiHeadAttention"}:
        return
    fuse_qdq(graph)
    prober = ExtentProber(graph=graph, caches=frozenset(past for past, _ in caches))
    pasts = choose_pasts(tokens, rows)
    base = prober.fold(tokens, pasts[0])
    finder = AttentionFinder(base, caches, LatentFinder(prober=prober, tokens=tokens))
    found = finder.find()
    refused = NotCovered(others=[*_find_unread(finder, found, caches), *_find_shared(found)])
    tables = PositionTables(graph=base, prober=prober, tokens=tokens, rows=rows, pasts=pasts)
    reader = RowReader(prober=prober, graph=base, tokens=tokens, rows=rows, pasts=pasts)
    joiner = _Joiner(graph=base, reader=reader, finder=finder, tables=tables)
    for one in found:
        try:
            joiner.join(one)
        except RefusedError as error:
            refused.add(one.out, error)
    refused.raise_if_any()
    latent = [one for one in found if one.latent is not None]
    tables.read_at_positions()
    _check_readers(base, caches)
    for one in latent:  # from here on nobody looks at the graph of the file any more
        # Have both caches of a latent attention hold rows of both, in a file's graph and in ours.
        assert one.latent is not None
        for cache in (one.keys, one.values):
            for at, spec in enumerate(graph.inputs):
                if spec.name == cache.past:
                    shape = (*spec.shape[:-1], one.latent.width)
                    graph.inputs[at] = replace(spec, shape=shape)
                    known = replace(graph.types[cache.past], shape=shape)
                    graph.types[cache.past] = base.types[cache.present] = known
    given = {spec.name: graph.types[spec.name] for spec in graph.inputs}
    graph.nodes, graph.constants = base.nodes, base.constants
    graph.types = {**base.types, **given}
    graph.types.setdefault(POSITIONS, TensorType(element=TensorProto.INT64, shape=(1, tokens)))
    windows = sorted({window for window in joiner.windows if window})
    reason = "products, masks and softmax are those of an attention over the rows up to each token"
    if windows:
        reason += f", of the last {windows[0]} in some"
    if latent:
        reason += f"; {len(latent)} over rows that stand for keys and values of all heads"
    if joiner.biased:
        reason += f"; {joiner.biased} add a bias by how far rows lie apart"
    graph.log.add(f"{len(found)} attentions", "read and write their caches in place", reason)


def _find_unread(
    finder: AttentionFinder, found: Sequence[FoundAttention], caches: Sequence[tuple[str, str]]
) -> list[str]:
    """Find the caches that no attention was found over: of others nobody knows what N rows mean.
    What there is to say of them, in at most one text that names them, with what makes the first."""
    read = {cache.past for one in found for cache in (one.keys, one.values)}
    missing = [(past, present) for past, present in caches if past not in read]
    if not missing:
        return []
    names = list_first((f"'{present}'" for _, present in missing), between=", ")
    past, present = missing[0]
    maker, readers = finder.makers.get(present), finder.readers.get(present, [])
    what = f"made by {'nothing' if maker is None else maker.op_type}"
    if maker is not None and past in maker.input and readers:  # it grows as others do
        what = f"read by {readers[0].op_type} {node_label(readers[0])}"
    return [
        f"{len(missing)} of {len(caches)} caches are read by no attention that is known: {names}, "
        f"the first {what}; expected "
        "MatMul(Softmax(MatMul(queries, keys) + mask), values) or the standard's Attention"
    ]


def _find_shared(found: Sequence[FoundAttention]) -> list[str]:
    """Find the caches that several attentions read: each would add the rows of its own tokens. What
    there is to say of them, in at most one text that names them."""
    readers = Counter(cache.past for one in found for cache in (one.keys, one.values))
    shared = [past for past, count in readers.items() if count > 1]
    if not shared:
        return []
    names = list_names(shared)
    return [
        f"{len(shared)} caches are each read by several attentions, as of layers that share keys "
        f"and values: {names}; expected one attention to each"
    ]


def _check_readers(graph: OnnxGraph, caches: Sequence[tuple[str, str]]) -> None:
    """Refuse what else reads a cache: it would find rows that hold no token yet. Raises
    UnsupportedOperatorError, naming them all."""
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
    reader: RowReader
    finder: AttentionFinder
    tables: PositionTables
    windows: list[int] = field(default_factory=list)
    biased: int = 0

    def join(self, one: FoundAttention) -> None:
        """Put an attention over caches in the place of one that is spelt out."""
        window, table = self.reader.read(
            one.masks, causal=one.causal, before=one.before, shifted=one.sinks is None
        )
        self.windows.append(window)
        nodes: list[NodeProto] = []
        if one.latent is None:
            q, (k, v) = one.query, (one.keys.new, one.values.new)
            _, kept, _, head = self.graph.shape_of(one.keys.past) or (0, 0, 0, 0)
        else:
            q, k = _read_latent(nodes, self.tables, one)
            v, kept, head = k, 1, one.latent.width
        of_query = self._heads(q)
        heads = of_query[0] * of_query[1] // head
        turned = [find_rotation(self.graph, name) for name in (q, k)]
        tables = [self.tables.of_rotation(rotation) for rotation in turned]
        if tables[0] is not None and tables[0] == tables[1]:
            names = [self._rotate(nodes, rotation, tables[0]) for rotation in turned if rotation]
        else:
            names = [self._rows(nodes, q), self._rows(nodes, k)]
        names.append(self._rows(nodes, v))
        mixed = self.tables.name("mixed")
        total = self.tables.write_constant(np.array(self.tables.rows, np.int32))
        # What is added to scores, and those that no row has; the last where they are.
        bias = ""
        if table is not None:
            self.biased += 1
            bias = self.tables.intern(np.broadcast_to(table, (heads, table.shape[1])))
        sinks = [] if one.sinks is None else [self.tables.intern(one.sinks)]
        node = helper.make_node(
            "GroupQueryAttention",
            [
                *names,
                one.keys.past,
                one.values.past,
                PAST_LENGTH,
                total,
                *[""] * (BIAS - _BEHIND_TOTAL),
                *([bias, *sinks] if bias or sinks else []),
            ],
            [mixed, one.keys.present, one.values.present],
            domain=MICROSOFT,
            name=one.out,
            num_heads=heads,
            kv_num_heads=kept,
            scale=one.scale,
            softcap=one.cap,
            local_window_size=window or -1,
            **{FIRST_ROW: 1, BY_DISTANCE: 1},
        )
        nodes.append(node)
        if one.latent is not None:
            _hand_out_latent(nodes, self.tables, one, mixed, self._reshape)
        else:
            self._hand_out(nodes, one.out, mixed, heads, head)
        self._insert(nodes, one)

    def _insert(self, nodes: list[NodeProto], one: FoundAttention) -> None:
        """Put nodes where the attention stood, without those that made what they make."""
        made = {name for node in nodes for name in node.output}
        at = next(i for i, n in enumerate(self.graph.nodes) if one.out in n.output)
        before, after = self.graph.nodes[:at], self.graph.nodes[at + 1 :]
        kept = [[n for n in part if not made.intersection(n.output)] for part in (before, after)]
        self.graph.nodes = [*kept[0], *nodes, *kept[1]]

    def _heads(self, name: str) -> tuple[int, int]:
        """Return heads and numbers a head of [1, heads, tokens, head], or that without batch."""
        given = self.graph.shape_of(name)
        shape = (1, *given) if given is not None and len(given) == BATCHED - 1 else given
        if (
            shape is None
            or len(shape) != BATCHED
            or (shape[0], shape[2]) != (1, self.tables.tokens)
        ):
            raise RefusedError(
                f"'{name}', which {{}} reads, has the shape {list(shape or ())}; expected "
                f"[1, heads, {self.tables.tokens}, numbers of a head]"
            )
        return shape[1], shape[3]

    # Tensors of one row a token

    def _rows(self, nodes: list[NodeProto], name: str) -> str:
        """Return [1, heads, tokens, head], or that without batch, as [1, tokens, heads * head]."""
        heads, head = self._heads(name)
        turn = self._turn_of(name)
        maker = self.finder.makers.get(name)
        apart = ""
        if maker is not None and maker.op_type == "Transpose":
            apart = maker.input[0] if attributes(maker).get("perm") == turn else ""
        if not apart:
            apart = self.tables.name("apart")
            nodes.append(helper.make_node("Transpose", [name], [apart], perm=turn))
        before = self.finder.makers.get(apart)
        shape = (1, self.tables.tokens, heads * head)
        if before is not None and before.op_type == "Reshape":
            joined = str(before.input[0])
            if self.graph.shape_of(joined) == shape:
                return joined
        whole = self.tables.name("rows")
        nodes.append(self._reshape(apart, whole, *shape))
        return whole

    def _turn_of(self, name: str) -> list[int]:
        """Return the order of axes that has heads behind tokens."""
        batched = len(self.graph.shape_of(name) or ()) == BATCHED
        return [0, 2, 1, 3] if batched else [1, 0, 2]

    def _hand_out(
        self, nodes: list[NodeProto], out: str, mixed: str, heads: int, head: int
    ) -> None:
        """Write the result with heads apart, as the graph reads it."""
        readers = self.finder.readers.get(out, [])
        turn = self._turn_of(out)
        apart = (1, self.tables.tokens, heads, head)[-len(turn) :]
        is_turned = [one.op_type for one in readers] == ["Transpose"]
        is_turned = is_turned and attributes(readers[0]).get("perm") == turn
        if is_turned and out not in self.graph.outputs:
            nodes.append(self._reshape(mixed, readers[0].output[0], *apart))
            return
        name = self.tables.name("by heads")
        nodes.append(self._reshape(mixed, name, *apart))
        nodes.append(helper.make_node("Transpose", [name], [out], perm=turn))

    def _reshape(self, x: str, out: str, *shape: int) -> NodeProto:
        return helper.make_node(
            "Reshape", [x, self.tables.write_constant(np.array(shape, np.int64))], [out]
        )

    def _rotate(
        self,
        nodes: list[NodeProto],
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
                domain=MICROSOFT,
                num_heads=heads,
                interleaved=int(interleaved),
                **partial,
            )
        )
        return turned
