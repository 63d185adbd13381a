"""What outputs are moved copies of: the model gives floats there, and half would round them for
nothing.

An output that a kernel computes is written in the model's own floats.  One that is another tensor
with its axes turned, joined or cut was written as halves before, which cost a depth of 5 its digits
where a picture's depths differ by a tenth.  Weights stay with what they make: where they are larger
than the output, they are left in halves, and the output too.

Before -> after (mixed):
    %m = map sigmoid(%c); output = map reshape(%m)          the same, and %m stays in float32
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.tvmapi import tvm


def outputs(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The tensors that nothing reads but a move to an output in float32."""
    graph = analysis.graph
    for output in sorted(graph.output_names - graph.state_names):
        node = graph.producers.get(output)
        if graph.tensors[output].dtype != "float32":
            continue
        while node is not None and _moves(node):
            (source,) = node.inputs
            node = graph.producers.get(source)
            if node is None or not _is_read_once(graph, source) or _has_weights(graph, node):
                break
            yield source, f"the output {output} is made of its numbers as they are"


def _moves(node: Node) -> bool:
    """Whether each element of a result is one of the operand's."""
    if not node.is_map or node.body is None or node.epilogue is not None or len(node.inputs) != 1:
        return False
    return isinstance(node.body.value, tvm.ir.TensorLoad)


def _is_read_once(graph: Graph, name: str) -> bool:
    readers = graph.consumers.get(name, ())
    return graph.tensors[name].is_float and len(readers) == 1 and name not in graph.output_names


def _has_weights(graph: Graph, node: Node) -> bool:
    """Whether constants, which become floats with the result, are larger than that is."""
    read = (graph.tensors[name] for name in node.inputs)
    constants = sum(prod(t.shape) for t in read if t.value is not None and t.is_float)
    return constants > prod(graph.tensors[node.output].shape)
