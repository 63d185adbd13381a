"""Rules for softmax and its logarithm."""

from __future__ import annotations

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.reduce.softmax import softmax
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.row_tile import RowWork, pick_row_tile


def softmax_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a softmax, whichever role its axis plays."""
    kernel = context.kernel(node, node.op)
    x = kernel.input(node.inputs[0])
    out, epilogue = kernel.output()
    role = x.spec.roles.roles[int(node.attrs["axis"]) % len(x.spec.shape)]
    work = RowWork.from_extents(x.extents, role, passes=3, folds=2)
    tile = pick_row_tile(context, node, node.op, work)
    softmax(kernel.builder, tile, role, node.op == "log_softmax", x, out, epilogue)
    return kernel.call()
