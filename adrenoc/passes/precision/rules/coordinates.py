"""What says where to read: the grids that images are sampled by.

A half tells numbers near 1000 apart by a half, and numbers near 1 by 1 / 2048: half a pixel of an
image a thousand pixels wide.  What maps compute such a tensor of is kept too; sums before them, as
the flow that a convolution estimates, are stored as the preset says.

Before -> after (mixed):
    %grid = map add(%flow, %pixels)         the same, and grid and pixels stay in float32
    %y = map grid_sample(%x, %grid)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.analyse.scalar_body import parts_of_kind
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.tvmapi import tvm


def coordinates(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The float tensors by whose values other tensors are read."""
    graph = analysis.graph
    found: set[str] = set()
    for node in reversed(graph.nodes):
        for name in _coordinates(analysis, node):
            if graph.tensors[name].is_float and name not in found:
                yield name, f"{node.name} reads another tensor where it points"
            found.add(name)
        if node.output in found and node.is_map:
            handed = [name for name in node.inputs if _is_made_by_maps(graph, name)]
            yield from ((name, "") for name in handed if graph.tensors[name].is_float)
            found.update(handed)


def _is_made_by_maps(graph: Graph, name: str) -> bool:
    maker = graph.producers.get(name)
    return maker is None or maker.is_map


def _coordinates(analysis: Analysis, node: Node) -> Iterator[str]:
    """The tensors that a node loads to find out where to load."""
    for expression in analysis.expressions[node.output]:
        for load in parts_of_kind(expression.body.value, tvm.ir.TensorLoad):
            yield from sorted(expression.pointing(load) - {""})
