"""Find maps that leave every texel where it is: transposes, squeezes and flattens for free.

Before -> after:
    lv[1, 1280, 1, 1]:NCHW4c -> reshape -> lv1[1, 1280]:WC4c      lv1 is lv: no kernel
    x:NHWC4c -> permute_dims -> y:NCHW4c                          y is x: no kernel
    q:bytes from 0 -> add(-117) -> y:bytes from -117              y is q: no kernel
    q:from 0 to 255 -> astype(uint8) -> astype(float32) -> y      y is q: no kernel
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.operand import Memory
from adrenoc.passes.context import Context
from adrenoc.passes.precision.byte_ranges import Range, shift_of, whole_numbers
from adrenoc.tvmapi import const_int


def elide_copies(graph: Graph, _context: Context) -> Graph:
    """Make the output of such a map another name for its source's memory."""
    aliases = dict(graph.aliases)
    ranges = whole_numbers(graph) if any(p.rounded for p in graph.precisions.values()) else {}
    nodes = []
    for node in graph.nodes:
        if _moves_nothing(graph, node, ranges):
            source = node.inputs[0]
            aliases[node.output] = aliases.get(source, source)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), aliases=aliases)


def _moves_nothing(graph: Graph, node: Node, ranges: Mapping[str, Range]) -> bool:
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
    ):
        return False
    # What a byte stands for is part of the name: another offset moves nothing either.
    shifted = shift_of(body, ranges)
    if shifted is None or shifted[1] != target.low - source.low:
        return False
    load = shifted[0]
    for position, index in enumerate(load.indices):
        if source.shape[position] == 1:
            continue
        role = source.roles.roles[position]
        axis = target.roles.axis(role)
        if axis is None or const_int(index) is not None or not index.same_as(body.axes[axis]):
            return False
    return True
