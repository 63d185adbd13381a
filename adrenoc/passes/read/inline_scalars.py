"""Write constants of one element into the expressions that read them: no argument, no read.

Before -> after:
    max(lv[i, j, k, l], const3[])       max(lv[i, j, k, l], 0.0)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.context import Context


def inline_scalars(graph: Graph, _context: Context) -> Graph:
    """Replace reads of one-element constants by their value."""
    scalars = {
        name: tensor.value.reshape(-1)[0].item()
        for name, tensor in graph.tensors.items()
        if tensor.value is not None and tensor.value.size == 1
    }
    return graph.replace_nodes(_inline_node(node, scalars) for node in graph.nodes)


def _inline_node(node: Node, scalars: dict[str, Any]) -> Node:
    if node.body is None or not any(name in scalars for name in node.inputs):
        return node
    body = _substitute_values(node.body, scalars)
    return replace(node, body=body, inputs=tuple(dict.fromkeys(body.sources.values())))


def _substitute_values(body: Body, scalars: dict[str, Any]) -> Body:
    def value_of(load: Any) -> Any:
        name = body.source_of(load.source)
        return tirx.const(scalars[name], str(load.ty)) if name in scalars else load

    value = structural_map(body.value, (tvm.ir.TensorLoad, value_of))
    return replace(body, value=value).drop_unread()
