"""Tensors of which some channels alone are tiny, and readers that bring these back.

Weights can make one channel a hundred million times smaller than the others, and the weights that
read it make up for it.  A channel that training has let die is as tiny, but nothing makes up for
it: it may be zero.

Before -> after (mixed):
    %y = conv2d(%x, %w), |w[2]| = 1e-8          the same, and %y stays in float32
    %z = conv2d(%y, %v), |v[:, 2]| = 1e8
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.families.operators import is_kind
from adrenoc.families.shared.operator import Kind
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_NORMAL
from adrenoc.tvmapi import tirx, tvm

_COUNTS = 2.0**-10
"""The share of a sum from which on a term's digits are the sum's, in half."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Channels:
    """The sizes of a tensor's channels along `axis`, and the tensors that they came by."""

    axis: int
    sizes: np.ndarray
    way: tuple[str, ...]


def brought_back(graph: Graph) -> dict[str, str]:
    """The tensors with tiny channels that count, each with the node that brings them back."""
    uneven: dict[str, _Channels] = {}
    found: dict[str, str] = {}
    for node in graph.nodes:
        source = next((uneven[name] for name in node.inputs if name in uneven), None)
        made = _made(graph, node, source)
        if source is not None and _counts(graph, node, source, made):
            found.update((name, node.name) for name in source.way if name not in found)
        if made is not None and _is_uneven(made.sizes):
            uneven[node.output] = made
    return found


def _is_uneven(sizes: np.ndarray) -> bool:
    tiny = sizes < HALF_NORMAL
    return bool(tiny.any() and not tiny.all())


def _counts(graph: Graph, node: Node, source: _Channels, made: _Channels | None) -> bool:
    """Whether a reader makes of a tiny channel what is not tiny."""
    tiny = source.sizes < HALF_NORMAL
    axis = _axis_of_inputs(graph, node)
    if axis is None:
        same = made is not None and made.sizes.shape == source.sizes.shape
        return same and made is not None and bool((tiny & (made.sizes >= HALF_NORMAL)).any())
    weights = _by_axis(graph.tensors[node.inputs[1]].value, axis)
    if weights is None or weights.shape != source.sizes.shape:
        return False
    shares = weights * source.sizes
    return bool((tiny & (shares >= max(HALF_NORMAL, _COUNTS * shares.max()))).any())


def _made(graph: Graph, node: Node, source: _Channels | None) -> _Channels | None:
    """The channels of a node's output."""
    if node.prologue is not None or not graph.tensors[node.output].is_float:
        return None
    came = None
    if node.op in ("conv2d", "matmul"):
        came = _of_weights(graph, node, source)
    elif is_kind(node, Kind.POOL):
        came = source
    elif not node.is_map:
        return None
    for body in node.bodies:
        came = _of_body(graph, body, came if body is node.epilogue else None, source)
    if came is None:
        return None
    before = source.way if source is not None and not _weighted(node) else ()
    return _Channels(axis=came.axis, sizes=came.sizes, way=(*before, node.output))


def _weighted(node: Node) -> bool:
    return node.op in ("conv2d", "matmul") and not _is_depthwise(node)


def _is_depthwise(node: Node) -> bool:
    return node.op == "conv2d" and int(node.attrs["groups"]) > 1


def _of_weights(graph: Graph, node: Node, source: _Channels | None) -> _Channels | None:
    rank = len(graph.tensors[node.output].shape)
    axis, outputs = rank - 1, -1
    if node.op == "conv2d":
        axis = str(node.attrs["out_layout"] or node.attrs["data_layout"]).index("C")
        outputs = str(node.attrs["kernel_layout"]).index("O")
    value = graph.tensors[node.inputs[1]].value
    sizes = _by_axis(value, outputs)
    if sizes is None or sizes.size != graph.tensors[node.output].shape[axis]:
        return None
    if _is_depthwise(node) and source is not None and source.sizes.shape == sizes.shape:
        sizes = sizes * source.sizes
    return _Channels(axis=axis, sizes=sizes, way=())


def _axis_of_inputs(graph: Graph, node: Node) -> int | None:
    """The axis of a node's weights that runs over the channels which it adds up."""
    if not _weighted(node) or graph.tensors[node.inputs[1]].value is None:
        return None
    return str(node.attrs["kernel_layout"]).index("I") if node.op == "conv2d" else -2


def _by_axis(value: np.ndarray | None, axis: int) -> np.ndarray | None:
    """The largest size along an axis; what is zero altogether is of no size, and counts as one."""
    if value is None or value.ndim < 2:
        return None
    others = tuple(a for a in range(value.ndim) if a != axis % value.ndim)
    sizes = np.maximum(value.max(axis=others), -value.min(axis=others))
    return np.where(sizes > 0, sizes, 1.0)


def _of_body(
    graph: Graph, body: Body, result: _Channels | None, source: _Channels | None
) -> _Channels | None:
    """The channels of an expression's elements, None where no axis has sizes of its own."""
    parts = _Parts(graph, body, result, source)
    sizes = parts.of(body.value)
    if parts.axis is None or np.ndim(sizes) != 1:
        return None
    return _Channels(axis=parts.axis, sizes=np.asarray(sizes), way=())


class _Parts:
    """The sizes of the parts of an expression: a number, or one for each index of `axis`."""

    def __init__(
        self, graph: Graph, body: Body, result: _Channels | None, source: _Channels | None
    ) -> None:
        self._graph, self._body, self._result, self._source = graph, body, result, source
        self.axis = None if result is None else result.axis

    def of(self, value: Any) -> Any:
        """The sizes of a part; functions are about one."""
        sizes: Any = 1.0
        if isinstance(value, tvm.ir.TensorLoad):
            sizes = self._load(value)
        elif isinstance(value, tirx.FloatImm):
            sizes = abs(float(value.value))
        elif isinstance(value, tirx.Mul):
            sizes = self.of(value.a) * self.of(value.b)
        elif isinstance(value, tirx.Div):
            sizes = self.of(value.a) / np.maximum(self.of(value.b), 1e-30)
        elif isinstance(value, tirx.Add | tirx.Sub):
            sizes = np.maximum(self.of(value.a), self.of(value.b))
        elif isinstance(value, tirx.Max | tirx.Min):
            # Each side once: chains of them are as deep as their operators are many.
            sides = [self.of(s) for s in (value.a, value.b) if not isinstance(s, tirx.FloatImm)]
            sizes = functools.reduce(np.maximum, sides, 0.0) if sides else 1.0
        return sizes

    def _load(self, load: Any) -> Any:
        name = next((n for b, n in self._body.sources.items() if b.same_as(load.source)), "")
        if name == Node.RESULT:
            return 1.0 if self._result is None else self._result.sizes
        value = self._graph.tensors[name].value
        if value is not None:
            varying = [axis for axis, extent in enumerate(value.shape) if extent > 1]
            if len(varying) != 1 or not self._is_along(load.indices[varying[0]]):
                return 1.0
            sizes = np.abs(value).reshape(-1)
            return np.where(sizes > 0, sizes, 1.0)
        source = self._source
        if source is None or source.way[-1] != name:
            return 1.0
        return source.sizes if self._is_along(load.indices[source.axis]) else 1.0

    def _is_along(self, index: Any) -> bool:
        """Whether an index is the one axis that has sizes; the first that is found becomes it."""
        axis = next((n for n, var in enumerate(self._body.axes) if var.same_as(index)), None)
        if self.axis is None:
            self.axis = axis
        return axis is not None and axis == self.axis
