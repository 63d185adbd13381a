"""Fuse: fewer kernels, fewer tensors.

Four rules, applied in execution order:

- a map that one node alone reads is computed where it is read, if that costs no arithmetic
  worth speaking of; chains of reshapes, transposes and slices become index arithmetic;
- a map that only moves elements (a transpose of query, key and value at once) is computed where
  it is read even by several maps: none reads more elements for it, and the copy is gone;
- a map that a reduction alone reads is computed within it, since each element is read once: the
  square of a large number is then never rounded to what a tensor can hold;
- a map that reads an operator's result element by element becomes that operator's epilogue;
  a map that reads it twice, as SiLU and GELU do, is one reader, and one that turns a product's
  channels to where convolutions have them is turned itself (`_commute_transpose`).

Before -> after:
    conv2d -> add(bias) -> clip -> add(residual)        conv2d[conv2d add clip add]
    s = sigmoid(c); c * s                               conv2d[conv2d sigmoid multiply]
    reshape -> permute_dims -> reshape                  map[reshape permute_dims reshape]
    multiply(x, x) -> sum -> sqrt                       sum[multiply sum sqrt]

An elementwise map goes before a transpose that moves no texel:
    y[n, c, h, w] = m[n, h, w, c] * g[c] + x[n, c, h, w]
        t[n, h, w, c] = m[n, h, w, c] * g[c] + x[n, c, h, w]      can end what makes m
        y[n, c, h, w] = t[n, h, w, c]                             another name for the same texels

Channels come last in the result of a product and second in that of a convolution.  Both are the
same image, so that the order of axes alone would keep the map out of the kernel.

`fuse_around_concats` keeps those concatenations apart that need no kernel if they stay alone.  A
concatenation along the channels whose parts begin at whole blocks can be written in place: who
makes a part writes it into the whole (`join_blocks`).  Fusion would make it part of the maps that
read it, and each of them would read all parts again.  Which of the two is less is seen only when
everything else is fused, so the graph is fused twice where the first answer was wrong.

Before -> after:
    c = concat(a, b); conv2d(c); conv2d(c)     the same: `concat` stays a node, and needs no kernel
    c = concat(a, b); y = shuffle(slice(c))    map[concat strided_slice ...]: one kernel as before
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.decision import DecisionLog
from adrenoc.base.tvmapi import IF_THEN_ELSE, Expr, Var, tirx, tvm
from adrenoc.ir.graph import CONCAT, Body, Graph, Node, Tensor, find_loaded_buffers
from adrenoc.ir.layout import LANES, default_layout
from adrenoc.kernels.body_cost import loads_of, parts_of, parts_of_kind
from adrenoc.kernels.families.operators import changed_input, is_kind
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.analyse.reads import (
    Slice,
    concat_of,
    reads_elementwise,
    restore_whole_sources,
    slice_of,
)
from adrenoc.passes.analyse.scalar_body import EXPONENTIALS, is_power, substitute, unify_reads
from adrenoc.passes.context import Context
from adrenoc.passes.place.assign_places import assign_layouts

_TURNS = {Kind.PRODUCT: (0, 2, 3, 1), Kind.CONVOLUTION: (0, 3, 1, 2)}
"""By what makes it, which axis of the map each axis of the result is that lies as the map does."""
_ENDING = ".turned"


def _commute_transpose(graph: Graph, node: Node, anchor: Node) -> tuple[Node, Tensor, Node] | None:
    """Split a map that computes with each element of what `anchor` makes, at a turned index.  Gives
    the map in the order of what it reads, its result, and the move that is left."""
    body, result = node.body, graph.tensors[node.output]
    order = next((turn for kind, turn in _TURNS.items() if is_kind(anchor, kind)), None)
    if order is None or body is None or body.reduced or len(body.axes) != len(order):
        return None
    if isinstance(body.value, tvm.ir.TensorLoad) or node.output in graph.outputs:
        return None
    turned = replace(body, axes=tuple(body.axes[axis] for axis in order))
    shape = tuple(result.shape[axis] for axis in order)
    if shape != graph.tensors[anchor.output].shape:
        return None
    if not reads_elementwise(turned, anchor.output, graph):
        return None
    tensor = replace(result, name=f"{node.output}{_ENDING}", shape=shape)
    made = replace(node, name=tensor.name, output=tensor.name, body=turned)
    back = Body.reading(tensor.name, tensor.shape, order, tensor.dtype)
    move = replace(node, inputs=(tensor.name,), body=back, fused=("permute_dims",))
    return made, tensor, move


MAX_REPEATED_COST = 8
"""Arithmetic, in TIR nodes, that may be computed again at a second read."""

MAX_OPERATORS = 64
"""Operators that one kernel may compute: what walks expressions recurses as deep as they are."""

MAX_PARTS = 8192
"""The most parts of one expression: a chain in which each operator reads the last one twice doubles
each time."""

MAX_INPUTS = 8
"""Tensors that one kernel may read; more would crowd the argument list of old drivers."""

_FEW_OPERATORS = 8
"""So few cannot double often enough to be counted."""


def fuse(graph: Graph, log: DecisionLog) -> Graph:
    """Fuse the nodes of a graph; outputs of the graph stay tensors of their own."""
    return _Fuser(graph, log).run()


class _Fuser:
    def __init__(self, graph: Graph, log: DecisionLog) -> None:
        self._graph = graph
        self._log = log
        self._in_float32 = set(graph.float32_names)
        self._made: dict[str, Node] = {}
        """Output -> node, in the order in which the nodes will run."""
        self._inside: dict[str, str] = {}
        """Output of a node that is gone -> output of the node that computes it where it reads."""
        self._turned: dict[str, Tensor] = {}
        """Output of a move that stays apart -> the result of the map in front of it."""

    def run(self) -> Graph:
        for node in self._graph.nodes:
            done = self._become_prologue(node) or self._inline_producers(node)
            if not self._better_within_reader(done):
                done = self._become_epilogue(done) or self._become_turned_epilogue(done) or done
            self._made[done.output] = done
        read = {name for node in self._made.values() for name in node.inputs}
        read.update(self._graph.outputs)
        kept = (n for n in self._made.values() if n.output in read)
        fused = self._graph.replace_nodes(kept, self._turned.values())
        return fused.change_precision(self._in_float32 & set(fused.tensors), float32=True)

    def _swallow(self, inner: str, outer: str) -> None:
        """Keep in float32 what computes a tensor that stays there."""
        if inner in self._in_float32:
            self._in_float32.add(outer)

    def _fits(self, producer: Node, inner: Body, reader: Node, outer: Body, name: str) -> bool:
        """Return whether both fit in one kernel, `inner` for each read of `name` in `outer`."""
        count = len(producer.fused) + len(reader.fused)
        reason = ""
        if count > MAX_OPERATORS:
            reason = f"together they are {count} operators, expected up to {MAX_OPERATORS}"
        elif count > _FEW_OPERATORS:
            parts = parts_of(outer) + _reads(outer, name) * parts_of(inner)
            if parts > MAX_PARTS:
                reason = f"together they have {parts} parts, expected up to {MAX_PARTS}"
        if reason:
            self._log.add(reader.output, f"computed apart from '{name}', which it reads", reason)
        return not reason

    def _only_reader(self, name: str, reader: str) -> bool:
        """Return whether nobody but `reader`, and what it has taken in, needs the tensor `name`."""
        if name in self._graph.outputs:
            return False
        readers = {self._resolve_output(node.output) for node in self._graph.consumers[name]}
        return readers == {reader}

    def _resolve_output(self, output: str) -> str:
        """Return the output of the node that now computes the tensor `output`."""
        while output in self._inside:
            output = self._inside[output]
        return output

    def _moves_for_maps_alone(self, producer: Node) -> bool:
        """Return whether a node is one load at other indices, read by maps alone, by each once."""
        name = producer.output
        if producer.body is None or not _is_move(producer.body):
            return False
        return name not in self._graph.outputs and all(
            reader.is_map and reader.body is not None and _reads(reader.body, name) == 1
            for reader in self._graph.consumers[name]
        )

    # A map moves into its readers

    def _inline_producers(self, node: Node) -> Node:
        if node.body is None or node.is_concat:
            return node
        for name in node.inputs:
            producer = self._made.get(name)
            if (
                producer is None
                or not producer.is_map
                or name in self._turned
                or producer.epilogue is not None
                or producer.body is None
                or not (
                    self._only_reader(name, node.output) or self._moves_for_maps_alone(producer)
                )
                or not self._worth_inlining(producer.body, node.body, name)
                or len({*producer.inputs, *node.inputs}) > MAX_INPUTS + 1
                or not self._fits(producer, producer.body, node, node.body, name)
            ):
                continue
            self._swallow(name, node.output)
            body = inline(node.body, name, producer.body)
            node = replace(
                node,
                body=body,
                inputs=tuple(dict.fromkeys(body.sources.values())),
                fused=(*producer.fused, *node.fused),
            )
            if self._only_reader(name, node.output):
                del self._made[name]
                self._inside[name] = node.output
        return node

    def _worth_inlining(self, producer: Body, reader: Body, name: str) -> bool:
        reads = _reads(reader, name)
        if reads == 0:
            return False
        cost = _cost(producer.value)
        if reader.reduced:  # free, or each element is computed once as before
            tensors = self._graph.tensors
            visits = math.prod(extent for _, extent in reader.reduced)
            visits *= math.prod(int(extent) for extent in reader.accumulator.shape)
            return cost == 0 or (reads == 1 and visits == math.prod(tensors[name].shape))
        return reads == 1 or cost <= MAX_REPEATED_COST

    # A map moves into the reduction that reads it

    def _better_within_reader(self, node: Node) -> bool:
        """Return whether a map makes large numbers for a reduction alone, or scales bytes.  Bytes
        that one map alone reads scaled are better stored as they are."""
        if not node.is_map or node.body is None or node.output in self._graph.outputs:
            return False
        readers = self._graph.consumers[node.output]
        if _scales_bytes(node.body):
            return [reader.is_map for reader in readers] == [True]
        return (
            any(
                (isinstance(part, tvm.ir.Call) and part.op.name in EXPONENTIALS) or is_power(part)
                for part in parts_of_kind(unify_reads(node.body), tvm.ir.Expr)
            )
            and [is_kind(reader, Kind.REDUCTION) for reader in readers] == [True]
            and any(self._same_elements(node, name) for name in node.inputs)
        )

    def _become_prologue(self, node: Node) -> Node | None:
        if not is_kind(node, Kind.REDUCTION):
            return None
        name = node.inputs[0]
        producer = self._made.get(name)
        if (
            producer is None
            or not producer.is_map
            or name in self._turned
            or producer.body is None
            or producer.epilogue is not None
            or not self._only_reader(name, node.output)
            or len({*producer.inputs, *node.inputs}) > MAX_INPUTS + 1
        ):
            return None
        alike = [n for n in producer.inputs if self._same_elements(producer, n)]
        if not alike:
            return None  # no input has the axes, by which the reduction walks
        del self._made[name]
        self._swallow(name, node.output)
        return replace(
            node,
            inputs=tuple(dict.fromkeys((alike[0], *producer.inputs, *node.inputs[1:]))),
            prologue=producer.body,
            fused=(*producer.fused, *node.fused),
        )

    # A map moves behind the operator that it reads

    def _become_epilogue(self, node: Node) -> Node | None:
        if not node.is_map or node.body is None:
            return None
        for name in reversed(node.inputs):
            anchor = self._made.get(name)
            if anchor is None or not self._can_end(anchor, node):
                continue
            if not self._same_elements(node, name):
                continue
            del self._made[name]
            self._swallow(name, node.output)
            return _append_epilogue(anchor, node, name)
        return None

    def _can_end(self, anchor: Node, node: Node) -> bool:
        """Return whether a map may be the last that `anchor` computes, wherever it reads."""
        body, name = node.body, anchor.output
        return (
            body is not None
            and not anchor.is_map
            and not anchor.is_concat
            and anchor.has_kernel
            and changed_input(anchor) is None
            and self._only_reader(name, node.output)
            and len({*anchor.inputs, *node.inputs}) <= MAX_INPUTS
            and self._fits(anchor, anchor.epilogue or body, node, body, name)
        )

    def _become_turned_epilogue(self, node: Node) -> Node | None:
        """Return the move that is left of a map which now ends, in another order, what it read.  It
        stays a node of its own, for who reads what the map read is asked of the graph.  A map that
        another one alone reads waits for that."""
        readers = self._graph.consumers[node.output]
        if not node.is_map or [reader.is_map for reader in readers] == [True]:
            return None
        for name in reversed(node.inputs):
            anchor = self._made.get(name)
            turned = None if anchor is None else _commute_transpose(self._graph, node, anchor)
            if anchor is None or turned is None or not self._can_end(anchor, node):
                continue
            turned_map, tensor, move = turned
            del self._made[name]
            for inner in (name, node.output):
                self._swallow(inner, tensor.name)
            self._made[tensor.name] = _append_epilogue(anchor, turned_map, name)
            self._turned[node.output] = tensor
            return move
        return None

    def _same_elements(self, node: Node, name: str) -> bool:
        tensors = self._graph.tensors
        if tensors[name].shape != tensors[node.output].shape:
            return False
        if default_layout(tensors[name].shape) is None:
            return False  # what has no channels is stored element by element, with no epilogue
        if not tensors[node.output].is_float or not tensors[name].is_float:
            return False
        return node.body is not None and reads_elementwise(node.body, name, self._graph)


def _append_epilogue(anchor: Node, node: Node, name: str) -> Node:
    body = node.body
    if body is None:
        raise ValueError(f"{node.name} has no body to become an epilogue")
    if anchor.epilogue is not None:
        epilogue = inline(body, name, anchor.epilogue)
    else:
        sources = {b: Node.RESULT if n == name else n for b, n in body.sources.items()}
        epilogue = replace(body, sources=sources)
    read = {Node.RESULT, *anchor.inputs}
    extras = [n for n in dict.fromkeys(epilogue.sources.values()) if n not in read]
    return replace(
        anchor,
        name=node.name,
        output=node.output,
        inputs=(*anchor.inputs, *extras),  # by position: an operator may read a tensor twice
        epilogue=epilogue,
        fused=(*anchor.fused, *node.fused),
    )


def inline(reader: Body, name: str, producer: Body) -> Body:
    """Replace each load of tensor `name` in the reader's body by what the producer computes."""
    buffers = [b for b, n in reader.sources.items() if n == name]

    def compute(load: Any) -> Any:
        if not any(load.source.same_as(b) for b in buffers):
            return load
        return substitute(producer.value, dict(zip(producer.axes, load.indices, strict=True)))

    value = structural_map(reader.value, (tvm.ir.TensorLoad, compute))
    known = {**{b: n for b, n in reader.sources.items() if n != name}, **producer.sources}
    used = find_loaded_buffers(value)
    sources = {b: n for b, n in known.items() if any(b.same_as(u) for u in used)}
    return replace(reader, value=value, sources=sources)


def _reads(body: Body, name: str) -> int:
    return sum(body.source_of(load.source) == name for load in loads_of(body.value))


def _is_move(body: Body) -> bool:
    """Return whether a body is one load, or one made bytes, which are moved as floats."""
    value = body.value
    if isinstance(value, tirx.Cast) and str(value.ty) in ("int8", "uint8"):
        value = value.value
    return isinstance(value, tvm.ir.TensorLoad)


def _scales_bytes(body: Body) -> bool:
    """Return whether a body multiplies what it has from bytes."""
    product = body.value
    if not isinstance(product, tirx.Mul) or not isinstance(product.b, tirx.FloatImm):
        return False
    value = product.a
    while isinstance(value, tirx.Cast | tirx.Add):
        if isinstance(value, tirx.Cast) and str(value.value.ty) in ("int8", "uint8"):
            return True
        value = value.value if isinstance(value, tirx.Cast) else value.a
    return False


def _cost(expr: Expr) -> int:
    """Return arithmetic on floating-point values; index arithmetic is free by comparison."""
    cost = 0
    for part in parts_of_kind(expr, tvm.ir.Expr):
        if hasattr(part, "ty") and str(part.ty).startswith("float"):
            if isinstance(part, tvm.ir.Call):
                cost += 0 if part.op.name == IF_THEN_ELSE else MAX_REPEATED_COST
            elif not isinstance(part, (tvm.ir.TensorLoad, tirx.FloatImm, Var)):
                cost += 1
    return cost


def fuse_around_concats(graph: Graph, context: Context) -> Graph:
    """Fuse the nodes of a graph; concatenations that may be written in place stay alone."""
    log = context.log
    candidates = _candidates(graph, context)
    if not candidates:
        return fuse(graph, log)
    trial = DecisionLog()
    fused = fuse(_mark_concats(graph, set(candidates)), trial)
    kept = {name for name in candidates if _pays(fused, graph, name, log)}
    if len(kept) < len(candidates):
        return fuse(_mark_concats(graph, kept), log)
    for decision in trial:
        log.add(decision.subject, decision.taken, decision.reason)
    return fused


def _mark_concats(graph: Graph, outputs: set[str]) -> Graph:
    nodes = [replace(n, op=CONCAT) if n.output in outputs else n for n in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


def _candidates(graph: Graph, context: Context) -> list[str]:
    """Return tensors whose parts would begin at whole blocks of channels."""
    found = []
    planned: Graph | None = None
    for node in graph.nodes:
        if not node.is_map or node.fused != (CONCAT,) or node.output in graph.output_names:
            continue
        concat = concat_of(graph, node)
        if concat is None or not graph.tensors[node.output].is_float:
            continue
        if any(part.name not in graph.producers or part.start % LANES for part in concat.parts):
            continue
        planned = planned or assign_layouts(graph, context.silent)
        layout = planned.layouts[node.output]
        if layout is not None and layout.axis("C") == concat.axis:
            found.append(node.output)
    return found


def _pays(graph: Graph, before: Graph, name: str, log: DecisionLog) -> bool:
    """Return whether a concatenation takes no more launches in place than as a map.  What would
    take the concatenation in is seen in the graph before fusion: a single map does.  Parts that
    cannot lie in it are written twice, which takes no launch (`second_stores`)."""
    node = graph.producers.get(name)
    if node is None:  # nobody reads it
        return False
    concat = concat_of(graph, node)
    if concat is None:
        return False
    readers = before.consumers[name]
    if _regroups(before, name, readers):
        reason = f"its only reader {readers[0].name} moves all elements anyway"
        log.add(name, "concatenated where it is read", reason)
        return False
    cuts = {part.name: slice_of(graph, graph.producers[part.name]) for part in concat.parts}
    slices = {part: cut for part, cut in cuts.items() if cut is not None}
    names = [part.name for part in restore_whole_sources(graph, concat.parts, slices)]
    alone = 0 if len(readers) == 1 and readers[0].is_map else 1
    extra = sum(_takes_kernel(graph, part, slices.get(part)) for part in dict.fromkeys(names))
    if extra > alone:
        log.add(
            name,
            "concatenated by a kernel",
            f"in place {extra} of its {len(names)} parts would take a kernel each, {alone} now",
        )
    return extra <= alone


def _takes_kernel(graph: Graph, part: str, cut: Slice | None) -> bool:
    """Return whether a part takes a kernel of its own, for the concatenation is none."""
    if cut is not None and cut.start % LANES == 0:
        return cut.source not in graph.producers
    return graph.producers[part].is_map and len(graph.consumers[part]) == 1


def _regroups(graph: Graph, name: str, readers: Sequence[Node]) -> bool:
    """Return whether one map alone reads a tensor and cuts its axes anew: a channel shuffle."""
    if len(readers) != 1 or not readers[0].is_map or readers[0].body is None:
        return False
    if not isinstance(readers[0].body.value, tvm.ir.TensorLoad):
        return False
    before, after = (
        sorted(extent for extent in graph.tensors[tensor].shape if extent != 1)
        for tensor in (name, readers[0].output)
    )
    return before != after and math.prod(before) == math.prod(after)
