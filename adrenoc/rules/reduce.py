"""Rules for reductions: sum, mean, max, min, prod."""

from __future__ import annotations

from adrenoc.graph import Node
from adrenoc.kernels.reduce import REDUCTIONS, reduce_axes
from adrenoc.rules.context import KernelCall, RuleContext


def reduce_rule(context: RuleContext, node: Node) -> KernelCall:
    """One kernel for a reduction, named by the node's op, over any axes."""
    # What is computed on the way in is summed in float: it is computed in float too.
    compute = "float32" if node.prologue is not None else None
    kernel = context.kernel(node, node.op, compute=compute)
    x = kernel.folded_input()
    out, epilogue = kernel.output()
    rank = len(x.spec.shape)
    stated = node.attrs["axis"]
    axes = sorted(a % rank for a in stated) if stated is not None else list(range(rank))
    keepdims = bool(node.attrs["keepdims"])
    reduce_axes(kernel.builder, REDUCTIONS[node.op], axes, keepdims, x, out, epilogue)
    return kernel.call()
