"""Who reads what a kernel makes: by another name than that of its output, or once more beside it?

A part of a concatenation is read as the whole, a whole as the slices that lie in it, a reshaped
tensor as what it is reshaped to.  `Graph.consumers` knows those that read a tensor by its name
alone, so a pass that leaves out a kernel because each of them can do without asks here too.
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node


def reads_first_alone(reader: Node, name: str) -> bool:
    """Return whether a node reads a tensor as its first input, and by no other input or
    expression."""
    again = any(name in body.sources.values() for body in reader.bodies)
    return reader.inputs.count(name) == 1 and reader.inputs[0] == name and not again


def other_use(graph: Graph, node: Node) -> str | None:
    """Return why those that read a node's output are not all that need its kernel."""
    name = node.output
    owner = graph.owner(name)
    if node.stores:
        return "its kernel writes concatenations too"
    if name in graph.output_names:
        return "an output of the model"
    if owner != name:
        return f"it lies in {owner}, which others read"
    names = [n for n in (*graph.views, *graph.aliases) if n != name and graph.owner(n) == name]
    if not names:
        return None
    read = {n for reader in graph.nodes for n in reader.inputs} | set(graph.outputs)
    other = next((n for n in names if n in read), None)
    return None if other is None else f"it is also read as {other}"
