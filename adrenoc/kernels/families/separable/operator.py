"""A 1x1 convolution with the depthwise one before it: made by `fuse_separable`."""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.conv.conv_tile import conv_clocks
from adrenoc.kernels.families.separable.joined import finish_operations
from adrenoc.kernels.families.separable.separable_rule import SEPARABLE, separable_rule
from adrenoc.kernels.families.shared.channel_sums import ChannelSums
from adrenoc.kernels.families.shared.conv_work import pointwise_work
from adrenoc.kernels.families.shared.counts import positions_of, size_of
from adrenoc.kernels.families.shared.operator import Kind, made_by_passes


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Each weight of both convolutions is used once for each output position."""
    weights = sum(size_of(graph, name) for name in node.inputs[1:3])
    return weights * positions_of(graph, node.output)


OPERATORS = (
    made_by_passes(
        SEPARABLE,
        Kind.CONVOLUTION,
        separable_rule,
        multiply_adds=_multiply_adds,
        operations=finish_operations,
        channel_sums=ChannelSums(
            convolutions=2, work=pointwise_work, clocks=conv_clocks, in_float=True
        ),
    ),
)
