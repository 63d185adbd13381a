"""Rules for the three kernels of a convolution by Winograd's algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.families.conv.conv2d_local import conv2d_local
from adrenoc.kernels.families.conv.conv_tile import estimate_clocks
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates
from adrenoc.kernels.families.shared.constant_runs import declare_run, has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, transpose_to_oihw
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.families.shared.conv_work import ConvWork, conv_work
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.kernels.families.winograd.winograd import (
    Tiling,
    row_parts,
    transform_to_pixels,
    transform_to_tiles,
)
from adrenoc.kernels.weights import pack_local
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

_POINT = ConvGeometry(kernel=(1, 1))


def tiles_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that transforms the input tile by tile."""
    kernel = context.kernel(node, "winograd_tiles")
    x = kernel.input(node.inputs[0])
    tiles, _ = kernel.output()
    transform_to_tiles(
        kernel.builder, node.attrs["tiling"], node.attrs["geometry"].padding, x, tiles
    )
    return kernel.call()


def multiply_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that multiplies two matrices for each number of a tile."""
    tiling: Tiling = node.attrs["tiling"]
    x_name, weight_name = node.inputs
    one = conv_work(context.graph, node, _POINT, context.options)
    work = replace(one, weight_sets=node.attrs["tiling"].planes)
    machine = context.machine
    tiles = score_multiply_tiles(work, context.limits, machine)
    tile = context.choose(node, "winograd_multiply", tiles, tiles)
    kernel = context.kernel(node, "winograd_multiply", half=work.half)
    x = kernel.input(x_name)
    transform, layout = tiling.transform, str(node.attrs["kernel_layout"])
    weight = declare_run(
        kernel,
        weight_name,
        f"winograd{transform.outputs}_{tile.packed_as}",
        partial(_pack, tile=tile),
        partial(transpose_to_oihw, layout=layout),
        transform=transform.weight_transform,
        texels=has_texel_weights(work, machine),
    )
    out, epilogue = kernel.output()
    conv2d_local(kernel.builder, _POINT, tile, x, weight, out, epilogue, weights_by_row=True)
    return kernel.call()


def pixels_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that makes the output's pixels of its tiles, with the convolution's
    epilogue."""
    kernel = context.kernel(node, "winograd_pixels")
    planes = kernel.input(node.inputs[0])
    out, epilogue = kernel.output()
    transform_to_pixels(kernel.builder, node.attrs["tiling"], planes, out, epilogue)
    return kernel.call()


def multiply_work(work: ConvWork, tiling: Tiling) -> ConvWork:
    """Return the multiplication of a 3x3 convolution, as a convolution of one tap."""
    out = Extents(1, work.out.c, tiling.planes, tiling.tiles)
    return replace(work, geometry=_POINT, out=out, weight_sets=tiling.planes)


@lru_cache(maxsize=MOST_KNOWN)
def score_multiply_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Scored[ConvTile]:
    """Return the tiles of the multiplication, each with its estimate."""
    return Scored(
        lambda: multiply_candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )


def multiply_candidates(work: ConvWork, limits: Limits, costs: Cost) -> Iterator[ConvTile]:
    """Tiles whose work-groups keep to one row, for each row has its own weights."""
    for tile in local_candidates(work, limits, costs):
        if tile.work_group is not None and tile.work_group[1] == 1:
            yield tile


def transform_clocks(work: ConvWork, tiling: Tiling, machine: Machine, *, back: bool) -> float:
    """Clocks of the transform to tiles, or of the one back; without memory's."""
    cost = machine.cost.winograd_transform
    side, step = tiling.transform.side, tiling.transform.outputs
    blocks, rows, shares = work.in_blocks, side, len(row_parts(side))
    if back:
        blocks, rows, shares = work.out.blocks, step, 1
    texels, stores, live = side * side, rows * rows / shares, rows * side / shares
    # Each row of a matrix adds about half of a column; coordinates come with each access.
    adds = LANES * (live + stores) * side / 2
    slots = adds + cost.texel_slots * (texels + stores)
    lanes = machine.lanes * (machine.half_rate if work.half else 1.0)
    busiest = max(
        machine.wave * (adds / lanes + cost.texel_alu * (texels + stores) / machine.lanes),
        machine.wave * (texels + stores) / machine.texels_of(work.storage_bytes),
    )
    waves = math.ceil(tiling.tiles * blocks * shares / machine.wave)
    registers = (live + side) * (0.5 if work.half else 1.0) + cost.registers
    serial = machine.slots_a_wave * slots + side * machine.cost.pipes.texture_latency_clocks
    return machine.clocks(waves, busiest, serial, machine.resident_waves(registers))


def _pack(transformed: np.ndarray, tile: ConvTile) -> np.ndarray:
    """Weights `[O, I, side, side]`, those of each number of a tile as one set."""
    side = transformed.shape[-1]
    sets = [
        pack_local(transformed[:, :, i : i + 1, j : j + 1], *tile.packing)
        for i in range(side)
        for j in range(side)
    ]
    return np.concatenate(sets)
