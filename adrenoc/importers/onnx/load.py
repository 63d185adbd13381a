"""Reads the bytes of an ONNX model: its message, and the weights that lie in files beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto
from onnx.external_data_helper import load_external_data_for_tensor

from adrenoc.errors import ModelFormatError
from adrenoc.importers.formats import EXPORT_AGAIN, ModelFiles
from adrenoc.importers.onnx.graph import all_nodes


def load_onnx(files: ModelFiles) -> onnx.ModelProto:
    """The model in `files`, with all its weights.

    Raises:
        ModelFormatError: it cannot be read, or its data files do not fit it.
    """
    path = files.paths[0]
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise ModelFormatError(
            f"{path} is not a readable ONNX file: {error}", hint=EXPORT_AGAIN
        ) from error
    try:
        for tensor in _external(model):
            _state_length(tensor)
            load_external_data_for_tensor(tensor, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        data = ", ".join(str(p) for p in files.paths[1:])
        raise ModelFormatError(
            f"the external data of {path} ({data}) does not fit the model: {error}",
            hint=EXPORT_AGAIN,
        ) from error
    return model


def _external(model: onnx.ModelProto) -> Iterator[TensorProto]:
    yield from (t for t in model.graph.initializer if _is_external(t))
    nodes = itertools.chain(model.graph.node, *(function.node for function in model.functions))
    for node in all_nodes(nodes):
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else attribute.graphs
            inner = [t for graph in graphs for t in graph.initializer]
            yield from (t for t in (attribute.t, *attribute.tensors, *inner) if _is_external(t))


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def _state_length(tensor: TensorProto) -> None:
    """Say how many bytes the tensor has: onnx reads to the end of the file where none are given."""
    if tensor.data_type not in _ELEMENTS:
        raise ValueError(
            f"'{tensor.name}' is of the data type {tensor.data_type}, which has no fixed size"
        )
    element = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    bits = _BITS.get(tensor.data_type, 8 * element.itemsize)
    wanted = (math.prod(tensor.dims) * bits + 7) // 8
    stated = [entry for entry in tensor.external_data if entry.key == "length"]
    if not stated:
        tensor.external_data.add(key="length", value=str(wanted))
    elif int(stated[0].value) != wanted:
        raise ValueError(
            f"'{tensor.name}' of the shape {list(tensor.dims)} has {stated[0].value} bytes, "
            f"expected {wanted}"
        )


_BITS = {
    **{getattr(TensorProto, name): 4 for name in ("INT4", "UINT4", "FLOAT4E2M1")},
    **{getattr(TensorProto, name): 2 for name in ("INT2", "UINT2") if hasattr(TensorProto, name)},
}
"""Bits of an element, where there are several in a byte."""

_ELEMENTS = frozenset(onnx.helper.get_all_tensor_dtypes()) - {
    TensorProto.UNDEFINED,
    TensorProto.STRING,
}
