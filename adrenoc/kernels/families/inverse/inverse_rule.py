"""The rule for inverses of matrices."""

from __future__ import annotations

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.inverse.inverse import inverse
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext


def inverse_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of an inverse: a thread for each matrix."""
    kernel = context.kernel(node, node.op)
    x = kernel.input_or_prologue()
    _, epilogue = kernel.output()
    inverse(kernel.builder, x, epilogue)
    return kernel.call()
