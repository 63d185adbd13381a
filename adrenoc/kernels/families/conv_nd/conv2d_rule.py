"""Which family computes a convolution of two dimensions: dense, depthwise or of one vector."""

from __future__ import annotations

from functools import partial

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.conv.dense_rule import dense_conv
from adrenoc.kernels.families.depthwise.depthwise_rule import blocks_held, depthwise_rule
from adrenoc.kernels.families.matmul.gemv_rule import gemv_rule, suits_gemv
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    conv_geometry,
    is_depthwise,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.conv_work import conv_work


def conv2d_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a convolution, dense, grouped or depthwise, of an activation by constant
    weights."""
    kernel_layout = str(node.attrs["kernel_layout"])
    geometry = conv_geometry(context.graph, node)
    oihw = partial(transpose_to_oihw, layout=kernel_layout)
    held = blocks_held(geometry.kernel[0] * geometry.kernel[1], context.limits)
    if is_depthwise(context.graph, node) and held:
        work = conv_work(context.graph, node, geometry, context.options)
        return depthwise_rule(context, node, work, oihw)
    vectors = geometry == ConvGeometry(kernel=(1, 1))
    if vectors and suits_gemv(context.graph.operand(node.output).extents):
        return gemv_rule(context, node, "gemv", oihw)
    return dense_conv(context, node, "conv2d", geometry, oihw)
