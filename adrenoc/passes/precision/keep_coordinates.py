"""Keep in float32 what says where to read: the grids that images are sampled by.

A half tells numbers near 1000 apart by a half, and numbers near 1 by 1 / 2048: half a pixel of an
image a thousand pixels wide.  What maps compute such a tensor of is kept too; sums before them, as
the flow that a convolution estimates, are stored as the preset says.

Before -> after (mixed):
    %grid = map add(%flow, %pixels)         the same, and grid, pixels stay in float32
    %y = map grid_sample(%x, %grid)
"""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.ir.body import loaded
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.body_cost import loads_of
from adrenoc.passes.context import Context


def keep_coordinates(graph: Graph, context: Context) -> Graph:
    """Mark the float tensors by whose values other tensors are read."""
    log = context.log
    exact: set[str] = set()
    for node in reversed(graph.nodes):
        pointing = dict.fromkeys(_coordinates(node))
        for name in pointing:
            if graph.tensors[name].is_float and name not in exact:
                log.add(name, "float32", f"{node.name} reads another tensor where it points")
        exact.update(pointing)
        if node.output in exact and node.is_map:
            exact.update(name for name in node.inputs if _is_made_by_maps(graph, name))
    floats = {name for name in exact if graph.tensors[name].is_float}
    return graph.with_precision(floats, float32=True)


def _is_made_by_maps(graph: Graph, name: str) -> bool:
    maker = graph.producers.get(name)
    return maker is None or maker.is_map


def _coordinates(node: Node) -> Iterator[str]:
    """The tensors that a node loads to find out where to load."""
    for body in node.bodies:
        for load in loads_of(body.value):
            for source in (source for index in load.indices for source in loaded(index)):
                yield from (name for buffer, name in body.sources.items() if buffer.same_as(source))
