"""Which family computes a convolution of two dimensions: dense, depthwise or of one vector."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.operand import Memory
from adrenoc.kernels.families.conv.dense_rule import dense_conv
from adrenoc.kernels.families.depthwise.depthwise_rule import blocks_held, depthwise_rule
from adrenoc.kernels.families.matmul.gemv_rule import FLATTENED, gemv_rule, suits_gemv
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
    if node.prologue is None and covers_input(context.graph, node, geometry):
        context.log.add(node.name, "a product", "its kernel covers its whole input, once")
        roles = context.graph.operand(node.inputs[0]).roles.roles
        rows = partial(_rows_of, layout=kernel_layout, order=[r for r in roles if r in "CHW"])
        flat = replace(node, attrs={**node.attrs, FLATTENED: True})
        return gemv_rule(context, flat, "gemv", rows)
    return dense_conv(context, node, "conv2d", geometry, oihw)


def covers_input(graph: Graph, node: Node, geometry: ConvGeometry) -> bool:
    """Whether a convolution makes one pixel of an image that its kernel covers, each tap once."""
    x, out = graph.operand(node.inputs[0]), graph.operand(node.output).extents
    return (
        x.memory in (Memory.TEXTURE, Memory.BLOCKED)
        and geometry.kernel == (x.extents.h, x.extents.w)
        and (geometry.groups, geometry.padding, geometry.dilation) == (1, (0, 0), (1, 1))
        and (x.extents.n, out.h, out.w) == (1, 1, 1)
    )


def _rows_of(weight: np.ndarray, *, layout: str, order: list[str]) -> np.ndarray:
    """Weights as those of a vector, [O, I * H * W, 1, 1], which has the elements of an image whose
    axes lie in this order."""
    planes = transpose_to_oihw(weight, layout)
    letters = [*order, *(letter for letter in "CHW" if letter not in order)]
    axes = [0, *(1 + "CHW".index(letter) for letter in letters)]
    return planes.transpose(axes).reshape(planes.shape[0], -1, 1, 1)
