"""Whether a network is so deep that errors of its first sums reach its outputs."""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.channel_sums import ChannelSums

DEEP = 40
"""Convolutions of a network whose errors add up to more than the bar of 1e-2 of the range."""


def is_deep(graph: Graph) -> bool:
    """Return whether so many convolutions follow each other that the errors of the first matter."""
    found = (channel_sums_of(node) for node in graph.nodes)
    return sum(sums.convolutions for sums in found if sums is not None) >= DEEP


def channel_sums_of(node: Node) -> ChannelSums | None:
    """Return what a node adds up over channels; None of an operator that does not."""
    operator = OPERATORS.get(node.op)
    return None if operator is None else operator.channel_sums
