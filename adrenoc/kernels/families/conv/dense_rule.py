"""Rules for convolutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.ir.graph import Node
from adrenoc.kernels.access import PlainAccess
from adrenoc.kernels.epilogue import Finished
from adrenoc.kernels.families.conv.conv2d import conv2d
from adrenoc.kernels.families.conv.conv2d_dot_rule import dot_conv, no_dot_conv
from adrenoc.kernels.families.conv.conv2d_image import conv2d_image
from adrenoc.kernels.families.conv.conv2d_local import conv2d_local
from adrenoc.kernels.families.conv.conv_tile import score_tiles
from adrenoc.kernels.families.conv.image_rows import Normalise
from adrenoc.kernels.families.conv.local_weights import local_weights
from adrenoc.kernels.families.shared.constant_runs import has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import Route
from adrenoc.kernels.families.shared.conv_weights import pack_uniform
from adrenoc.kernels.families.shared.conv_work import conv_work
from adrenoc.kernels.families.shared.dot_products import suits_dot
from adrenoc.kernels.weights import pack_conv


def dense_conv(
    context: RuleContext,
    node: Node,
    family: str,
    geometry: ConvGeometry,
    oihw: Callable[[np.ndarray], np.ndarray],
) -> KernelCall:
    """Make the kernel of a convolution whose outputs read all input channels of their group.

    The node's first input is convolved with its second, which `oihw` transposes to OIHW."""
    weight_name = node.inputs[1]
    work = conv_work(context.graph, node, geometry, context.options)
    if suits_dot(context, node, oihw, no_dot_conv(geometry)):
        return dot_conv(context, node, family, geometry, work, oihw)
    tiles = score_tiles(work, context.limits, context.machine)
    tile = context.choose(node, family, tiles, tiles)
    kernel = context.kernel(node, family, half=work.half)
    x = kernel.input_or_prologue()
    if tile.route is Route.TEXTURE:
        kind = f"{family}{geometry.groups}"
        weight = kernel.pack_constant(
            weight_name, kind, lambda w: pack_conv(oihw(w), geometry.groups)
        )
    elif tile.route is Route.LOCAL:
        as_texels = has_texel_weights(work, context.machine)
        weight = local_weights(kernel, weight_name, family, tile, oihw, texels=as_texels)
    else:
        kind = f"{family}_uniform{tile.out_blocks}"
        weight = kernel.flat(weight_name, kind, lambda w: pack_uniform(oihw(w), tile.out_blocks))
    out, epilogue = kernel.output()
    rows, image = work.image_rows(tile.pixels), kernel.accesses[node.inputs[0]]
    if rows is not None and isinstance(image, PlainAccess):
        normalise = _normalise(kernel, image) if node.prologue else None
        conv2d_image(kernel.builder, geometry, tile, image, weight, out, epilogue, rows, normalise)
        return kernel.call()
    emit = conv2d_local if tile.route is Route.LOCAL else conv2d
    emit(kernel.builder, geometry, tile, x, weight, out, epilogue)
    return kernel.call()


def _normalise(kernel: NodeKernel, image: PlainAccess) -> Normalise:
    """Return what the prologue makes of a pixel of an image."""
    node = kernel.node
    finished = Finished(kernel.builder, node.prologue, kernel.accesses, image.spec)

    def normalise(n: Expr, row: Expr, column: Expr, texel: Expr) -> Expr:
        return finished.value(n, iconst(0), row, column, texel, {node.inputs[0]: texel})

    return normalise
