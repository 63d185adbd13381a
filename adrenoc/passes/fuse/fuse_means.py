"""Let depthwise convolutions make the mean of what they make, where that saves time.

A squeeze-and-excite block begins with the mean over all pixels of what a depthwise convolution has
just made, and reads all of it again.  Each work-group has its part of the mean at hand: one vector
of each block of channels.  So it is where the depthwise convolution takes in the 1x1 convolution
before it.

Before -> after:
    y = conv2d[depthwise](x, w); m = mean(y)
    y, parts = conv2d[depthwise](x, w); m = mean(parts), a pixel for each work-group, or
    y, m = conv2d[depthwise](x, w), where one work-group makes all pixels
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES, Memory
from adrenoc.kernels.families import depthwise
from adrenoc.kernels.families.depthwise import DepthwiseTile
from adrenoc.kernels.families.expansion import expansion_rule
from adrenoc.kernels.families.expansion.expansion_plan import ExpansionTile
from adrenoc.kernels.families.expansion.expansion_rule import expansion_work
from adrenoc.kernels.families.operators import can, gives, is_kind
from adrenoc.kernels.families.reduce.reduce import folded_axes, reduction_clocks
from adrenoc.kernels.families.shared.conv_geometry import conv_geometry, conv_work
from adrenoc.kernels.families.shared.machine import CostModel, Scored
from adrenoc.kernels.families.shared.operator import Fusion, Kind, Numbers
from adrenoc.kernels.families.shared.row_product import MEAN_PARTS
from adrenoc.passes.analyse.reads import first_obstacle
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_depthwise import is_depthwise_conv

_TRIED = 3
"""How many schedules of a convolution say what its work-groups may be."""


@dataclass(frozen=True, kw_only=True)
class _Way:
    """The graph with a mean made in parts, and clocks of both nodes."""

    graph: Graph
    clocks: float


def fuse_means(graph: Graph, context: Context) -> Graph:
    """Join each mean with the depthwise convolution before it, where that gains."""
    for node in graph.nodes:
        maker = graph.producers.get(node.inputs[0]) if node.inputs else None
        if maker is None or maker.output != node.inputs[0] or not averages_pixels(graph, node):
            continue
        if can(maker, Fusion.MEAN) or is_depthwise_conv(graph, maker):
            graph = _join(graph, context, maker, node)
    return graph


def _join(graph: Graph, context: Context, maker: Node, mean: Node) -> Graph:
    reason, costs = _refusal(graph, context, maker, mean), context.costs
    if reason is None:
        best = min(_ways(graph, maker, mean, costs), key=lambda way: way.clocks)
        more = best.clocks - _score(graph, maker, costs).least
        e, element = graph.operand(maker.output).extents, bytes_of(costs.options.storage_dtype)
        read = costs.machine.memory_clocks(e.h * e.w * e.blocks * LANES * element)
        alone = max(reduction_clocks(graph, mean, costs), read)
        reason = f"estimated {more:.0f} clocks, {alone:.0f} where the image is read again"
        # Estimates err, and where no schedule fits they are infinite.
        if costs.machine.cost.joins.pair * more < alone:
            context.log.add(mean.name, f"of what work-groups of {maker.name} add up", reason)
            return best.graph
    context.log.add(mean.name, f"of all that {maker.name} makes", reason)
    return graph


def _ways(graph: Graph, maker: Node, mean: Node, costs: CostModel) -> Iterator[_Way]:
    """Yield the ways to make a mean in parts: one, and as many as the best schedules have."""
    counts = {(1, 1)}
    counts |= {
        _groups(graph, maker, tile) for tile in islice(_score(graph, maker, costs).rank(), _TRIED)
    }
    for rows, columns in sorted(counts):
        made = _divide(graph, maker, mean, rows, columns)
        clocks = _score(made, made.producers[maker.output], costs).least
        if rows * columns > 1:
            clocks += reduction_clocks(made, made.producers[mean.output], costs)
        yield _Way(graph=made, clocks=clocks)


def _divide(graph: Graph, maker: Node, mean: Node, rows: int, columns: int) -> Graph:
    """Return the graph where work-groups in so many rows and columns make parts of the mean."""
    image, whole = graph.tensors[maker.output], rows * columns == 1
    parts = mean.output if whole else f"{mean.output}_parts"
    joined = replace(
        maker,
        attrs={**maker.attrs, MEAN_PARTS: (rows, columns)},
        also_writes=(parts,),
        fused=(*maker.operators, *mean.operators),
        also=(*maker.also, mean.name) if whole else maker.also,
    )
    if whole:
        return graph.exchange([joined], [mean])
    roles = graph.operand(maker.output).roles
    sides = {roles.axis("H"): rows, roles.axis("W"): columns}
    shape = tuple(sides.get(axis, extent) for axis, extent in enumerate(image.shape))
    changed = {maker.output: joined, mean.output: replace(mean, inputs=(parts, *mean.inputs[1:]))}
    made = graph.replace_nodes(
        (changed.get(node.output, node) for node in graph.nodes),
        [Tensor(name=parts, shape=shape, dtype=graph.tensors[mean.output].dtype)],
    )
    # They lie as the image does, as exactly as the mean.
    placed = replace(graph.placements[maker.output], dtype=graph.placements[mean.output].dtype)
    placements = {**made.placements, parts: placed}
    precisions = {**made.precisions, parts: graph.precision(mean.output)}
    return replace(made, placements=placements, precisions=precisions)


def _score(graph: Graph, node: Node, costs: CostModel) -> Scored[Any]:
    """Return the schedules of a depthwise convolution, with parts of a mean or without."""
    if can(node, Fusion.MEAN):
        pair = expansion_work(graph, node, costs.options)
        return expansion_rule.score_tiles(pair, costs.limits, costs.machine)
    work = conv_work(graph, node, conv_geometry(graph, node), costs.options)
    return depthwise.score_tiles(work, costs.limits, costs.machine)


def _groups(graph: Graph, node: Node, tile: ExpansionTile | DepthwiseTile) -> tuple[int, int]:
    """Return rows and columns of work-groups that make an image by such a schedule."""
    e = graph.operand(node.output).extents
    if isinstance(tile, ExpansionTile):
        return math.ceil(e.h / tile.rows), math.ceil(e.w / tile.columns)
    width, height, _ = tile.work_group
    return math.ceil(e.h / (tile.rows * height)), math.ceil(e.w / (tile.pixels * width))


def averages_pixels(graph: Graph, node: Node) -> bool:
    """Return whether a node is the mean of an image over its rows and columns, and no more."""
    averages = is_kind(node, Kind.REDUCTION) and gives(node, Numbers.AVERAGED)
    if not averages or node.prologue is not None or node.epilogue is not None:
        return False
    read, made = graph.operand(node.inputs[0]), graph.operand(node.output)
    folded = {read.roles.roles[axis] for axis in folded_axes(node, len(read.shape))}
    return "C" not in folded and read.extents.n == 1 and read.extents.c == made.extents.c


def _refusal(graph: Graph, context: Context, maker: Node, mean: Node) -> str | None:
    """Return why the mean cannot be computed where its image is."""
    read, image, made = map(graph.operand, (maker.inputs[0], maker.output, mean.output))
    floats = (Memory.TEXTURE, Memory.BLOCKED)
    obstacles = {
        f"{maker.name} makes another mean": bool(maker.also_writes),
        "no local memory": not context.costs.limits.local_mem_bytes,
        "its numbers are rounded": graph.precision(mean.output).rounded,
        "not all floats in blocks of four channels": any(
            spec.memory not in floats for spec in (read, image, made)
        ),
        "its result is a part of another tensor": graph.owner(mean.output) != mean.output,
        "no schedule fits": math.isinf(_score(graph, maker, context.costs).least),
        "one pixel is all there is": image.extents.h * image.extents.w == 1,
    }
    return first_obstacle(obstacles)
