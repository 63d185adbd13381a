"""Find maps that leave every texel where it is: transposes, squeezes and flattens for free.

Before -> after:
    lv[1, 1280, 1, 1]:NCHW4c -> reshape -> lv1[1, 1280]:WC4c      lv1 is lv: no kernel
    x:NHWC4c -> permute_dims -> y:NCHW4c                          y is x: no kernel
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.graph import Graph, Node
from adrenoc.operand import Memory
from adrenoc.tvmapi import const_int, tvm


def elide_copies(graph: Graph) -> Graph:
    """Make the output of such a map another name for its source's memory."""
    aliases = dict(graph.aliases)
    nodes = []
    for node in graph.nodes:
        if _moves_nothing(graph, node):
            source = node.inputs[0]
            aliases[node.output] = aliases.get(source, source)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), aliases=aliases)


def _moves_nothing(graph: Graph, node: Node) -> bool:
    body = node.body
    if not node.is_map or body is None or node.epilogue is not None or len(node.inputs) != 1:
        return False
    source, target = graph.operand(node.inputs[0]), graph.operand(node.output)
    if (
        Memory.PLAIN in (source.memory, target.memory)
        or (source.memory, source.dtype, source.physical)
        != (target.memory, target.dtype, target.physical)
        or source.roles.fold is not target.roles.fold
        or graph.tensors[node.inputs[0]].value is not None
        or source.extents != target.extents
        or not isinstance(body.value, tvm.ir.TensorLoad)
    ):
        return False
    for position, index in enumerate(body.value.indices):
        if source.shape[position] == 1:
            continue
        role = source.roles.roles[position]
        axis = target.roles.axis(role)
        if axis is None or const_int(index) is not None or not index.same_as(body.axes[axis]):
            return False
    return True
