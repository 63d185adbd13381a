"""Rules for transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.conv2d_local import WIDEST_ROW, conv2d_local
from adrenoc.kernels.families.conv.conv_tile import estimate_clocks
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates
from adrenoc.kernels.families.conv.local_weights import local_weights
from adrenoc.kernels.families.conv.output_phases import Phases
from adrenoc.kernels.families.conv_transpose.conv2d_transpose import (
    TransposedGeometry,
    conv2d_transpose,
    pack_transposed,
    spread_taps,
)
from adrenoc.kernels.families.shared.constant_runs import has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, Pack, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, add_row_axis
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.families.shared.conv_work import ConvWork, conv_work
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.weights import blocks
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


def conv2d_transpose_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a transposed convolution of an activation by constant weights, of rows and
    columns."""
    x_name, weight_name = node.inputs[:2]
    layout = str(node.attrs["kernel_layout"])
    dilation = (int(node.attrs["dilation"][0]), int(node.attrs["dilation"][1]))
    geometry = transposed_geometry(context.graph, node)
    phases = phases_of(geometry)
    by_phases = geometry.groups == 1 and dilation == (1, 1) and geometry.taps[1] <= WIDEST_ROW
    # Those tiles share their weights through local memory.
    if by_phases and context.limits.local_mem_bytes:
        return _convolve_by_phases(
            context, node, phases, partial(_split_into_phases, layout=layout, phases=phases)
        )
    kernel = context.kernel(node, "conv2d_transpose")
    x = kernel.input(x_name)
    pack = partial(_pack, layout=layout, geometry=geometry, dilation=dilation)
    steps = "x".join(map(str, (*geometry.strides, *dilation)))
    packed = kernel.pack_constant(weight_name, f"transposed{geometry.groups}_{steps}", pack)
    out, epilogue = kernel.output()
    conv2d_transpose(kernel.builder, geometry, x, packed, out, epilogue)
    return kernel.call()


def transposed_geometry(graph: Graph, node: Node) -> TransposedGeometry:
    """Return the geometry that Relax's attributes state."""
    shape, layout = graph.tensors[node.inputs[1]].shape, str(node.attrs["kernel_layout"])
    by_letter = dict(zip(layout, shape, strict=True))
    taps, dilation = (by_letter.get("H", 1), by_letter["W"]), node.attrs["dilation"]
    return TransposedGeometry(
        kernel=((taps[0] - 1) * int(dilation[0]) + 1, (taps[1] - 1) * int(dilation[1]) + 1),
        strides=tuple(node.attrs["strides"]),
        padding=(node.attrs["padding"][0], node.attrs["padding"][1]),
        groups=int(node.attrs["groups"]),
    )


def phases_of(geometry: TransposedGeometry) -> Phases:
    """Return the phases of a transposed convolution."""
    return Phases(strides=geometry.strides, padding=geometry.padding, taps=geometry.taps)


def least_phase_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Clocks of a transposed convolution of one group in its best tile, if there is any."""
    phases = phases_of(transposed_geometry(graph, node))
    work, of_phase = _work(graph, node, phases, costs.options)
    tiles = phase_candidates(work, phases, of_phase, costs.limits, costs.machine.cost)
    return min((estimate_clocks(work, tile, costs.machine) for tile in tiles), default=math.inf)


def _work(
    graph: Graph, node: Node, phases: Phases, options: CompileOptions
) -> tuple[ConvWork, int]:
    """Return the convolution that makes all phases, and how many output blocks one of them has."""
    out = graph.operand(node.output).extents
    work = conv_work(graph, node, ConvGeometry(kernel=phases.taps), options)
    return replace(work, out=phases.grid(out)), out.blocks


def phase_candidates(
    work: ConvWork, phases: Phases, of_phase: int, limits: Limits, costs: Cost
) -> Iterator[ConvTile]:
    """Yield the tiles that suit the extents, whose threads begin to read at one place."""
    apart = not (phases.alike(0) and phases.alike(1))
    for tile in local_candidates(work, limits, costs):
        if not apart or of_phase % tile.out_blocks == 0:
            yield tile


def _convolve_by_phases(context: RuleContext, node: Node, phases: Phases, oihw: Pack) -> KernelCall:
    """Return a convolution that makes the output's pixels of all phases."""
    work, of_phase = _work(context.graph, node, phases, context.options)
    machine = context.machine
    tile = context.choose(
        node,
        "conv2d_transpose",
        phase_candidates(work, phases, of_phase, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "conv2d_transpose", half=work.half)
    x = kernel.input(node.inputs[0])
    steps = "x".join(map(str, (*phases.strides, *phases.padding)))
    as_texels = has_texel_weights(work, machine)
    kind, name = f"phases{steps}", node.inputs[1]
    weight = local_weights(kernel, name, kind, tile, oihw, texels=as_texels)
    y, epilogue = kernel.output()
    point = work.geometry
    conv2d_local(kernel.builder, point, tile, x, weight, y, epilogue, phases=phases)
    return kernel.call()


def _split_into_phases(weight: np.ndarray, layout: str, phases: Phases) -> np.ndarray:
    """Weights as `[phase * O, I, TH, TW]`, the O of each phase filled up to whole blocks."""
    four, letters = add_row_axis(weight, layout)
    oihw = four.transpose([letters.index(letter) for letter in "OIHW"])
    out_channels, in_channels, kh, kw = oihw.shape
    (sh, sw), (th, tw) = phases.strides, phases.taps
    filled = np.zeros((blocks(out_channels) * LANES, in_channels, th * sh, tw * sw), weight.dtype)
    filled[:out_channels, :, :kh, :kw] = oihw
    # Input rows and columns go forward, the taps that they are multiplied by go back.
    parts = [
        filled[:, :, phases.first_tap(0, y) :: sh, phases.first_tap(1, x) :: sw][:, :, ::-1, ::-1]
        for y in range(sh)
        for x in range(sw)
    ]
    return np.concatenate(parts)


def _pack(
    weight: np.ndarray, layout: str, geometry: TransposedGeometry, dilation: tuple[int, int]
) -> np.ndarray:
    four, letters = add_row_axis(weight, layout)
    iohw = four.transpose([letters.index(letter) for letter in "IOHW"])
    return pack_transposed(spread_taps(iohw, dilation), geometry)
