"""Find attention: softmax(scale * q k^T, masked) v becomes one operator.

The pattern is a product, maps that scale and mask it element by element, a softmax along the
keys, and a product again, each read by the next alone.  Queries, keys and values that maps only
move (heads split off a joint projection) are read from where they come; the map that joins the
heads afterwards says where the result is stored.

Before -> after:
    qkv -> split, reshape, transpose -> q, k, v
    matmul(q, k) -> multiply -> add(mask) -> softmax -> matmul(v) -> transpose -> reshape
        attention(qkv, mask)                            parts: q, k, v, score
    ... softmax -> where(isnan, 0, ..) -> matmul(v)     the same, `guarded`

What maps do to indices says whether a tensor is another one moved, and the way back (`movement_of`,
`place_axes`).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import (
    BufferLoad,
    Expr,
    Var,
    const_int,
    decl_buffer,
    floormod,
    iconst,
    tirx,
    tvm,
)
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.families.attention.attention_walk import AttentionTile
from adrenoc.kernels.families.operators import can, gives
from adrenoc.kernels.families.shared.operator import Fusion, NotKnownError, Numbers
from adrenoc.kernels.views import bind_extents
from adrenoc.passes.analyse.reads import is_identity, mentions
from adrenoc.passes.analyse.scalar_body import evaluate, simplify_indices, substitute
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_maps import inline
from adrenoc.target.target import Limits

MAX_RANK = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Movement:
    """A tensor of this shape whose elements are those of `source`, times `factor`.  The last axis
    walks along axis `channel` of the source, in whole blocks of four channels."""

    body: Body
    shape: tuple[int, ...]
    source: str
    channel: int
    factor: float


def movement_of(graph: Graph, body: Body, shape: tuple[int, ...]) -> Movement:
    """Return the farthest tensor that `body`, one load, can be read from in whole blocks.

    Before -> after:
        qkv -> reshape -> permute_dims -> strided_slice -> load     load of qkv at another index
    """
    factor = 1.0
    (name,) = body.sources.values()
    own = len(shape) - 1
    best = Movement(body=body, shape=shape, source=name, channel=own, factor=factor)
    while True:
        (name,) = body.sources.values()
        channel = _channel(body, shape, graph.tensors[name].shape)
        if channel is not None:
            best = Movement(body=body, shape=shape, source=name, channel=channel, factor=factor)
        producer = graph.producers.get(name)
        if producer is None or not producer.is_map or producer.body is None:
            break
        bare, times = split_factor(producer.body)
        if bare is None or len(bare.sources) != 1:
            break
        body, factor = simplify_body(inline(body, name, bare), shape), factor * times
        if not isinstance(body.value, tvm.ir.TensorLoad):
            break
    return best


def split_factor(body: Body) -> tuple[Body | None, float]:
    """Return a body that is one load times a constant, as that load; None where it is not."""
    value, factor = body.value, 1.0
    while isinstance(value, (tirx.Mul, tirx.Div)) and isinstance(value.b, tirx.FloatImm):
        number = float(value.b.value)
        factor = factor * number if isinstance(value, tirx.Mul) else factor / number
        value = value.a
    if not isinstance(value, tvm.ir.TensorLoad) or body.reduced:
        return None, 1.0
    return replace(body, value=value), factor


def _channel(body: Body, shape: Sequence[int], source_shape: Sequence[int]) -> int | None:
    """Return the source's axis that the last axis walks along block by block, or None."""
    if len(source_shape) > MAX_RANK or len(source_shape) < 1:
        return None
    channels, last = shape[-1], body.axes[-1]
    load: BufferLoad = body.value
    indices = load.indices
    moving = [axis for axis, index in enumerate(indices) if mentions([index], [last])]
    if not moving and channels == 1:
        return len(source_shape) - 1
    if len(moving) != 1:
        return None
    axis = moving[0]
    if indices[axis].same_as(last) and source_shape[axis] == channels:
        return axis
    if channels % LANES:
        return None
    block, lane = Var("block", "int32"), Var("lane", "int32")
    extents = (*shape[:-1], channels // LANES, LANES)
    analyzer = bind_extents((*body.axes[:-1], block, lane), extents)
    index = analyzer.simplify(substitute(indices[axis], {last: block * iconst(LANES) + lane}))
    first = analyzer.simplify(index - lane)
    whole = const_int(analyzer.simplify(floormod(first, LANES))) == 0
    return axis if whole and not mentions([first], [lane]) else None


def place_axes(
    body: Body, target: Sequence[int], source: Sequence[int]
) -> tuple[tuple[int, ...], ...] | None:
    """Return where an element of the source goes: the source axes that each target axis is made of.

    `body` reads the source at the target's axes.  (0, 2) is axis 0 times the extent of axis 2
    plus axis 2.  None where it cannot be said so, or breaks blocks of four channels up.

    Before -> after:
        y[0, m, c] = x[0, c // 64, m, c % 64]       ((), (2,), (1, 3))
    """
    wide = [axis for axis, extent in enumerate(source) if extent > 1]
    if not target or not wide or wide[-1] != len(source) - 1:
        return None
    for order in itertools.permutations(wide):
        axes = _group_axes(order, target, source)
        if axes is None:
            continue
        (joined,) = (parts for parts in axes if wide[-1] in parts)
        if joined[-1] != wide[-1] or (len(joined) > 1 and source[-1] % LANES):
            continue
        if _goes_back(body, axes, source):
            return axes
    return None


def _group_axes(
    order: tuple[int, ...], target: Sequence[int], source: Sequence[int]
) -> tuple[tuple[int, ...], ...] | None:
    """Return the axes in this order, cut so that the target's extents come out."""
    rest, axes = list(order), []
    for extent in target:
        taken: list[int] = []
        size = 1
        while size < extent and rest:
            taken.append(rest.pop(0))
            size *= source[taken[-1]]
        if size != extent:
            return None
        axes.append(tuple(taken))
    return tuple(axes) if not rest else None


def _goes_back(body: Body, axes: tuple[tuple[int, ...], ...], source: Sequence[int]) -> bool:
    """Return whether the body, read at the place of a source element, reads that element."""
    variables = [Var(f"s{axis}", "int32") for axis in range(len(source))]
    index = {}
    for var, parts in zip(body.axes, axes, strict=True):
        at: Expr = iconst(0)
        for axis in parts:
            at = at * iconst(source[axis]) + variables[axis]
        index[var] = at
    analyzer = bind_extents(variables, source)
    load: BufferLoad = body.value
    found = [analyzer.simplify(substitute(i, index)) for i in load.indices]
    return all(
        extent == 1 or const_int(analyzer.simplify(i - var)) == 0
        for i, var, extent in zip(found, variables, source, strict=True)
    )


def simplify_body(body: Body, shape: Sequence[int]) -> Body:
    """Return the body with its indices simplified, its axes running over this shape."""
    return replace(body, value=simplify_indices(body.value, body.axes, shape))


MAX_VALUE_BLOCKS = 64
"""Threads along the value's channels; beyond, products of matrices keep a GPU busy as well."""


def fuse_attention(graph: Graph, context: Context) -> Graph:
    """Return the graph with every attention that the kernel covers as one node."""
    limits, log = context.limits, context.log
    for node in graph.nodes:
        if not gives(node, Numbers.SHARES):
            continue
        found = _Finder(graph, node, limits)
        try:
            graph = found.fuse()
        except _NoAttentionError as reason:
            if reason.near:
                log.add(node.name, "attention in parts", str(reason))
    return graph


class _NoAttentionError(Exception):
    """A softmax is not that of an attention; `near` if it nearly was."""

    def __init__(self, text: str, *, near: bool = True) -> None:
        super().__init__(text)
        self.near = near


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scores:
    product: Node
    factor: float
    body: Body | None
    """Of what the softmax reads, with the product under `Node.RESULT`."""


class _Finder:
    def __init__(self, graph: Graph, softmax: Node, limits: Limits) -> None:
        self._graph, self._softmax, self._limits = graph, softmax, limits

    def fuse(self) -> Graph:
        """Return the graph with this attention as one node.

        Raises:
            _NoAttentionError: with the reason, where it is none or not one that we cover.
        """
        graph, softmax = self._graph, self._softmax
        guard = self._find_guard(softmax.output)
        mix, turned = self._mix(softmax.output if guard is None else guard.output)
        scores = self._scores(softmax.inputs[0])
        q_name, k_name, v_name = *scores.product.inputs[:2], mix.inputs[0 if turned else 1]
        shape = graph.tensors[scores.product.output].shape
        rank = len(shape)
        if int(softmax.attrs["axis"]) % rank != rank - 1:
            raise _NoAttentionError("the softmax is not along the keys")
        for name in (q_name, k_name, v_name):
            if len(graph.tensors[name].shape) != rank or not 2 <= rank <= MAX_RANK:
                raise _NoAttentionError(f"{name} has rank {len(graph.tensors[name].shape)}")
            if graph.tensors[name].value is not None:
                raise _NoAttentionError(f"{name} is a constant")
        if shape[:-2] != graph.tensors[q_name].shape[:-2]:
            raise _NoAttentionError("queries are repeated over a batch")
        channels = graph.tensors[v_name].shape[-2 if turned else -1]
        if -(-channels // LANES) > min(MAX_VALUE_BLOCKS, self._limits.max_work_group_size):
            raise _NoAttentionError(
                f"values of {channels} channels, expected at most {MAX_VALUE_BLOCKS * LANES}"
            )
        # Refuse what even the smallest schedule would not hold, in floats.
        depth = graph.tensors[q_name].shape[-1]
        least = AttentionTile(work_group=(-(-channels // LANES), 1, 1))
        held = least.shared_bytes(FLOAT_BYTES, -(-depth // LANES), FLOAT_BYTES)
        if held > self._limits.local_mem_bytes:
            raise _NoAttentionError(
                f"queries of {depth} channels take {held} bytes of local memory, expected at most "
                f"{self._limits.local_mem_bytes}"
            )
        q = self._read_operand(q_name, shape[:-2], transposed=False)
        k = self._read_operand(k_name, shape[:-2], transposed=True)
        v = self._read_operand(v_name, shape[:-2], transposed=turned)
        return self._insert_node(mix, scores, (q, k, v), turned=turned, guarded=guard is not None)

    def _mix(self, name: str) -> tuple[Node, bool]:
        """Return the product of the softmax's result with values; whether it is `v p^T`."""
        reader = self._only_reader(name)
        if reader is not None and can(reader, Fusion.ATTENTION) and reader.inputs[0] == name:
            return reader, False
        if reader is not None and reader.is_map and self._swaps(reader):
            after = self._only_reader(reader.output)
            if (
                after is not None
                and can(after, Fusion.ATTENTION)
                and after.inputs[1] == reader.output
            ):
                return after, True
        raise _NoAttentionError("no product follows", near=False)

    def _find_guard(self, name: str) -> Node | None:
        """Find the map that makes zeros of shares that are no numbers, as of rows that are masked
        altogether, and leaves others as they are: exporters write it as IsNaN and Where."""
        readers = self._graph.consumers[name]
        for last in readers:
            body, also = last.body, [node for node in readers if node is not last]
            if not last.is_map or body is None or not all(node.is_map for node in also):
                continue
            for node in also:
                if node.body is None or self._only_reader(node.output) is not last:
                    break
                body = inline(body, node.output, node.body)
            else:
                if set(body.sources.values()) == {name} and _keeps_numbers_alone(body):
                    return last
        return None

    def _swaps(self, node: Node) -> bool:
        """Return whether a map swaps the last two axes and does nothing else."""
        if node.body is None or not isinstance(node.body.value, tvm.ir.TensorLoad):
            return False
        shape = self._graph.tensors[node.output].shape
        if len(node.body.value.indices) != len(shape) or len(shape) < 2:
            return False
        load: BufferLoad = simplify_body(node.body, shape).value
        axes = [*node.body.axes[:-2], node.body.axes[-1], node.body.axes[-2]]
        return is_identity(load.indices, axes, [*shape[:-2], shape[-1], shape[-2]])

    def _only_reader(self, name: str) -> Node | None:
        readers = self._graph.consumers[name]
        return readers[0] if len(readers) == 1 and name not in self._graph.outputs else None

    # The scores

    def _scores(self, name: str) -> _Scores:
        """Return the product behind what the softmax reads, and the maps between."""
        shape = self._graph.tensors[name].shape
        body = Body.reading(name, shape)
        while True:
            inner = self._score_map(body)
            if inner is None:
                break
            body = inline(body, inner.output, inner.body)  # type: ignore[arg-type]
        products = [
            self._graph.producers[n]
            for n in body.sources.values()
            if n in self._graph.producers and can(self._graph.producers[n], Fusion.ATTENTION)
        ]
        if len(products) != 1 or self._graph.tensors[products[0].inputs[1]].value is not None:
            raise _NoAttentionError("no product of activations feeds the softmax", near=False)
        product = products[0]
        if self._only_reader(product.output) is None and len(body.sources) > 0:
            raise _NoAttentionError("the scores are also read elsewhere")
        if self._graph.tensors[product.output].shape != shape:
            raise _NoAttentionError("the scores change their shape before the softmax")
        body = simplify_body(body, shape)
        buffers = [b for b, n in body.sources.items() if n == product.output]
        for load in loads_of(body.value):
            is_score = any(load.source.same_as(b) for b in buffers)
            if is_score and not is_identity(load.indices, body.axes, shape):
                raise _NoAttentionError("the scores are moved before the softmax")
        bare, factor = split_factor(body)
        if bare is not None:
            return _Scores(product=product, factor=factor, body=None)
        sources = {b: Node.RESULT if n == product.output else n for b, n in body.sources.items()}
        return _Scores(product=product, factor=1.0, body=replace(body, sources=sources))

    def _score_map(self, body: Body) -> Node | None:
        """Return a map among what the body reads that is on the way to the product."""
        for name in body.sources.values():
            node = self._graph.producers.get(name)
            if node is None or not node.is_map or self._only_reader(name) is None:
                continue
            if self._leads_to_product(node):
                return node
        return None

    def _leads_to_product(self, node: Node) -> bool:
        """Return whether a product is behind a chain of maps that are read once each."""
        for name in node.inputs:
            producer = self._graph.producers.get(name)
            if producer is None or self._only_reader(name) is None:
                continue
            if can(producer, Fusion.ATTENTION) or (
                producer.is_map and self._leads_to_product(producer)
            ):
                return True
        return False

    # Queries, keys, values

    def _read_operand(self, name: str, batch: tuple[int, ...], *, transposed: bool) -> Movement:
        """Return an operand as `[batch.., positions, channels]` of the tensor it comes from."""
        shape = self._graph.tensors[name].shape
        positions, channels = shape[-1:-3:-1] if transposed else shape[-2:]
        if any(own not in (1, of) for own, of in zip(shape, batch, strict=False)):
            raise _NoAttentionError(f"{name} has batches {shape[:-2]}, expected {batch}")
        axes = tuple(Var(f"a{i}", "int32") for i in range(len(shape)))
        index: list[Any] = [
            iconst(0) if extent == 1 else axis
            for axis, extent in zip(axes[:-2], shape[:-2], strict=True)
        ]
        index += [axes[-1], axes[-2]] if transposed else [axes[-2], axes[-1]]
        buffer = decl_buffer(shape, "float32", name="moved")
        body = Body(axes=axes, value=BufferLoad(buffer, index), sources={buffer: name})
        return movement_of(self._graph, body, (*batch, positions, channels))

    # The node

    def _insert_node(
        self,
        mix: Node,
        scores: _Scores,
        operands: tuple[Movement, Movement, Movement],
        *,
        turned: bool,
        guarded: bool,
    ) -> Graph:
        graph, (q, k, v) = self._graph, operands
        target, joined, out = self._find_stored_tensor(
            mix, (*q.shape[:-1], v.shape[-1]), turned=turned
        )
        extras = [] if scores.body is None else list(scores.body.sources.values())
        inputs = dict.fromkeys((q.source, k.source, v.source))
        inputs.update(dict.fromkeys(n for n in extras if n != Node.RESULT))
        channels = {m.source: m.channel for m in (q, k, v)}
        if any(channels[m.source] != m.channel for m in (q, k, v)):
            raise _NoAttentionError("queries, keys and values want other axes as channels")
        parts: dict[str, Body] = {"q": q.body, "k": k.body, "v": v.body}
        if scores.body is not None:
            parts["score"] = scores.body
        node = Node(
            name=mix.name,
            op="attention",
            inputs=tuple(inputs),
            output=target,
            attrs={
                **{name: m.shape for name, m in zip("qkv", (q, k, v), strict=True)},
                "scale": q.factor * k.factor * scores.factor,
                "value_scale": v.factor,
                **({"guarded": True} if guarded else {}),
                "channels": tuple(channels.get(name) for name in inputs),
                "out": out,
                "out_channel": max(
                    range(len(out)), key=lambda axis: (len(q.shape) - 1 in out[axis], axis)
                ),
            },
            parts=parts,
            fused=(scores.product.op, self._softmax.op, mix.op, *joined),
        )
        last = graph.producers[target]
        nodes = [node if n is last else n for n in graph.nodes]
        return graph.replace_nodes(nodes).drop_unread()

    def _find_stored_tensor(
        self, mix: Node, shape: tuple[int, ...], *, turned: bool
    ) -> tuple[str, list[str], tuple[tuple[int, ...], ...]]:
        """Return the tensor to store, the maps that lead to it, and what its axes are made of."""
        best: tuple[str, list[str], tuple[tuple[int, ...], ...]] | None = None
        name, body = mix.output, Body.reading(mix.output, shape)
        passed: list[str] = []
        straight = [(axis,) for axis in range(len(shape))]
        if turned:
            straight[-2:] = straight[:-3:-1]
            *batch, rows, columns = body.axes
            body = replace(body, axes=(*batch, columns, rows))
        while True:
            reader = self._only_reader(name)
            if reader is None or not reader.is_map or reader.body is None:
                break
            if not isinstance(reader.body.value, tvm.ir.TensorLoad) or len(reader.inputs) != 1:
                break
            body = inline(reader.body, name, body)
            name = reader.output
            passed.extend(reader.operators)
            target = self._graph.tensors[name].shape
            axes = place_axes(body, target, shape)
            if axes is not None and len(target) <= MAX_RANK:
                best = (name, list(passed), axes)
        return best or (mix.output, [], tuple(straight))


def _keeps_numbers_alone(body: Body) -> bool:
    """Return whether a map gives each number of a tensor as it is, in its place, and 0 for NaN."""
    shares = np.array([0.0, 1e-9, 0.25, 1.0, math.nan])

    def leaf(part: Any) -> np.ndarray:
        moved = not isinstance(part, tvm.ir.TensorLoad) or len(part.indices) != len(body.axes)
        if moved or not all(
            index.same_as(axis) or isinstance(index, tirx.IntImm)
            for index, axis in zip(part.indices, body.axes, strict=True)
        ):
            raise NotKnownError
        return shares

    try:
        made = evaluate(body.value, leaf)
    except NotKnownError:
        return False
    return bool(np.array_equal(made, np.nan_to_num(shares, nan=0.0)))
