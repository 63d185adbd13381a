"""One kernel for a 1x1 convolution and the depthwise convolution that reads it.

What an inverted residual block widens its input to is the largest tensor of the block.  It need not
exist if the depthwise convolution that reads it computes it
(`adrenoc/kernels/families/expansion/`).

Before -> after:
    e = conv2d[conv2d add clip](x, w1, b1); y = conv2d[conv2d add clip](e, w2, b2)
    y = expand_depthwise_conv2d[...](x, w1, w2, b1, b2), finish clip(r + b1)
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.expansion.expansion_rule import EXPANSION, expansion_work
from adrenoc.kernels.families.expansion.expansion_tile import score_tiles
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.passes.fuse.depthwise_pairs import PairForm


def _clocks(graph: Graph, joined: Node, costs: CostModel) -> float:
    work = expansion_work(graph, joined, costs.options)
    return score_tiles(work, costs.limits, costs.machine).least


EXPANSION_PAIR = PairForm(
    op=EXPANSION,
    pointwise_first=True,
    apart="a kernel before its depthwise convolution",
    few="it makes few vectors",
    clocks=_clocks,
)
