"""Where the batch lies in a tensor, and how operators follow it.

An operator follows the batch if element i of it in the result is made of elements i of its
operands, and of no others; else its function gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adrenoc.ir.graph import Graph, Node


@dataclass(frozen=True)
class Along:
    """The batch lies along `axis`, with `factor` neighbours for each of its elements."""

    axis: int
    factor: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The tensors that hold the batch, so far, and where it lies in each."""

    graph: Graph
    along: Mapping[str, Along]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.graph.tensors[name].shape


FollowsBatch = Callable[[Batch, Node], "Along | None"]


def follow_letters(key: str) -> FollowsBatch:
    """Make the rule by which a batch axis goes through an operator with letters for its layout.

    `key` names the attribute that holds the letters of the input, such as `data_layout`."""

    def follow(batch: Batch, node: Node) -> Along | None:
        layout = str(node.attrs[key])
        out = str(node.attrs["out_layout"] or layout)
        others = any(name in batch.along for name in node.inputs[1:])
        if others or batch.along.get(node.inputs[0]) != Along(layout.find("N")):
            return None
        return Along(out.find("N"))

    return follow
