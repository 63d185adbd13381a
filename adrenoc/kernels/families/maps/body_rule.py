"""Rules for maps and folds: nodes that a scalar expression describes."""

from __future__ import annotations

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.maps.map import map_kernel
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext


def body_rule(context: RuleContext, node: Node) -> KernelCall:
    """One kernel for a body, whatever it computes."""
    if node.body is None:
        raise ValueError(f"{node.name} has no body")
    kernel = context.kernel(node, "_".join(node.fused) if len(node.fused) < 4 else node.op)
    reads = {b: kernel.input(name) for b, name in node.body.sources.items()}
    out, epilogue = kernel.output()
    map_kernel(kernel.builder, node.body, reads, out, epilogue)
    return kernel.call()
