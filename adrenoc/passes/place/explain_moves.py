"""Say why a kernel that only moves elements is left.

Most moves need none: maps read where elements lie, convolutions make channels in the order that is
read, concatenations and slices are ranges of other tensors, whole texels are stored where they are
read.  What is left has a reader that takes whole texels, many times, of a tensor whose texels it
would have to put together at each read.
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.context import Context
from adrenoc.passes.place.texel_moves import moves_alone, texel_moves


def explain_moves(graph: Graph, context: Context) -> Graph:
    """Log a Decision for each node that moves elements and that no Decision is about yet."""
    log = context.log
    told = {decision.subject for decision in log}
    for node in graph.nodes:
        is_told = node.output in graph.output_names or bool(told & {node.name, node.output})
        if is_told or not moves_alone(node):
            continue
        log.add(node.name, "a kernel that only moves elements", _reason(graph, node))
    return graph


def _reason(graph: Graph, node: Node) -> str:
    readers = graph.consumers[node.output]
    source = graph.placements[node.inputs[0]]
    made = graph.placements[node.output]
    who = ", ".join(dict.fromkeys(f"{reader.op} {reader.name}" for reader in readers[:2]))
    who += f" and {len(readers) - 2} more" if len(readers) > 2 else ""
    if not readers:
        return f"its result lies in {graph.owner(node.output)}, in place"
    if texel_moves(graph, node):
        return f"{who} would look up each texel; {node.inputs[0]} is not made by one kernel alone"
    return (
        f"{who} would put each texel together anew at each read: {node.inputs[0]} lies in "
        f"{source.memory.value}, {source.layout}, and is read as {made.layout} "
        f"of {'x'.join(map(str, graph.tensors[node.output].shape))}"
    )
