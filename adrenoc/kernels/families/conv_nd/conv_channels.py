"""How the weights of a convolution of any rank lie by channel, transposed ones too."""

from __future__ import annotations

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.shared.channel_weights import ChannelWeights


def channel_weights(graph: Graph, node: Node) -> ChannelWeights:
    """Return the weights of a convolution, by the letters of its attributes."""
    weights = graph.tensors[node.inputs[1]]
    return ChannelWeights(
        value=weights.value,
        shape=weights.shape,
        letters=str(node.attrs["kernel_layout"]),
        axis=str(node.attrs["out_layout"] or node.attrs["data_layout"]).index("C"),
        groups=int(node.attrs["groups"]),
        transposed="transpose" in node.op,
    )


def terms_of_convolution(graph: Graph, node: Node) -> int:
    """Return the products that each result adds up; of a transposed one, without strides."""
    weights = channel_weights(graph, node)
    outputs = weights.shape[weights.letters.index("O")]
    return math.prod(weights.shape) // (outputs * (weights.groups if weights.transposed else 1))
