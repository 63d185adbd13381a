"""How many elements and positions tensors have, for counting what operators do."""

from __future__ import annotations

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.shared.operator import Counts

SOFTMAX_OPERATIONS = 5
"""Operations an element: largest, subtract, exp, sum, divide."""


def size_of(graph: Graph, name: str) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(graph.tensors[name].shape)


def inputs_per_result(graph: Graph, node: Node) -> int:
    """Elements of the first input for each of the result."""
    return size_of(graph, node.inputs[0]) // max(1, size_of(graph, node.output))


def positions_of(graph: Graph, name: str) -> int:
    """Return the number of elements of one channel of a placed tensor."""
    return size_of(graph, name) // graph.operand(name).extents.c


def count_per_input_element(operations: int) -> Counts:
    """Return the operations of a node that does so many for each element of its first input."""

    def count(graph: Graph, node: Node) -> int:
        return operations * size_of(graph, node.inputs[0])

    return count


def count_per_output_position(graph: Graph, node: Node) -> int:
    """Return the multiply-adds of a node that uses each weight once for each output position."""
    return size_of(graph, node.inputs[1]) * positions_of(graph, node.output)


def count_per_input_position(graph: Graph, node: Node) -> int:
    """Return the multiply-adds of a node that uses each weight once for each input position."""
    return size_of(graph, node.inputs[1]) * positions_of(graph, node.inputs[0])
