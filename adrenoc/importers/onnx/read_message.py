"""Reads an ONNX message and leaves its large initialisers out of it, in files without a name.

Protobuf holds a copy of every tensor beside the bytes that it parses, so that a model took twice
its file before anything was compiled.  The message is walked as it is read: what is large is
spilled as it comes by, and protobuf gets the rest.

Source: protobuf encoding guide; field numbers of onnx.proto3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from adrenoc.base.files.spill import LEAST_BYTES, spill
from adrenoc.importers.formats import OwnBytes
from adrenoc.importers.onnx_wire import WireError, read_varint

_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
_VARINT, _BYTES = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
_MOST_VARINT_BYTES = 10
_ELEMENTS = frozenset(onnx.helper.get_all_tensor_dtypes())


def read_message(own: OwnBytes) -> tuple[onnx.ModelProto, dict[int, np.ndarray]]:
    """Return the message in a model's own file, and the initialisers that it lacks the data of, by
    their place among the graph's.

    Raises:
        WireError, google.protobuf.message.DecodeError: it is no message.
    """
    model = onnx.ModelProto()
    held: dict[int, np.ndarray] = {}
    rest = bytearray()
    for field in _fields(own, own.left):
        if field.is_bytes and field.number == _MODEL_GRAPH:
            held |= _read_graph(own, field.size, model.graph)
        else:
            rest += field.head + own.read(field.size)
    model.MergeFromString(bytes(rest))
    return model, held


def array_of_bytes(tensor: onnx.TensorProto, data: bytes) -> np.ndarray | None:
    """Return the array of a large tensor whose data is `data`, spilled; None of small ones, of
    dtypes that NumPy or ONNX lacks, and where the data does not fit."""
    is_damaged = tensor.data_type not in _ELEMENTS or min(tensor.dims, default=0) < 0
    if len(data) < LEAST_BYTES or is_damaged:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    is_plain = dtype.isbuiltin == 1 and not dtype.hasobject
    if not is_plain or math.prod(tensor.dims) * dtype.itemsize != len(data):
        return None
    return spill(np.frombuffer(data, dtype).reshape(tensor.dims))


def _read_graph(own: OwnBytes, size: int, graph: onnx.GraphProto) -> dict[int, np.ndarray]:
    held: dict[int, np.ndarray] = {}
    rest = bytearray()
    for field in _fields(own, size):
        if not field.is_large or field.number != _GRAPH_INITIALIZER:
            rest += field.head + own.read(field.size)
            continue
        graph.MergeFromString(bytes(rest))  # initialisers stay in their order
        rest.clear()
        value = _read_tensor(own, field.size, graph.initializer.add())
        if value is not None:
            held[len(graph.initializer) - 1] = value
    graph.MergeFromString(bytes(rest))
    return held


def _read_tensor(own: OwnBytes, size: int, tensor: onnx.TensorProto) -> np.ndarray | None:
    rest, data = bytearray(), b""
    for field in _fields(own, size):
        if field.is_large and field.number == _TENSOR_RAW_DATA:
            data = own.read(field.size)
        else:
            rest += field.head + own.read(field.size)
    tensor.MergeFromString(bytes(rest))
    value = array_of_bytes(tensor, data)
    if value is None and data:
        tensor.raw_data = data
    return value


@dataclass(frozen=True, kw_only=True)
class _Field:
    """A field of a message: its number, the bytes that were read of it, and how many are left."""

    number: int
    head: bytes
    size: int
    is_bytes: bool

    @property
    def is_large(self) -> bool:
        return self.is_bytes and self.size >= LEAST_BYTES


def _fields(own: OwnBytes, size: int) -> Iterator[_Field]:
    """Yield the fields of the next `size` bytes; who gets one reads what is left of it."""
    end = own.left - size
    while own.left > end:
        head = _read_varint(own)
        key, _ = read_varint(head, 0, len(head))
        kind, length = key & 7, 0
        if kind == _BYTES:
            counted = _read_varint(own)
            head += counted
            length, _ = read_varint(counted, 0, len(counted))
        elif kind == _VARINT:
            head += _read_varint(own)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise WireError(f"wire type {kind}")
        if length > own.left - end:
            raise WireError(f"a field needs {length} bytes, and there are {own.left - end}")
        yield _Field(number=key >> 3, head=head, size=length, is_bytes=kind == _BYTES)


def _read_varint(own: OwnBytes) -> bytes:
    """Return the bytes of a number: all but its last have the highest bit set."""
    found = byte = own.read(1)
    while byte >= b"\x80" and len(found) < _MOST_VARINT_BYTES:
        byte = own.read(1)
        found += byte
    return found
