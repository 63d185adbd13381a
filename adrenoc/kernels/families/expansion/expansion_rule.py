"""The rule of a 1x1 convolution and the depthwise convolution that reads it, as one kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.body_cost import body_instructions
from adrenoc.kernels.families.depthwise.depthwise import pack_taps
from adrenoc.kernels.families.expansion.expansion import expansion
from adrenoc.kernels.families.expansion.expansion_tile import (
    ExpansionWork,
    brings_texels,
    score_tiles,
)
from adrenoc.kernels.families.separable.joined import (
    depthwise_geometry,
    finish_texels,
    finish_work,
    prepare_first_finish,
)
from adrenoc.kernels.families.shared.constant_runs import declare_run
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import transpose_to_oihw
from adrenoc.kernels.families.shared.conv_work import ConvWork, pointwise_work
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.weights import pack_local

EXPANSION = "expand_depthwise_conv2d"
"""The operator's name in the planning graph."""


def expansion_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return a 1x1 convolution of the first input by the second, then a depthwise one by the third.

    Its attributes are those that `joined` describes.
    """
    work = expansion_work(context.graph, node, context.options)
    tiles = score_tiles(work, context.limits, context.machine)
    tile = context.choose(node, EXPANSION, tiles, tiles)
    kernel = context.kernel(node, EXPANSION, half=work.half)
    x = kernel.input(node.inputs[0])
    oihw = partial(transpose_to_oihw, layout=str(node.attrs["pointwise_layout"]))
    texels = brings_texels(work, context.machine)
    weight = declare_run(
        kernel,
        node.inputs[1],
        f"expansion{tile.packing}",
        lambda w: pack_local(oihw(w), *tile.packing),
        texels=texels,
    )
    taps = declare_run(
        kernel,
        node.inputs[2],
        f"depthwise{tile.group_blocks}",
        lambda w: pack_taps(
            transpose_to_oihw(w, str(node.attrs["kernel_layout"])), tile.group_blocks
        ),
        dtype=ACCUMULATOR,
        texels=texels,
    )
    finished, of_channels = prepare_first_finish(kernel)
    out, epilogue = kernel.output()
    expansion(
        kernel.builder,
        work.depthwise,
        tile,
        work.region(tile),
        x,
        weight,
        taps,
        finished,
        of_channels,
        out,
        epilogue,
    )
    return kernel.call()


def expansion_work(graph: Graph, node: Node, options: CompileOptions) -> ExpansionWork:
    """Return what a cost model needs of such a node."""
    source = graph.operand(node.inputs[0])
    pointwise = pointwise_work(graph, node, options)
    return ExpansionWork(
        depthwise=depthwise_geometry(graph, node, node.inputs[2]),
        source=source.extents,
        out=graph.operand(node.output).extents,
        storage_bytes=bytes_of(options.storage_dtype),
        half=pointwise.half,
        finish_work=finish_work(node),
        finish_texels=finish_texels(node),
        epilogue_work=LANES * body_instructions(node.epilogue) if node.epilogue is not None else 0,
        textures=pointwise.textures and pointwise.image is None,
    )


def expanding_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    """Return the first part of such a node by itself."""
    return replace(pointwise_work(graph, node, options), out=node.attrs["between"].extents)
