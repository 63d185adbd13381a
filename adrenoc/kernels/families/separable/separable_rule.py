"""The rule of a depthwise convolution and the 1x1 convolution that reads it, as one kernel."""

from __future__ import annotations

from functools import partial

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.local_weights import local_weights
from adrenoc.kernels.families.separable.joined import (
    depthwise_geometry,
    finish_texels,
    finish_work,
    prepare_first_finish,
)
from adrenoc.kernels.families.separable.separable import pack_k_steps, separable
from adrenoc.kernels.families.separable.separable_tile import SeparableWork, score_tiles
from adrenoc.kernels.families.shared.constant_runs import declare_run, has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import transpose_to_oihw
from adrenoc.kernels.families.shared.conv_work import pointwise_work
from adrenoc.kernels.team import ACCUMULATOR

SEPARABLE = "separable_conv2d"
"""The operator's name in the planning graph."""


def separable_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return a depthwise convolution of the first input by the second, then a 1x1 one by the third.

    Its attributes are those that `joined` describes.
    """
    work = separable_work(context.graph, node, context.options)
    tiles = score_tiles(work, context.limits, context.machine)
    tile = context.choose(node, SEPARABLE, tiles, tiles)
    kernel = context.kernel(node, SEPARABLE, half=work.pointwise.half)
    x = kernel.input(node.inputs[0])
    texels = has_texel_weights(work.pointwise, context.machine)
    taps = declare_run(
        kernel,
        node.inputs[1],
        f"separable{tile.k_step}",
        lambda w: pack_k_steps(transpose_to_oihw(w, str(node.attrs["kernel_layout"])), tile.k_step),
        dtype=ACCUMULATOR,
        texels=texels,
    )
    oihw = partial(transpose_to_oihw, layout=str(node.attrs["pointwise_layout"]))
    weight = local_weights(kernel, node.inputs[2], "conv2d", tile, oihw, texels=texels)
    finished, of_channels = prepare_first_finish(kernel)
    out, epilogue = kernel.output()
    separable(
        kernel.builder, work.depthwise, tile, x, taps, weight, finished, of_channels, out, epilogue
    )
    return kernel.call()


def separable_work(graph: Graph, node: Node, options: CompileOptions) -> SeparableWork:
    """Return what a cost model needs of such a node."""
    return SeparableWork(
        depthwise=depthwise_geometry(graph, node, node.inputs[1]),
        source=graph.operand(node.inputs[0]).extents,
        pointwise=pointwise_work(graph, node, options),
        finish_work=finish_work(node),
        finish_texels=finish_texels(node),
    )
