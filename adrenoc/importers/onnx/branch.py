"""If, and Compress, as nodes without nested graphs or shapes that depend on data.

Before -> after:
    y = If(c) {then: Relu(x)} {else: Neg(x)}      c constant: y = Relu(x)
                                                  else: y = Where(c, Relu(x), Neg(x))

Both branches of a condition that is known at run time alone are computed: operators of ONNX have
no side effects, and the one that is not taken is dropped element by element, NaN included.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import OnnxGraph, attributes, first_output
from adrenoc.importers.onnx.unroll import instantiate


def inline_branch(graph: OnnxGraph, node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    """Return the nodes of the branch that a constant condition takes.

    Names inside get `prefix`, which may be empty where they are no others of the graph.
    """
    nodes, results = instantiate(graph, _branch(node, branch_taken(graph, node)), (), prefix)
    for source, name in zip(results, node.output, strict=True):
        if source != name:
            nodes.append(helper.make_node("Identity", [source], [name]))
    return nodes


def branch_taken(graph: OnnxGraph, node: onnx.NodeProto) -> str:
    """Return the attribute that holds the branch which a constant condition takes."""
    taken = bool(graph.scalar(node.input[0]))
    return "then_branch" if taken else "else_branch"


def select_branches(graph: OnnxGraph, node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    """Return the nodes of both branches, and a Where for each output.

    The last ones take inputs whose types only the walk over the first ones finds; `can_select`
    judges them then.
    """
    condition = f"{prefix}condition"
    graph.set_constant(f"{prefix}scalar", np.zeros(0, np.int64))
    nodes = [helper.make_node("Reshape", [node.input[0], f"{prefix}scalar"], [condition])]
    sides = []
    for key in ("then_branch", "else_branch"):
        made, results = instantiate(graph, _branch(node, key), (), f"{prefix}{key}/")
        nodes += made
        sides.append(results)
    for name, *pair in zip(node.output, *sides, strict=True):
        if name:
            nodes.append(helper.make_node("Where", [condition, *pair], [name]))
    return nodes


def can_select(graph: OnnxGraph, where: onnx.NodeProto) -> str:
    """Return why a Where of `select_branches` cannot choose between its tensors; empty where it
    can."""
    types = [graph.types.get(name) for name in where.input[1:]]
    if any(t is None or t.shape is None for t in types):
        return "its condition is known at run time alone, and the shape of a branch is not known"
    one, other = types
    if one == other:
        return ""
    shown = " and ".join(f"{t.dtype} {list(t.shape or ())}" for t in types if t is not None)
    return (
        f"its condition is known at run time alone, and its branches give '{where.output[0]}' as "
        f"{shown}: let both give one shape"
    )


def _branch(node: onnx.NodeProto, key: str) -> onnx.GraphProto:
    return next(a.g for a in node.attribute if a.name == key)


def compress_as_gather(graph: OnnxGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Compress with a constant condition as the Gather that it then is, else None."""
    condition = graph.constants.get(node.input[1])
    if condition is None:
        return None
    prefix = f"{first_output(node)}/taken"
    graph.set_constant(prefix, np.flatnonzero(condition))
    axis, source, nodes = attributes(node).get("axis"), node.input[0], []
    if axis is None:
        graph.set_constant(f"{prefix}/flat", np.array([-1], np.int64))
        flat = f"{prefix}/from"
        nodes = [helper.make_node("Reshape", [source, f"{prefix}/flat"], [flat])]
        source, axis = flat, 0
    gather = helper.make_node("Gather", [source, prefix], [node.output[0]], axis=axis)
    return [*nodes, gather]
