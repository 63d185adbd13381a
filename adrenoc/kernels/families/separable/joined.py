"""What rules of two joined products, as a depthwise and a 1x1 convolution, share.

Attributes of that pair are those of the depthwise convolution, with `pointwise_layout`, the order
of the other weights, and `between`, the tensor between the two, which no memory holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.body_cost import body_instructions, body_operations
from adrenoc.kernels.computed import is_of_channels
from adrenoc.kernels.epilogue import Finished
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, geometry_of

FINISH = "finish"
"""The part of a joined node that is applied to the sums of its first convolution."""


def join_products(node: Node, reader: Node, op: str, attrs: Mapping[str, Any]) -> Node:
    """Return node `op` in the place of `reader`, which computes `node`, that it alone reads, too.

    Inputs are what `node` reads, its weights, those of `reader`, and what else both read.
    """
    source, weights, *others = node.inputs
    _, more_weights, *rest = reader.inputs
    return replace(
        reader,
        op=op,
        inputs=(source, weights, *dict.fromkeys((more_weights, *others, *rest))),
        attrs=attrs,
        parts={} if node.epilogue is None else {FINISH: node.epilogue},
        fused=(*node.operators, *reader.operators),
        also=(node.name,),
    )


def prepare_first_finish(kernel: NodeKernel) -> tuple[Finished, Mapping[str, Access]]:
    """Prepare what is applied to the sums of the first of two joined convolutions.

    Returns the epilogue of that convolution, and the constants of one number a channel that it
    reads, by name, which a kernel may load once."""
    finish, between = kernel.node.parts.get(FINISH), kernel.node.attrs["between"]
    of_channels = {}
    for buffer, name in finish.sources.items() if finish is not None else ():
        if name != Node.RESULT:
            access = kernel.input(name)
            if finish is not None and is_of_channels(finish, buffer, access, between):
                of_channels[name] = access
    return Finished(kernel.builder, finish, kernel.accesses, between), of_channels


def finish_work(node: Node) -> int:
    """Scalar instructions that make four elements of the sums of the first convolution."""
    finish = node.parts.get(FINISH)
    return LANES * body_instructions(finish) if finish is not None else 0


def finish_texels(node: Node) -> int:
    """Texels that those instructions read of each block of channels, beside the sums."""
    finish = node.parts.get(FINISH)
    return sum(name != Node.RESULT for name in finish.sources.values()) if finish else 0


def finish_operations(_graph: Graph, node: Node) -> int:
    """Operations of what is applied to the sums of the first convolution."""
    finish = node.parts.get(FINISH)
    if finish is None:
        return 0
    return body_operations(finish) * math.prod(node.attrs["between"].shape)


def depthwise_geometry(graph: Graph, node: Node, taps: str) -> ConvGeometry:
    """Return the geometry of the depthwise part, whose taps are the tensor of that name."""
    letters = str(node.attrs["kernel_layout"])
    by_letter = dict(zip(letters, graph.tensors[taps].shape, strict=True))
    return geometry_of(node.attrs, (by_letter["H"], by_letter["W"]))
