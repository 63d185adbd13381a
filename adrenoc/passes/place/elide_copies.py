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
from typing import Any

from adrenoc.base.tvmapi import const_int, tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.operand import Memory
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.expression import Expression
from adrenoc.passes.precision.known import Known


def elide_copies(graph: Graph, _context: Context) -> Graph:
    """Make the output of such a map another name for its source's memory."""
    aliases = dict(graph.aliases)
    rounded = any(asked.rounded for asked in graph.precisions.values())
    known = Analysis(graph).known if rounded else {}
    nodes = []
    for node in graph.nodes:
        if _moves_nothing(graph, node, known):
            source = node.inputs[0]
            aliases[node.output] = aliases.get(source, source)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), aliases=aliases)


def _moves_nothing(graph: Graph, node: Node, known: Mapping[str, Known]) -> bool:
    body = node.body
    if not node.is_map or body is None or node.epilogue is not None or len(node.inputs) != 1:
        return False
    source, target = graph.operand(node.inputs[0]), graph.operand(node.output)
    if (
        Memory.PLAIN in (source.memory, target.memory)
        or (source.memory, source.dtype, source.physical)
        != (target.memory, target.dtype, target.physical)
        or source.roles.order is not target.roles.order
        or graph.tensors[node.inputs[0]].value is not None
        or source.extents != target.extents
    ):
        return False
    # What a byte stands for is part of the name: another offset moves nothing either.
    shifted = _shift_of(body, known)
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


def _shift_of(body: Body, known: Mapping[str, Known]) -> tuple[Any, float] | None:
    """(load, number) of an expression that adds a number to an element, whatever it converts."""
    expression = Expression(body, known)
    expr: Any = body.value
    shift = 0.0
    while not isinstance(expr, tvm.ir.TensorLoad):
        if isinstance(expr, tirx.Cast):
            inner = expression[expr.value]
            if not inner.whole or expression[expr].interval != inner.interval:
                return None
            expr = expr.value
        elif isinstance(expr, tirx.Add) and isinstance(expr.b, tirx.FloatImm):
            expr, shift = expr.a, shift + float(expr.b.value)
        else:
            return None
    return expr, shift
