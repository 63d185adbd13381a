"""Rules for reductions: sum, mean, max, min, prod."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.reduce.reduce import REDUCTIONS, reduce_axes
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.row_tile import (
    RowWork,
    candidates,
    estimate_clocks,
    pick_row_tile,
)
from adrenoc.kernels.families.shared.rows import RowTile


def reduce_rule(context: RuleContext, node: Node) -> KernelCall:
    """One kernel for a reduction, named by the node's op, over any axes."""
    kernel = context.kernel(node, node.op)
    x = kernel.input_or_prologue()
    out, epilogue = kernel.output()
    axes = folded_axes(node, len(x.spec.shape))
    keepdims = bool(node.attrs["keepdims"])
    tile = pick_reduction_tile(kernel, axes, x, out)
    reduce_axes(kernel.builder, tile, REDUCTIONS[node.op], axes, keepdims, x, out, epilogue)
    return kernel.call()


def pick_reduction_tile(kernel: NodeKernel, axes: Sequence[int], x: Access, out: Access) -> RowTile:
    """Return how many threads share a texel of the result."""
    work = reduction_work(x.spec, x.extents, out.extents, axes)
    return pick_row_tile(kernel.context, kernel.node, kernel.builder.family, work)


def reduction_work(
    spec: OperandSpec, source: Extents, result: Extents, axes: Sequence[int]
) -> RowWork:
    """Return the rows of a fold over these axes of a tensor."""
    roles = "".join(r for a, r in enumerate(spec.roles.roles) if a in axes and r != "1")
    by_role = {"N": source.n, "C": source.blocks, "H": source.h, "W": source.w}
    channels = min(LANES, result.c) if "C" in roles else 1  # each channel is a row of its own
    return RowWork(
        rows=(result.w, result.h, result.n * result.blocks),
        length=math.prod(by_role[role] for role in roles),
        passes=channels,
        folds=channels,
        along_w="W" in roles,
    )


def folded_axes(node: Node, rank: int) -> list[int]:
    """Return the axes of its input of this rank that a reduction folds, in order."""
    stated = node.attrs["axis"]
    return sorted(a % rank for a in stated) if stated is not None else list(range(rank))


def reduction_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of a reduction that reads its input as it lies."""
    read, machine = graph.operand(node.inputs[0]), costs.machine
    axes = folded_axes(node, len(read.shape))
    work = reduction_work(read, read.extents, graph.operand(node.output).extents, axes)
    storage_bytes = bytes_of(costs.options.storage_dtype)
    tiles = candidates(work, costs.limits, machine.cost)
    return min(estimate_clocks(work, tile, machine, storage_bytes) for tile in tiles)
