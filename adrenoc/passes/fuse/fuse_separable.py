"""One kernel for a depthwise convolution and the 1x1 convolution after it, where that is faster.

A depthwise convolution waits for memory and writes as much as it reads.  What it writes need not
exist if the 1x1 convolution that reads it computes it (`adrenoc/families/separable/separable.py`).

Before -> after:
    d = conv2d[conv2d add clip](x, w1, b1); y = conv2d[conv2d add](d, w2, b2)
    y = separable_conv2d[conv2d add clip conv2d add](x, w1, w2, b1, b2), finish clip(r + b1)
"""

from __future__ import annotations

from adrenoc.decision import DecisionLog
from adrenoc.families.matmul.gemv_rule import suits_gemv
from adrenoc.families.separable.separable_rule import SEPARABLE, separable_work
from adrenoc.families.separable.separable_tile import scored
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


def separable_pair(graph: Graph, node: Node, model: Model, log: DecisionLog) -> Pair | None:
    """A depthwise convolution with the 1x1 convolution that reads it; None if they cannot join."""
    readers = graph.consumers[node.output]
    if not is_depthwise_conv(graph, node) or not any(is_pointwise(graph, r) for r in readers):
        return None
    reason = refusal(graph, node, readers, is_pointwise)
    if reason is None and suits_gemv(graph.operand(readers[0].output).extents):
        reason = f"{readers[0].name} makes few vectors, each thread of which reads all"
    if reason is not None:
        log.add(node.name, "a kernel before its 1x1 convolution", reason)
        return None
    (reader,) = readers
    joined = join(graph, SEPARABLE, node, reader, pointwise=reader)
    clash = image_clash(graph, joined)
    if clash is not None:
        log.add(node.name, "a kernel before its 1x1 convolution", clash)
        return None
    costs = model.of(reader)
    work = separable_work(graph, joined, costs.options)
    return Pair(
        first=node,
        second=reader,
        joined=joined,
        together=scored(work, costs.limits, costs.machine).least,
        apart=apart_clocks(graph, node, reader, model),
    )
