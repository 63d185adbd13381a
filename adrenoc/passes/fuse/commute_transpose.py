"""Move an elementwise map before a transpose that moves no texel.

Before -> after:
    y[n, c, h, w] = m[n, h, w, c] * g[c] + x[n, c, h, w]
        t[n, h, w, c] = m[n, h, w, c] * g[c] + x[n, c, h, w]      can end what makes m
        y[n, c, h, w] = t[n, h, w, c]                             another name for the same texels

Channels come last in the result of a product and second in that of a convolution.  Both are the
same image, so that the order of axes alone would keep the map out of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from adrenoc.base.tvmapi import BufferLoad, Var, decl_buffer, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.analyse.elementwise import reads_elementwise

_TURNS = {Kind.PRODUCT: (0, 2, 3, 1), Kind.CONVOLUTION: (0, 3, 1, 2)}
"""By what makes it, which axis of the map each axis of the result is that lies as the map does."""
_ENDING = ".turned"


@dataclass(frozen=True, kw_only=True)
class CommutedMap:
    """The map in the order of what it reads, its result, and the move that is left."""

    map: Node
    tensor: Tensor
    move: Node


def commute_transpose(graph: Graph, node: Node, anchor: Node) -> CommutedMap | None:
    """Split a map that computes with each element of what `anchor` makes, at a turned index."""
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
    return CommutedMap(map=made, tensor=tensor, move=_turn_back(node, tensor, order))


def _turn_back(node: Node, tensor: Tensor, order: tuple[int, ...]) -> Node:
    """Return the map's result, as a move of `tensor`."""
    axes = tuple(Var(f"i{axis}", "int32") for axis in range(len(order)))
    buffer = decl_buffer(tensor.shape, tensor.dtype, name="turned")
    value = BufferLoad(buffer, [axes[axis] for axis in order])
    body = Body(axes=axes, value=value, sources={buffer: tensor.name})
    return replace(node, inputs=(tensor.name,), body=body, fused=("permute_dims",))
