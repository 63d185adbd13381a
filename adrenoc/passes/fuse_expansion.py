"""One kernel for a 1x1 convolution and the depthwise convolution that reads it.

What an inverted residual block widens its input to is the largest tensor of the block.  It need
not exist if the depthwise convolution that reads it computes it (`adrenoc/kernels/expansion.py`).

Before -> after:
    e = conv2d[conv2d add clip](x, w1, b1); y = conv2d[conv2d add clip](e, w2, b2)
    y = expand_depthwise_conv2d[...](x, w1, w2, b1, b2), finish clip(r + b1)
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.decision import DecisionLog
from adrenoc.gpu import Limits
from adrenoc.graph import Graph, Node
from adrenoc.passes.depthwise_pairs import (
    Model,
    Pair,
    apart_clocks,
    is_depthwise_conv,
    is_pointwise,
    refusal,
)
from adrenoc.rules.expansion import EXPANSION, expansion_work
from adrenoc.rules.expansion_tile import ExpansionWork, scored
from adrenoc.rules.gemv import suits_gemv
from adrenoc.rules.machine import Machine
from adrenoc.rules.separable import FINISH


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
    joined = _joined(graph, node, reader)
    work = expansion_work(graph, joined, model.options_of(node))
    return Pair(
        first=node,
        second=reader,
        joined=joined,
        together=_together(work, model.limits, model.machine),
        apart=apart_clocks(graph, reader, node, model),
    )


def _joined(graph: Graph, node: Node, reader: Node) -> Node:
    """One node for both."""
    source, weights, *others = node.inputs
    _, taps, *rest = reader.inputs
    attrs = {
        **reader.attrs,
        "pointwise_layout": node.attrs["kernel_layout"],
        "between": graph.operand(node.output),
    }
    parts = {} if node.epilogue is None else {FINISH: node.epilogue}
    return replace(
        reader,
        op=EXPANSION,
        inputs=(source, weights, *dict.fromkeys((taps, *others, *rest))),
        attrs=attrs,
        parts=parts,
        fused=(*node.operators, *reader.operators),
        also=(node.name,),
    )


def _together(work: ExpansionWork, limits: Limits, machine: Machine) -> float:
    """Clocks of one kernel; infinite if none fits the target."""
    return scored(work, limits, machine).least
