"""One kernel for a depthwise convolution and the 1x1 convolution after it, where that is faster.

A depthwise convolution waits for memory and writes as much as it reads.  What it writes need not
exist if the 1x1 convolution that reads it computes it
(`adrenoc/kernels/families/separable/separable.py`).

Before -> after:
    d = conv2d[conv2d add clip](x, w1, b1); y = conv2d[conv2d add](d, w2, b2)
    y = separable_conv2d[conv2d add clip conv2d add](x, w1, w2, b1, b2), finish clip(r + b1)
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.separable.separable_rule import SEPARABLE, separable_work
from adrenoc.kernels.families.separable.separable_tile import score_tiles
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.passes.fuse.depthwise_pairs import PairForm


def _clocks(graph: Graph, joined: Node, costs: CostModel) -> float:
    work = separable_work(graph, joined, costs.options)
    return score_tiles(work, costs.limits, costs.machine).least


SEPARABLE_PAIR = PairForm(
    op=SEPARABLE,
    pointwise_first=False,
    apart="a kernel before its 1x1 convolution",
    few="{name} makes few vectors, each thread of which reads all",
    clocks=_clocks,
)
