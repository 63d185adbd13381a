"""Squeeze-and-excite blocks: means come from what makes an image, and their products are one.

A block begins with the mean over all pixels of what a depthwise convolution has just made, and
reads all of it again.  Each work-group has its part of the mean at hand: one vector of each block
of channels (`fuse_means`).  So it is where the depthwise convolution takes in the 1x1 convolution
before it.

Before -> after:
    y = conv2d[depthwise](x, w); m = mean(y)
    y, parts = conv2d[depthwise](x, w); m = mean(parts), a pixel for each work-group, or
    y, m = conv2d[depthwise](x, w), where one work-group makes all pixels

Launches of the two small products behind it take longer than they do (`fuse_excite`).  Every
work-group of the second computes the first anew, and the mean, which pays where they are small.

Before -> after:
    m = mean(x); s = conv2d[relu](m, w1); e = conv2d[sigmoid](s, w2)
    e = excite(x, w1, w2), or m = mean(x); e = excite(m, w1, w2)
"""

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
from adrenoc.kernels.families.excite import EXCITE, excite_clocks
from adrenoc.kernels.families.expansion import expansion_rule
from adrenoc.kernels.families.expansion.expansion_plan import ExpansionTile
from adrenoc.kernels.families.expansion.expansion_rule import expansion_work
from adrenoc.kernels.families.operators import (
    can,
    gives,
    is_kind,
    is_of_few_bits,
    is_row_product,
    row_product_clocks,
)
from adrenoc.kernels.families.reduce.reduce import folded_axes, reduction_clocks
from adrenoc.kernels.families.separable import join_products
from adrenoc.kernels.families.shared.conv_geometry import conv_geometry, conv_work
from adrenoc.kernels.families.shared.machine import CostModel, Scored
from adrenoc.kernels.families.shared.operator import Fusion, Kind, Numbers
from adrenoc.kernels.families.shared.row_product import GATED, JOINED, MEAN_PARTS, NORMED
from adrenoc.passes.analyse.reads import first_obstacle, image_clash, other_use, reads_first_alone
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_depthwise import is_depthwise_conv, is_pointwise
from adrenoc.passes.fuse.fuse_maps import MAX_INPUTS
from adrenoc.passes.fuse.fuse_prologues import finite_at_zero

_TRIED = 3
"""How many schedules of a convolution say what its work-groups may be."""


@dataclass(frozen=True, kw_only=True)
class _MeanWay:
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
            graph = _join_mean(graph, context, maker, node)
    return graph


def _join_mean(graph: Graph, context: Context, maker: Node, mean: Node) -> Graph:
    reason, costs = _mean_stays(graph, context, maker, mean), context.costs
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


def _ways(graph: Graph, maker: Node, mean: Node, costs: CostModel) -> Iterator[_MeanWay]:
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
        yield _MeanWay(graph=made, clocks=clocks)


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


def _mean_stays(graph: Graph, context: Context, maker: Node, mean: Node) -> str | None:
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


_FORMS = (NORMED, GATED, JOINED)
"""Attributes of products that compute more."""


@dataclass(frozen=True, kw_only=True)
class _Way:
    """Both products as one node, the nodes that it computes, and clocks of what is left."""

    clocks: float
    joined: Node
    gone: tuple[Node, ...]


def fuse_excite(graph: Graph, context: Context) -> Graph:
    """Join each pair of products that gains by it, with the mean before it or without."""
    for node in graph.nodes:
        if graph.producers.get(node.output) is node and _is_product_of_one(graph, node):
            graph = _join(graph, context, node)
    return graph


def _join(graph: Graph, context: Context, node: Node) -> Graph:
    readers, log = graph.consumers[node.output], context.log
    if not any(_is_product_of_one(graph, reader) for reader in readers):
        return graph
    reason = _refusal(graph, node, readers)
    if reason is not None:
        log.add(node.name, f"a kernel before {readers[0].name}", reason)
        return graph
    (reader,), costs = readers, context.costs
    # Each work-group of the joined kernel computes all of it: nothing so long waits for the host.
    launch = costs.machine.gap_clocks
    attrs = {
        "kernel_layouts": tuple(str(n.attrs.get("kernel_layout")) for n in (node, reader)),
        "between": graph.operand(node.output),
    }
    joined = join_products(node, reader, EXCITE, attrs)
    apart = sum(row_product_clocks(graph, n, costs) for n in (node, reader)) + launch
    ways = [_Way(clocks=excite_clocks(graph, joined, costs), joined=joined, gone=(node,))]
    mean = graph.producers.get(node.inputs[0])
    if mean is not None and averages_pixels(graph, mean):
        read, used = graph.operand(mean.inputs[0]), other_use(graph, mean)
        obstacles = {
            used or "": used is not None,
            f"others than {node.name} read it": graph.consumers[mean.output] != (node,),
            f"{node.name} reads it beside its own input": not reads_first_alone(node, mean.output),
            "its numbers are rounded": graph.precision(mean.output).rounded,
            "its image lies neither in texels nor in blocks": read.memory
            not in (Memory.TEXTURE, Memory.BLOCKED),
        }
        reason = first_obstacle(obstacles)
        if reason is None:
            whole = replace(
                joined,
                inputs=(mean.inputs[0], *joined.inputs[1:]),
                fused=(*mean.operators, *joined.fused),
                also=(mean.name, *joined.also),
            )
            alone = reduction_clocks(graph, mean, costs) + launch
            apart, ways = apart + alone, [replace(way, clocks=way.clocks + alone) for way in ways]
            clocks = excite_clocks(graph, whole, costs)
            ways.append(_Way(clocks=clocks, joined=whole, gone=(mean, node)))
        else:
            log.add(mean.name, f"a kernel before {node.name}", reason)
    best = min(ways, key=lambda way: way.clocks)
    clash = image_clash(graph, best.joined)
    estimates = f"estimated {best.clocks:.0f} clocks, {apart:.0f} as kernels of their own"
    # Estimates err, and where no schedule fits they are infinite.
    if clash is not None or costs.machine.cost.joins.pair * best.clocks >= apart:
        log.add(node.name, f"a kernel before {reader.name}", clash or estimates)
        return graph
    for one in best.gone:
        log.add(one.name, f"computed by {reader.name}", estimates)
    return graph.exchange([best.joined], best.gone)


def _is_product_of_one(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies one vector, in numbers, by a constant matrix."""
    is_conv = is_pointwise(graph, node) and graph.tensors[node.inputs[1]].value is not None
    is_matmul = is_row_product(graph, node) and not is_of_few_bits(node)
    if not (is_conv or is_matmul) or node.prologue is not None:
        return False
    read, out = graph.operand(node.inputs[0]), graph.operand(node.output)
    vectors = {(e.n, e.h, e.w) for e in (read.extents, out.extents)}
    bare = not any(node.attrs.get(key) for key in _FORMS)
    return bare and vectors == {(1, 1, 1)} and read.memory is not Memory.BYTES


def _refusal(graph: Graph, node: Node, readers: tuple[Node, ...]) -> str | None:
    """Return why a product cannot be computed by the one that reads it."""
    reader, name = readers[0], node.output
    used = other_use(graph, node)
    obstacles = {
        used or "": used is not None,
        f"{len(readers)} kernels read it": len(readers) > 1,
        f"{reader.name} reads it beside its own input": not reads_first_alone(reader, name),
        "one of them is kept in float32, or is rounded": not _alike(graph, node, reader),
        f"more than {MAX_INPUTS} tensors": len({*node.inputs, *reader.inputs} - {name})
        > MAX_INPUTS,
        "beyond the last channel it might not be a number": graph.operand(name).extents.c % LANES
        > 0
        and node.epilogue is not None
        and not finite_at_zero(node.epilogue),
    }
    return first_obstacle(obstacles)


def _alike(graph: Graph, node: Node, reader: Node) -> bool:
    """Return whether one kernel stores weights as exactly as both ask for; it adds up in float."""
    asked = [graph.precision(n.output) for n in (node, reader)]
    return not any(one.rounded for one in asked) and asked[0].float32 == asked[1].float32
