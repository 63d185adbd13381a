"""Rules for softmax and its logarithm."""

from __future__ import annotations

from adrenoc.graph import Node
from adrenoc.kernels.softmax import softmax
from adrenoc.rules.context import KernelCall, RuleContext


def softmax_rule(context: RuleContext, node: Node) -> KernelCall:
    """One kernel, whichever role the axis plays."""
    kernel = context.kernel(node, node.op)
    x = kernel.input(node.inputs[0])
    out, epilogue = kernel.output()
    role = x.spec.roles.roles[int(node.attrs["axis"]) % len(x.spec.shape)]
    softmax(kernel.builder, role, node.op == "log_softmax", x, out, epilogue)
    return kernel.call()
