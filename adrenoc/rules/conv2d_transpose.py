"""Rules for transposed convolutions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from adrenoc.graph import Node
from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.kernels.conv2d_local import conv2d_local
from adrenoc.kernels.conv2d_transpose import (
    TransposedGeometry,
    conv2d_transpose,
    pack_transposed,
    spread_taps,
)
from adrenoc.kernels.local_plan import phase_grid
from adrenoc.kernels.weights import blocks, pack_local
from adrenoc.layout import LANES
from adrenoc.rules.context import KernelCall, Pack, RuleContext
from adrenoc.rules.conv2d import as_four_letters, conv_work
from adrenoc.rules.conv_tile import estimate_clocks
from adrenoc.rules.conv_tile_local import local_candidates
from adrenoc.rules.machine import Machine


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
    if _apart(context, node, geometry, dilation):
        return _phases_apart(context, node, geometry, partial(_as_phases, layout=layout))
    kernel = context.kernel(node, "conv2d_transpose")
    x = kernel.input(x_name)
    pack = partial(_pack, layout=layout, geometry=geometry, dilation=dilation)
    steps = "x".join(map(str, (*geometry.strides, *dilation)))
    packed = kernel.packed(weight_name, f"transposed{geometry.groups}_{steps}", pack)
    out, epilogue = kernel.output()
    conv2d_transpose(kernel.builder, geometry, x, packed, out, epilogue)
    return kernel.call()


def _apart(
    context: RuleContext, node: Node, geometry: TransposedGeometry, dilation: tuple[int, int]
) -> bool:
    """Whether each output pixel is reached by one tap only: the stride is the kernel."""
    source = context.graph.operand(node.inputs[0]).extents
    out = context.graph.operand(node.output).extents
    exact = (source.h * geometry.strides[0], source.w * geometry.strides[1]) == (out.h, out.w)
    return (
        exact
        and geometry.kernel == geometry.strides
        and geometry.padding == (0, 0)
        and dilation == (1, 1)
        and geometry.groups == 1
    )


def _phases_apart(
    context: RuleContext, node: Node, geometry: TransposedGeometry, oihw: Pack
) -> KernelCall:
    """A convolution of one tap that makes the output's pixels of all phases."""
    source = context.graph.operand(node.inputs[0]).extents
    out = context.graph.operand(node.output).extents
    grid = phase_grid(source, out, geometry.strides)
    point = ConvGeometry(kernel=(1, 1))
    work = replace(conv_work(context.graph, node, point, context.options), out=grid)
    machine = Machine.of(context.performance)
    tile = context.choose(
        node,
        "conv2d_transpose",
        local_candidates(work, context.limits),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "conv2d_transpose", half=work.half)
    x = kernel.input(node.inputs[0])
    weight = kernel.flat(
        node.inputs[1], f"phases{tile.packed_as}", lambda w: pack_local(oihw(w), *tile.packing)
    )
    y, epilogue = kernel.output()
    conv2d_local(kernel.builder, point, tile, x, weight, y, epilogue, phases=geometry.strides)
    return kernel.call()


def _as_phases(weight: np.ndarray, layout: str) -> np.ndarray:
    """Weights as `[phase * O, I, 1, 1]`, the O of each phase filled up to whole blocks."""
    four, letters = as_four_letters(weight, layout)
    hwoi = four.transpose([letters.index(letter) for letter in "HWOI"])
    kh, kw, out_channels, in_channels = hwoi.shape
    padded = np.zeros((kh * kw, blocks(out_channels) * LANES, in_channels), weight.dtype)
    padded[:, :out_channels] = hwoi.reshape(kh * kw, out_channels, in_channels)
    return padded.reshape(-1, in_channels, 1, 1)


def _pack(
    weight: np.ndarray, layout: str, geometry: TransposedGeometry, dilation: tuple[int, int]
) -> np.ndarray:
    four, letters = as_four_letters(weight, layout)
    iohw = four.transpose([letters.index(letter) for letter in "IOHW"])
    return pack_transposed(spread_taps(iohw, dilation), geometry)
