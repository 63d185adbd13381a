"""3x3 convolutions by Winograd's algorithm, in three kernels or one: made by `split_winograd`."""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.conv_tile import conv_clocks
from adrenoc.kernels.families.shared.channel_sums import ChannelSums
from adrenoc.kernels.families.shared.conv_work import ConvWork, conv_work, pointwise_work
from adrenoc.kernels.families.shared.counts import count_per_input_element, size_of
from adrenoc.kernels.families.shared.operator import Kind, Numbers, made_by_passes
from adrenoc.kernels.families.winograd.names import MULTIPLY, PIXELS, TILES, WHOLE
from adrenoc.kernels.families.winograd.winograd_conv_rule import whole_clocks, winograd_conv_rule
from adrenoc.kernels.families.winograd.winograd_rule import multiply_rule, pixels_rule, tiles_rule


def _count_plane_products(graph: Graph, node: Node) -> int:
    """Return a matrix product for each plane of the tiles: [in, planes, tiles] to [out, planes,
    tiles]."""
    return size_of(graph, node.output) * graph.tensors[node.inputs[0]].shape[0]


def _count_tile_products(graph: Graph, node: Node) -> int:
    """Return the same of a convolution whose tiles no memory holds."""
    tiling = node.attrs["tiling"]
    source, out = graph.operand(node.inputs[0]).extents.c, graph.operand(node.output).extents.c
    return int(source * out * tiling.planes * tiling.tiles)


def _channel_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    return conv_work(graph, node, node.attrs["geometry"], options)


OPERATORS = (
    made_by_passes(
        TILES,
        Kind.TRANSFORM,
        tiles_rule,
        numbers=Numbers.COMPUTED,
        multiply_adds=None,
        operations=count_per_input_element(1),
    ),
    made_by_passes(
        MULTIPLY,
        Kind.PRODUCT,
        multiply_rule,
        multiply_adds=_count_plane_products,
        channel_sums=ChannelSums(
            convolutions=1, work=pointwise_work, clocks=conv_clocks, in_float=False
        ),
    ),
    made_by_passes(
        PIXELS,
        Kind.TRANSFORM,
        pixels_rule,
        numbers=Numbers.COMPUTED,
        multiply_adds=None,
        operations=count_per_input_element(1),
    ),
    made_by_passes(
        WHOLE,
        Kind.CONVOLUTION,
        winograd_conv_rule,
        multiply_adds=_count_tile_products,
        channel_sums=ChannelSums(
            convolutions=1, work=_channel_work, clocks=whole_clocks, in_float=True
        ),
    ),
)
