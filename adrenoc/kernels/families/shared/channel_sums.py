"""What the sums over channels of a convolution cost, in half arithmetic and in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.cost_model import CostModel


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelSums:
    """An operator that adds up channels with weights, as a cost model sees that part of it."""

    convolutions: int
    """How many convolutions of a network it computes."""
    work: Callable[[Graph, Node, CompileOptions], ConvWork | None]
    """None of a node that adds up no channels, as depthwise convolutions do not."""
    clocks: Callable[[Node, ConvWork, CostModel], float]
    """The least estimate of such work, in clocks."""
    in_float: bool
    """Whether its sums can be in float32; not those whose terms lie in memory as halves."""
