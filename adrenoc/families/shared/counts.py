"""How many elements and positions tensors have, for counting what operators do."""

from __future__ import annotations

import math

from adrenoc.families.shared.operator import Counts
from adrenoc.ir.graph import Graph, Node

SOFTMAX_OPERATIONS = 5
"""An element: largest, subtract, exp, sum, divide."""


def size_of(graph: Graph, name: str) -> int:
    """Elements of a tensor."""
    return math.prod(graph.tensors[name].shape)


def inputs_per_result(graph: Graph, node: Node) -> int:
    """Elements of the first input for each of the result."""
    return size_of(graph, node.inputs[0]) // max(1, size_of(graph, node.output))


def positions_of(graph: Graph, name: str) -> int:
    """Elements of one channel of a placed tensor."""
    return size_of(graph, name) // graph.operand(name).extents.c


def count_per_input_element(operations: int) -> Counts:
    """So many operations for each element of the first input."""

    def count(graph: Graph, node: Node) -> int:
        return operations * size_of(graph, node.inputs[0])

    return count


def count_per_output_position(graph: Graph, node: Node) -> int:
    """Each weight is used once for each output position."""
    return size_of(graph, node.inputs[1]) * positions_of(graph, node.output)


def count_per_input_position(graph: Graph, node: Node) -> int:
    """Each weight is used once for each input position."""
    return size_of(graph, node.inputs[1]) * positions_of(graph, node.inputs[0])
