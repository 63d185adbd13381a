"""What tensors are to a network: its head, its residual streams, how deep they lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.operators import is_product


def head_of(graph: Graph, outputs: Iterable[str]) -> frozenset[str]:
    """What lies between the last products and some outputs, with these products."""
    found: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        for node in graph.makers(name) if graph.placements else _find_makers(graph, name):
            if node.output in found:
                continue
            found.add(node.output)
            if not is_product(node):
                waiting += node.inputs
    return frozenset(found)


def _find_makers(graph: Graph, name: str) -> tuple[Node, ...]:
    node = graph.producers.get(name)
    return () if node is None else (node,)


def streams_of(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Sums that are added to again and again: the tensors of each, in order; two at least."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    sums = []
    for node in graph.nodes:
        sources = residuals_of(graph, node)
        for source in sources:
            parent[root(source)] = root(node.output)
        if sources:
            sums.append(node.output)
    found: dict[str, list[str]] = {}
    for name in sums:
        found.setdefault(root(name), []).append(name)
    return tuple(tuple(names) for names in found.values() if len(names) > 1)


def residuals_of(graph: Graph, node: Node) -> tuple[str, ...]:
    """The computed tensors of its own shape that a node adds something to."""
    if not {"add", "subtract"} & set(node.operators):
        return ()
    read: Iterable[str] = node.inputs
    if is_product(node):  # what it adds up itself is no residual, though it can be both
        read = node.epilogue.sources.values() if node.epilogue is not None else ()
    shape = graph.tensors[node.output].shape
    return tuple(
        name
        for name in dict.fromkeys(read)
        if name not in (Node.RESULT, Node.BESIDE)
        and graph.tensors[name].value is None
        and graph.tensors[name].is_float
        and graph.tensors[name].shape == shape
    )


def product_depths(graph: Graph) -> Mapping[str, int]:
    """Computed tensor -> how many products there are at most on a way to it."""
    depth: dict[str, int] = dict.fromkeys(graph.inputs, 0)
    for node in graph.nodes:
        before = max((depth.get(name, 0) for name in node.inputs), default=0)
        for name in (*node.writes, node.output):
            depth[name] = max(depth.get(name, 0), before + is_product(node))
    return depth
