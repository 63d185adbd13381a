"""Rules for convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from adrenoc.graph import Body, Graph, Node
from adrenoc.kernels.access import PlainAccess
from adrenoc.kernels.body_cost import body_instructions, index_instructions
from adrenoc.kernels.conv2d import ConvGeometry, Route, conv2d
from adrenoc.kernels.conv2d_image import conv2d_image
from adrenoc.kernels.conv2d_local import conv2d_local
from adrenoc.kernels.conv_weights import pack_uniform
from adrenoc.kernels.epilogue import Finished
from adrenoc.kernels.image_rows import Normalise
from adrenoc.kernels.weights import group_window, pack_conv, pack_local
from adrenoc.layout import LANES
from adrenoc.operand import Memory
from adrenoc.options import CompileOptions
from adrenoc.rules.context import KernelCall, NodeKernel, RuleContext
from adrenoc.rules.conv2d_dot import dot_conv, no_dot_conv, suits_dot
from adrenoc.rules.conv_tile import scored
from adrenoc.rules.conv_work import ConvWork
from adrenoc.rules.depthwise import blocks_held, depthwise_rule
from adrenoc.rules.gemv import gemv_rule, suits_gemv
from adrenoc.rules.machine import Machine
from adrenoc.tvmapi import Expr, bits_of, iconst


def conv2d_rule(context: RuleContext, node: Node) -> KernelCall:
    """A convolution, dense, grouped or depthwise, of an activation by constant weights."""
    kernel_layout = str(node.attrs["kernel_layout"])
    geometry = conv_geometry(context.graph, node)
    oihw = partial(as_oihw, layout=kernel_layout)
    held = blocks_held(geometry.kernel[0] * geometry.kernel[1], context.limits)
    if is_depthwise(context.graph, node) and held:
        work = conv_work(context.graph, node, geometry, context.options)
        return depthwise_rule(context, node, work, oihw)
    vectors = geometry == ConvGeometry(kernel=(1, 1))
    if vectors and suits_gemv(context.graph.operand(node.output).extents):
        return gemv_rule(context, node, "gemv", oihw)
    return dense_conv(context, node, "conv2d", geometry, oihw)


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether each channel of a convolution's output is made of one channel of its own."""
    out_channels, per_in, _, _ = _extents(
        graph.tensors[node.inputs[1]].shape, str(node.attrs["kernel_layout"])
    )
    in_channels = graph.operand(node.inputs[0]).extents.c
    return int(node.attrs["groups"]) == in_channels == out_channels and per_in == 1


def dense_conv(
    context: RuleContext,
    node: Node,
    family: str,
    geometry: ConvGeometry,
    oihw: Callable[[np.ndarray], np.ndarray],
) -> KernelCall:
    """A convolution of the node's first input by its second, which `oihw` turns to OIHW."""
    weight_name = node.inputs[1]
    work = conv_work(context.graph, node, geometry, context.options)
    if suits_dot(context, node, oihw, no_dot_conv(geometry)):
        return dot_conv(context, node, family, geometry, work, oihw)
    machine = Machine.of(context.performance)
    tiles = scored(work, context.limits, machine)
    tile = context.choose(node, family, tiles, tiles)
    kernel = context.kernel(node, family, half=work.half)
    x = kernel.folded_input()
    if tile.route is Route.TEXTURE:
        kind = f"{family}{geometry.groups}"
        weight = kernel.packed(weight_name, kind, lambda w: pack_conv(oihw(w), geometry.groups))
    elif tile.route is Route.LOCAL:
        kind = f"{family}_local{tile.packed_as}"
        weight = kernel.flat(weight_name, kind, lambda w: pack_local(oihw(w), *tile.packing))
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
    """What the prologue makes of a pixel of an image."""
    node = kernel.node
    finished = Finished(kernel.builder, node.prologue, kernel.accesses, image.spec)

    def made(n: Expr, row: Expr, column: Expr, texel: Expr) -> Expr:
        return finished.value(n, iconst(0), row, column, texel, {node.inputs[0]: texel})

    return made


def conv_work(
    graph: Graph, node: Node, geometry: ConvGeometry, options: CompileOptions
) -> ConvWork:
    """What a cost model needs of a convolution."""
    out = graph.operand(node.output).extents
    source = graph.operand(node.inputs[0])
    in_channels = source.extents.c
    window, _ = group_window(out.c, in_channels, geometry.groups)
    return ConvWork(
        geometry=geometry,
        out=out,
        in_blocks=window,
        channels=min(in_channels, LANES) if window == 1 else LANES,
        storage_bytes=bits_of(options.storage_dtype) // 8,
        half=options.compute_dtype == "float16",
        texel_work=_texel_work(node.prologue) if node.prologue else 0,
        block_texels=len(node.prologue.sources) - 1 if node.prologue else 0,
        image=source if source.memory is Memory.PLAIN else None,
    )


def _texel_work(prologue: Body) -> int:
    """Instructions that make a texel of what is read."""
    return LANES * body_instructions(prologue) + index_instructions(prologue)


def conv_geometry(graph: Graph, node: Node) -> ConvGeometry:
    """The geometry of a two-dimensional convolution."""
    shape = graph.tensors[node.inputs[1]].shape
    _, _, kh, kw = _extents(shape, str(node.attrs["kernel_layout"]))
    return geometry_of(node.attrs, (kh, kw))


def geometry_of(attrs: Mapping[str, Any], kernel: tuple[int, int]) -> ConvGeometry:
    """The geometry that Relax's attributes state."""
    top, left = attrs["padding"][0], attrs["padding"][1]
    return ConvGeometry(
        kernel=kernel,
        strides=tuple(attrs["strides"]),
        padding=(top, left),
        dilation=tuple(attrs["dilation"]),
        groups=int(attrs["groups"]),
    )


def _extents(shape: tuple[int, ...], layout: str) -> tuple[int, int, int, int]:
    by_letter = dict(zip(layout, shape, strict=True))
    return by_letter["O"], by_letter["I"], by_letter.get("H", 1), by_letter["W"]


def as_four_letters(weight: np.ndarray, layout: str) -> tuple[np.ndarray, str]:
    """Weights of a one-dimensional convolution (`OIW`) as those of one row (`OIHW`)."""
    if "H" in layout:
        return weight, layout
    axis = layout.index("W")
    return np.expand_dims(weight, axis), f"{layout[:axis]}H{layout[axis:]}"


def as_oihw(weight: np.ndarray, layout: str) -> np.ndarray:
    """Weights of any layout as OIHW."""
    four, letters = as_four_letters(weight, layout)
    return four.transpose([letters.index(letter) for letter in "OIHW"])
