"""Models of halves as models of floats: what they compute where no tensor is rounded.

Before -> after:
    y = MatMul(x, w), all float16       y = MatMul(x, w), all float32, w the same numbers

Processors compute such models in float32 and round what they store: each kernel of onnxruntime some
of the tensors, as fits it.  How far its result is from that of no rounding is no error of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_NAMES_TYPE = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that name the type of what a node makes."""


def stores_halves(graph: onnx.GraphProto) -> bool:
    """Whether constants, inputs or outputs of a graph are of 16 bits."""
    values = [*graph.input, *graph.output]
    return any(c.data_type in _HALVES for c in graph.initializer) or any(
        value.type.tensor_type.elem_type in _HALVES for value in values
    )


def widen_halves(model: onnx.ModelProto) -> None:
    """Make every tensor of halves one of floats, inputs and outputs too, in place."""
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)
        _widen_values(function.value_info)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    _widen_values((*graph.input, *graph.output, *graph.value_info))
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.name in _NAMES_TYPE and attribute.i in _HALVES:
            attribute.i = TensorProto.FLOAT
        for tensor in _tensors_of(attribute):
            _widen_tensor(tensor)
        for graph in (attribute.g, *attribute.graphs):
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                _widen_graph(graph)


def _tensors_of(attribute: onnx.AttributeProto) -> Iterator[TensorProto]:
    if attribute.type == onnx.AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _HALVES:
        value = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _widen_values(values: Iterable[onnx.ValueInfoProto]) -> None:
    for value in values:
        if value.type.tensor_type.elem_type in _HALVES:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
