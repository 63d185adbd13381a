"""Drop conversions to integers and back that change no number.

What is quantised ends as `float(uint8(clip(round(...))))`: the clip has left whole numbers that the
integer type holds, so that the conversion is of nothing, lane by lane, in every kernel.

Before -> after:
    q = conv2d[add multiply round clip astype(uint8) astype(float32)](x, w, b)
    q = conv2d[add multiply round clip](x, w, b)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import dtype_of, tirx
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.expression import Expression
from adrenoc.passes.precision.known import Known


def drop_conversions(analysis: Analysis) -> Graph:
    """Return the graph with such conversions replaced by what they convert."""
    graph, nodes = analysis.graph, []
    for node in graph.nodes:
        body, epilogue = node.body, node.epilogue
        if body is not None and not body.reduced:
            body = _drop_casts(body, analysis.known)
        if epilogue is not None:
            epilogue = _drop_casts(
                epilogue, {**analysis.known, Node.RESULT: analysis.results[node.output]}
            )
        changed = body is not node.body or epilogue is not node.epilogue
        nodes.append(replace(node, body=body, epilogue=epilogue) if changed else node)
    return graph.replace_nodes(nodes)


def _drop_casts(body: Body, known: Mapping[str, Known]) -> Body:
    expression = Expression(body, known)

    def drop(part: Any) -> Any:
        inner = part.value
        if not isinstance(inner, tirx.Cast) or dtype_of(part) != dtype_of(inner.value):
            return part
        if not dtype_of(part).startswith("float"):
            return part
        before, after = expression[inner.value], expression[inner]
        same = before.whole and before.interval == after.interval
        return inner.value if same else part

    value = structural_map(body.value, (tirx.Cast, drop))
    return body if value.same_as(body.value) else replace(body, value=value)
