"""Models of halves as models of floats, and of floats as of doubles: what they compute where no
tensor is rounded.

Before -> after:
    y = MatMul(x, w), all float16       y = MatMul(x, w), all float32, w the same numbers

Processors compute such models in float32 and round what they store: each kernel of onnxruntime some
of the tensors, as fits it.  How far its result is from that of no rounding is no error of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import TensorProto, helper, numpy_helper

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_NAMES_TYPE = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that name the type of what a node makes."""


def stores_halves(graph: onnx.GraphProto) -> bool:
    """Return whether constants, inputs or outputs of a graph are of 16 bits."""
    values = [*graph.input, *graph.output]
    return any(c.data_type in _HALVES for c in graph.initializer) or any(
        value.type.tensor_type.elem_type in _HALVES for value in values
    )


def widen_halves(model: onnx.ModelProto) -> None:
    """Make every tensor of halves one of floats, inputs and outputs too, in place."""
    _widen(model, TensorProto.FLOAT)


def widen_floats(model: onnx.ModelProto) -> None:
    """Make every tensor of halves or floats one of doubles, inputs and outputs too, in place."""
    _widen(model, TensorProto.DOUBLE)


def _widen(model: onnx.ModelProto, wide: int) -> None:
    _widen_graph(model.graph, wide)
    for function in model.functions:
        _widen_nodes(function.node, wide)
        _widen_values(function.value_info, wide)


def _is_narrow(element: int, wide: int) -> bool:
    return element in _HALVES or (wide == TensorProto.DOUBLE and element == TensorProto.FLOAT)


def _widen_graph(graph: onnx.GraphProto, wide: int) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor, wide)
    _widen_values((*graph.input, *graph.output, *graph.value_info), wide)
    _widen_nodes(graph.node, wide)


def _widen_nodes(nodes: Iterable[onnx.NodeProto], wide: int) -> None:
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.name in _NAMES_TYPE and _is_narrow(attribute.i, wide):
            attribute.i = wide
        for tensor in _tensors_of(attribute):
            _widen_tensor(tensor, wide)
        for graph in (attribute.g, *attribute.graphs):
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                _widen_graph(graph, wide)


def _tensors_of(attribute: onnx.AttributeProto) -> Iterator[TensorProto]:
    if attribute.type == onnx.AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors


def _widen_tensor(tensor: TensorProto, wide: int) -> None:
    if _is_narrow(tensor.data_type, wide):
        value = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(wide))
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _widen_values(values: Iterable[onnx.ValueInfoProto], wide: int) -> None:
    for value in values:
        if _is_narrow(value.type.tensor_type.elem_type, wide):
            value.type.tensor_type.elem_type = wide
