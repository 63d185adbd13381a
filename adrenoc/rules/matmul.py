"""Rules for matrix products."""

from __future__ import annotations

import numpy as np

from adrenoc.graph import Node
from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.kernels.matmul import matmul
from adrenoc.rules.context import KernelCall, RuleContext
from adrenoc.rules.conv2d import dense_conv
from adrenoc.rules.gemv import gemv_rule, suits_gemv


def matmul_rule(context: RuleContext, node: Node) -> KernelCall:
    """A product by a constant matrix is a 1 x 1 convolution; of two activations, a batched one.

    Few vectors by a constant matrix have a kernel of their own.
    """
    a_name, b_name = node.inputs[:2]
    b = context.graph.tensors[b_name]
    if b.value is not None and b.value.ndim == 2:
        if suits_gemv(context.graph.operand(node.output).extents):
            return gemv_rule(context, node, "gemv", _as_oihw)
        return dense_conv(context, node, "dense", ConvGeometry(kernel=(1, 1)), _as_oihw)
    kernel = context.kernel(node, "matmul")
    left, right = kernel.input(a_name), kernel.input(b_name)
    out, epilogue = kernel.output()
    matmul(kernel.builder, left, right, out, epilogue)
    return kernel.call()


def _as_oihw(matrix: np.ndarray) -> np.ndarray:
    """`[K, N]` as the weights of a 1 x 1 convolution of K channels to N."""
    return np.ascontiguousarray(matrix.T)[:, :, None, None]
