"""Join two products of one vector, and the mean of an image before them, where that is faster.

Squeeze-and-excite blocks are such: small products whose launches take longer than they do.  Every
work-group of the second product computes the first anew, and the mean, which pays where they are
small.

Before -> after:
    m = mean(x); s = conv2d[relu](m, w1); e = conv2d[sigmoid](s, w2)
    e = excite(x, w1, w2), or m = mean(x); e = excite(m, w1, w2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Memory
from adrenoc.kernels.families.excite import EXCITE, excite_clocks
from adrenoc.kernels.families.operators import (
    is_of_few_bits,
    is_row_product,
    row_product_clocks,
)
from adrenoc.kernels.families.reduce.reduce import reduction_clocks
from adrenoc.kernels.families.separable import join_products
from adrenoc.kernels.families.shared.row_product import GATED, JOINED, NORMED
from adrenoc.passes.analyse.reads import first_obstacle, image_clash, other_use, reads_first_alone
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_depthwise import is_pointwise
from adrenoc.passes.fuse.fuse_maps import MAX_INPUTS
from adrenoc.passes.fuse.fuse_means import averages_pixels
from adrenoc.passes.fuse.fuse_prologues import finite_at_zero

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
    joined = _join_products(graph, node, reader)
    apart = sum(row_product_clocks(graph, n, costs) for n in (node, reader)) + launch
    ways = [_Way(clocks=excite_clocks(graph, joined, costs), joined=joined, gone=(node,))]
    mean = graph.producers.get(node.inputs[0])
    if mean is not None and averages_pixels(graph, mean):
        reason = _refusal_of_mean(graph, mean, node)
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


def _join_products(graph: Graph, node: Node, reader: Node) -> Node:
    """Return both products as one node in the place of the second."""
    attrs = {
        "kernel_layouts": tuple(str(n.attrs.get("kernel_layout")) for n in (node, reader)),
        "between": graph.operand(node.output),
    }
    return join_products(node, reader, EXCITE, attrs)


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


def _refusal_of_mean(graph: Graph, mean: Node, node: Node) -> str | None:
    """Return why a mean cannot be computed by the products after it."""
    read, used = graph.operand(mean.inputs[0]), other_use(graph, mean)
    obstacles = {
        used or "": used is not None,
        f"others than {node.name} read it": graph.consumers[mean.output] != (node,),
        f"{node.name} reads it beside its own input": not reads_first_alone(node, mean.output),
        "its numbers are rounded": graph.precision(mean.output).rounded,
        "its image lies neither in texels nor in blocks": read.memory
        not in (Memory.TEXTURE, Memory.BLOCKED),
    }
    return first_obstacle(obstacles)
