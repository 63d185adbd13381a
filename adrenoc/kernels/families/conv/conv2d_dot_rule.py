"""Rules for convolutions of bytes by the GPU's dot products."""

from __future__ import annotations

from dataclasses import replace

from adrenoc.ir.graph import Node
from adrenoc.ir.operand import WORDS
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.families.conv.conv2d_dot import conv2d_dot, pack_words
from adrenoc.kernels.families.conv.conv2d_local import WIDEST_ROW
from adrenoc.kernels.families.conv.conv_tile import score_tiles
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates, local_clocks
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, Oihw
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.dot_products import WORD_BYTES
from adrenoc.kernels.families.shared.integer_bias import split_bias


def no_dot_conv(geometry: ConvGeometry) -> str:
    """Return why a dense convolution of this geometry has no kernel of dot products, if so."""
    if geometry.groups == 1 and geometry.kernel[1] <= WIDEST_ROW:
        return ""
    return f"{geometry.groups} groups, {geometry.kernel[1]} taps a row"


def dot_conv(
    context: RuleContext,
    node: Node,
    family: str,
    geometry: ConvGeometry,
    work: ConvWork,
    oihw: Oihw,
) -> KernelCall:
    """Make the kernel of a convolution of integers that multiplies four bytes an instruction.

    The node's first input is convolved with its second, which `oihw` transposes to OIHW."""
    x_name, weight_name = node.inputs[:2]
    spec = context.graph.operand(x_name)
    blocks = spec.extents.blocks
    # A read gives sixteen channels as four words: as a float texel gives four channels.
    machine = context.machine
    cost = machine.cost.conv_dot
    words = replace(
        work,
        in_blocks=-(-blocks // WORDS),
        channels=min(blocks, WORDS),
        storage_bytes=WORD_BYTES,
        half=False,
        texel_work=cost.load_work + (cost.edge_work if geometry.kernel != (1, 1) else 0),
        words=context.limits.dot_instructions,
    )
    tile = context.choose(
        node,
        f"{family}_dot",
        local_candidates(words, context.limits, machine.cost),
        lambda tile: local_clocks(words, tile, machine),
    )
    context.byte_costs.add(
        local_clocks(words, tile, machine), score_tiles(work, context.limits, machine).least
    )
    bias = split_bias(context.graph, node, oihw)
    kernel = context.kernel(bias.node, f"{family}_dot")
    x = kernel.input(x_name)
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{x_name} does not lie in bytes")
    weight = kernel.flat(
        weight_name,
        f"{family}_words{tile.packed_as}",
        lambda w: pack_words(w, *tile.packing),
        oihw,
        "float32",
    )
    rest = bias.operand(kernel, family, spec.low, oihw)
    out, epilogue = kernel.output()
    conv2d_dot(kernel.builder, geometry, tile, x, weight, rest, out, epilogue)
    return kernel.call()
