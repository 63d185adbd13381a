"""Rules for transposed convolutions."""

from __future__ import annotations

from functools import partial

import numpy as np

from adrenoc.graph import Node
from adrenoc.kernels.conv2d_transpose import (
    TransposedGeometry,
    conv2d_transpose,
    pack_transposed,
    spread_taps,
)
from adrenoc.rules.context import KernelCall, RuleContext
from adrenoc.rules.conv2d import as_four_letters


def conv2d_transpose_rule(context: RuleContext, node: Node) -> KernelCall:
    """A transposed convolution of an activation by constant weights, of rows and columns."""
    x_name, weight_name = node.inputs[:2]
    layout = str(node.attrs["kernel_layout"])
    weight = context.graph.tensors[weight_name]
    by_letter = dict(zip(layout, weight.shape, strict=True))
    taps = (by_letter.get("H", 1), by_letter["W"])
    dilation = (int(node.attrs["dilation"][0]), int(node.attrs["dilation"][1]))
    geometry = TransposedGeometry(
        kernel=((taps[0] - 1) * dilation[0] + 1, (taps[1] - 1) * dilation[1] + 1),
        strides=tuple(node.attrs["strides"]),
        padding=(node.attrs["padding"][0], node.attrs["padding"][1]),
        groups=int(node.attrs["groups"]),
    )
    kernel = context.kernel(node, "conv2d_transpose")
    x = kernel.input(x_name)
    pack = partial(_pack, layout=layout, geometry=geometry, dilation=dilation)
    steps = "x".join(map(str, (*geometry.strides, *dilation)))
    packed = kernel.packed(weight_name, f"transposed{geometry.groups}_{steps}", pack)
    out, epilogue = kernel.output()
    conv2d_transpose(kernel.builder, geometry, x, packed, out, epilogue)
    return kernel.call()


def _pack(
    weight: np.ndarray, layout: str, geometry: TransposedGeometry, dilation: tuple[int, int]
) -> np.ndarray:
    four, letters = as_four_letters(weight, layout)
    iohw = four.transpose([letters.index(letter) for letter in "IOHW"])
    return pack_transposed(spread_taps(iohw, dilation), geometry)
