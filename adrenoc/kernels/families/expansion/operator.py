"""A depthwise convolution with the 1x1 one before it: made by `fuse_expansion`."""

from __future__ import annotations

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.conv.conv_tile import conv_clocks
from adrenoc.kernels.families.expansion.expansion_rule import (
    EXPANSION,
    expanding_work,
    expansion_rule,
)
from adrenoc.kernels.families.separable.joined import finish_operations
from adrenoc.kernels.families.shared.channel_sums import ChannelSums
from adrenoc.kernels.families.shared.counts import positions_of, size_of
from adrenoc.kernels.families.shared.operator import Kind, made_by_passes


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Return a weight of the first convolution counts for each wide pixel, a tap for each
    output."""
    between = node.attrs["between"]
    wide = math.prod(between.shape) // between.extents.c
    weights, taps = (size_of(graph, name) for name in node.inputs[1:3])
    return int(weights * wide + taps * positions_of(graph, node.output))


OPERATORS = (
    made_by_passes(
        EXPANSION,
        Kind.CONVOLUTION,
        expansion_rule,
        multiply_adds=_multiply_adds,
        operations=finish_operations,
        channel_sums=ChannelSums(
            convolutions=2, work=expanding_work, clocks=conv_clocks, in_float=True
        ),
    ),
)
