"""Make every tensor that the model names an output, to compare layer by layer.

Runs after fusion, so that the kernels are those of the model as it is shipped; what fusion
swallowed has no tensor and is not compared.

Before -> after:
    outputs probabilities       outputs probabilities, conv1, pool1, conv2, ...
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.ir.graph import Graph
from adrenoc.passes.context import Context


def expose_layers(graph: Graph, context: Context) -> Graph:
    """Return the graph with its named float tensors as further outputs, in execution order."""
    kept = [
        node.output
        for node in graph.nodes
        if node.output in context.names
        and node.output not in graph.output_names
        and graph.tensors[node.output].is_float
    ]
    return replace(graph, outputs=(*graph.outputs, *kept))
