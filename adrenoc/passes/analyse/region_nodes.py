"""Regions of CLML in the planning graph: one node that reads and writes row-major tensors.

A node has one output.  The further results of a region are made before it, as memory that nothing
has written yet, and the region takes them as inputs.

Before -> after:
    r = call_dps_packed("clml0_..", (x,)) -> (a, b)      alloc -> b;  clml(x, b) -> a
"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.node_kinds import ALLOC, CLML


def region_nodes(symbol: str, arguments: Sequence[str], results: Sequence[str]) -> list[Node]:
    """Return the nodes of one region."""
    nodes = [Node(name=name, op=ALLOC, inputs=(), output=name) for name in results[1:]]
    nodes.append(
        Node(
            name=results[0],
            op=CLML,
            inputs=(*dict.fromkeys(arguments), *results[1:]),
            output=results[0],
            attrs={"symbol": symbol, "arguments": tuple(arguments), "results": tuple(results)},
            fused=(CLML,),
        )
    )
    return nodes


def region_border(graph: Graph) -> set[str]:
    """Return the tensors that regions read and write."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.is_region:
            found.update((*node.inputs, node.output))
    return found
