"""One kernel for a 1x1 convolution and the depthwise convolution that reads it.

What an inverted residual block widens its input to is the largest tensor of the block.  It need
not exist if the depthwise convolution that reads it computes it (`adrenoc/families/expansion/`).

Before -> after:
    e = conv2d[conv2d add clip](x, w1, b1); y = conv2d[conv2d add clip](e, w2, b2)
    y = expand_depthwise_conv2d[...](x, w1, w2, b1, b2), finish clip(r + b1)
"""

from __future__ import annotations

from adrenoc.decision import DecisionLog
from adrenoc.families.expansion.expansion_rule import EXPANSION, expansion_work
from adrenoc.families.expansion.expansion_tile import scored
from adrenoc.families.matmul.gemv_rule import suits_gemv
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.analyse.image_clash import image_clash
from adrenoc.passes.fuse.depthwise_pairs import (
    Model,
    Pair,
    apart_clocks,
    is_depthwise_conv,
    is_pointwise,
    join,
    refusal,
)


def expansion_pair(graph: Graph, node: Node, model: Model, log: DecisionLog) -> Pair | None:
    """A 1x1 convolution with the depthwise one that reads it; None if they cannot join."""
    readers = graph.consumers[node.output]
    if not is_pointwise(graph, node) or not any(is_depthwise_conv(graph, r) for r in readers):
        return None
    reason = refusal(graph, node, readers, is_depthwise_conv)
    if reason is None and suits_gemv(graph.operand(node.output).extents):
        reason = "it makes few vectors"
    if reason is not None:
        log.add(node.name, "a kernel before its depthwise convolution", reason)
        return None
    (reader,) = readers
    joined = join(graph, EXPANSION, node, reader, pointwise=node)
    clash = image_clash(graph, joined)
    if clash is not None:
        log.add(node.name, "a kernel before its depthwise convolution", clash)
        return None
    costs = model.of(node)
    work = expansion_work(graph, joined, costs.options)
    return Pair(
        first=node,
        second=reader,
        joined=joined,
        together=scored(work, costs.limits, costs.machine).least,
        apart=apart_clocks(graph, reader, node, model),
    )
