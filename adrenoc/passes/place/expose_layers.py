"""Make every tensor that the model names an output, to compare layer by layer.

Runs after fusion, so that the kernels are those of the model as it is shipped; what fusion
swallowed has no tensor and is not compared.

Before -> after:
    outputs probabilities       outputs probabilities, conv1, pool1, conv2, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.ir.graph import Graph


def expose_layers(graph: Graph, tensors: Mapping[str, str]) -> tuple[Graph, tuple[TensorSpec, ...]]:
    """The graph with its named float tensors as further outputs, in execution order.

    `tensors` maps a variable of the graph to the model's own name of that tensor.
    """
    kept: list[str] = []
    specs: list[TensorSpec] = []
    for node in graph.nodes:
        name = node.output
        tensor = graph.tensors[name]
        if name in graph.outputs or name not in tensors or not tensor.is_float:
            continue
        kept.append(name)
        specs.append(TensorSpec(name=tensors[name], shape=tensor.shape, dtype=tensor.dtype))
    return replace(graph, outputs=(*graph.outputs, *kept)), tuple(specs)
