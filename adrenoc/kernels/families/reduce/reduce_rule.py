"""Rules for reductions: sum, mean, max, min, prod."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.reduce.reduce import REDUCTIONS, reduce_axes
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.row_tile import RowWork, pick_row_tile
from adrenoc.kernels.families.shared.rows import RowTile


def reduce_rule(context: RuleContext, node: Node) -> KernelCall:
    """One kernel for a reduction, named by the node's op, over any axes."""
    kernel = context.kernel(node, node.op)
    x = kernel.input_or_prologue()
    out, epilogue = kernel.output()
    rank = len(x.spec.shape)
    stated = node.attrs["axis"]
    axes = sorted(a % rank for a in stated) if stated is not None else list(range(rank))
    keepdims = bool(node.attrs["keepdims"])
    tile = pick_reduction_tile(kernel, axes, x, out)
    reduce_axes(kernel.builder, tile, REDUCTIONS[node.op], axes, keepdims, x, out, epilogue)
    return kernel.call()


def pick_reduction_tile(kernel: NodeKernel, axes: Sequence[int], x: Access, out: Access) -> RowTile:
    """Return how many threads share a texel of the result."""
    roles = "".join(r for a, r in enumerate(x.spec.roles.roles) if a in axes and r != "1")
    source, result = x.extents, out.extents
    by_role = {"N": source.n, "C": source.blocks, "H": source.h, "W": source.w}
    channels = min(LANES, result.c) if "C" in roles else 1  # each channel is a row of its own
    work = RowWork(
        rows=(result.w, result.h, result.n * result.blocks),
        length=math.prod(by_role[role] for role in roles),
        passes=channels,
        folds=channels,
        along_w="W" in roles,
    )
    return pick_row_tile(kernel.context, kernel.node, kernel.builder.family, work)
