"""Reads the bytes of an ONNX model: its message, and the weights that lie in files beside it.

Protobuf holds a copy of every tensor beside the bytes that it parses, so that a model took twice
its file before anything was compiled.  So the message is walked as it is read: large initialisers
are arrays as they come by, which become TVM's constants where they lie, and protobuf gets the rest.

Models in onnxruntime's own format (.ort): a flatbuffer of the graph that ONNX has as protobuf.

Its tables are read by the classes that onnxruntime ships.  What onnxruntime wrote there beside the
graph, for its own start, is left alone.

Source: protobuf encoding guide; field numbers of onnx.proto3;
onnxruntime/core/flatbuffers/schema/ort.fbs, version 1.32 of the package tried.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, TensorProto, helper

from adrenoc.base.errors import DependencyError, ModelFormatError
from adrenoc.base.files.read import open_plain
from adrenoc.base.files.spill import LEAST_BYTES
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.onnx_runtime import import_format_table
from adrenoc.importers.formats import (
    EXPORT_AGAIN,
    DataRange,
    ModelFiles,
    OwnBytes,
    TakeData,
    is_ort,
    join_digests,
)
from adrenoc.importers.onnx.graph import all_nodes
from adrenoc.importers.onnx.prepare import JOINED, join_embedding
from adrenoc.importers.onnx_wire import MOST_DIGITS, WireError, read_varint

_DAMAGE = (
    *(struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError),
    *(MemoryError, RecursionError),
)
_VALUE, _NAMED = 1, 2
"""Kinds of a dimension that say something."""
_TENSOR = 1
"""The kind of a value that is a tensor."""
_MOST_DEPTH = 16


def read_ort(content: bytes, path: Path) -> onnx.ModelProto:
    """Return the model in the bytes of an .ort file, as ONNX has it.

    Raises:
        ModelFormatError: damaged or cut off.
        DependencyError: onnxruntime is not installed.
    """
    tables = _import_tables()
    try:
        return _Reader(tables, content).read()
    except _DAMAGE as error:
        raise ModelFormatError(
            f"{path} ({len(content)} bytes) is a damaged file of onnxruntime's format, or one of "
            f"another version: {error}",
            hint=f"{EXPORT_AGAIN}, as ONNX: adrenoc compile MODEL.onnx",
        ) from error


def _import_tables() -> ModuleType:
    try:
        return import_format_table("InferenceSession")
    except ImportError as error:
        raise DependencyError(
            f"onnxruntime, which knows its own format (.ort), cannot be imported: {error}",
            hint=f"{pip_install('check')}, or compile the model as ONNX",
        ) from error


class _Reader:
    def __init__(self, tables: ModuleType, content: bytes) -> None:
        self._root = tables.InferenceSession.GetRootAsInferenceSession(content, 0)
        self._left = len(content)
        """Entries of vectors that may still be read: each takes bytes of the file."""

    def read(self) -> onnx.ModelProto:
        stored = self._root.Model()
        if stored is None or stored.Graph() is None:
            raise ValueError("it holds no graph")
        opsets = [
            helper.make_opsetid(_text(one.Domain()), int(one.Version()))
            for one in self._each(stored.OpsetImportLength(), stored.OpsetImport)
        ]
        graph = self._graph(stored.Graph(), "main", 0)
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=int(stored.IrVersion()) or onnx.IR_VERSION
        )

    def _each(self, count: int, at: Callable[[int], Any]) -> Iterator[Any]:
        self._left -= count
        if count < 0 or self._left < 0:
            raise ValueError("its vectors are longer than the file")
        return (at(index) for index in range(count))

    def _texts(self, count: int, at: Callable[[int], Any]) -> list[str]:
        return [_text(one) for one in self._each(count, at)]

    def _graph(self, stored: Any, name: str, depth: int) -> onnx.GraphProto:
        if depth > _MOST_DEPTH:
            raise ValueError("its graphs hold each other")
        known = {
            _text(one.Name()): self._value_info(one)
            for one in self._each(stored.NodeArgsLength(), stored.NodeArgs)
        }
        held = list(self._each(stored.InitializersLength(), stored.Initializers))
        nodes = list(self._each(stored.NodesLength(), stored.Nodes))
        return helper.make_graph(
            [self._node(one, depth) for one in sorted(nodes, key=lambda node: node.Index())],
            name,
            [_known(known, one) for one in self._texts(stored.InputsLength(), stored.Inputs)],
            [_known(known, one) for one in self._texts(stored.OutputsLength(), stored.Outputs)],
            [self._tensor(one) for one in held],
        )

    def _value_info(self, stored: Any) -> onnx.ValueInfoProto:
        info = onnx.ValueInfoProto(name=_text(stored.Name()))
        said = stored.Type()
        if said is None or said.ValueType() != _TENSOR:
            return info
        tensor = import_format_table("TensorTypeAndShape").TensorTypeAndShape()
        tensor.Init(said.Value().Bytes, said.Value().Pos)
        info.type.tensor_type.elem_type = int(tensor.ElemType())
        shape = tensor.Shape()
        if shape is None:
            return info
        info.type.tensor_type.shape.SetInParent()
        for one in self._each(shape.DimLength(), shape.Dim):
            dim, value = info.type.tensor_type.shape.dim.add(), one.Value()
            if value is not None and value.DimType() == _VALUE:
                dim.dim_value = int(value.DimValue())
            elif value is not None and value.DimType() == _NAMED:
                dim.dim_param = _text(value.DimParam())
        return info

    def _node(self, stored: Any, depth: int) -> onnx.NodeProto:
        node = onnx.NodeProto(
            op_type=_text(stored.OpType()), domain=_text(stored.Domain()), name=_text(stored.Name())
        )
        node.input.extend(self._texts(stored.InputsLength(), stored.Inputs))
        node.output.extend(self._texts(stored.OutputsLength(), stored.Outputs))
        for one in self._each(stored.AttributesLength(), stored.Attributes):
            node.attribute.append(self._attribute(one, depth))
        return node

    def _attribute(self, stored: Any, depth: int) -> AttributeProto:
        made = AttributeProto(name=_text(stored.Name()), type=int(stored.Type()))
        kind = AttributeProto.AttributeType.Name(made.type)
        if kind == "FLOAT":
            made.f = float(stored.F())
        elif kind == "INT":
            made.i = int(stored.I())
        elif kind == "STRING":
            made.s = stored.S() or b""
        elif kind == "TENSOR":
            made.t.CopyFrom(self._tensor(stored.T()))
        elif kind == "GRAPH":
            made.g.CopyFrom(self._graph(stored.G(), _text(stored.Name()), depth + 1))
        elif kind == "FLOATS":
            made.floats.extend(map(float, self._each(stored.FloatsLength(), stored.Floats)))
        elif kind == "INTS":
            made.ints.extend(map(int, self._each(stored.IntsLength(), stored.Ints)))
        elif kind == "STRINGS":
            made.strings.extend(self._each(stored.StringsLength(), stored.Strings))
        elif kind == "TENSORS":
            tensors = self._each(stored.TensorsLength(), stored.Tensors)
            made.tensors.extend(self._tensor(one) for one in tensors)
        else:
            raise ValueError(f"an attribute of the type {kind}")
        return made

    def _tensor(self, stored: Any) -> TensorProto:
        made = TensorProto(name=_text(stored.Name()), data_type=int(stored.DataType()))
        made.dims.extend(map(int, self._each(stored.DimsLength(), stored.Dims)))
        if made.data_type == TensorProto.STRING:
            made.string_data.extend(self._each(stored.StringDataLength(), stored.StringData))
            return made
        if stored.ExternalDataOffset() >= 0:
            raise ValueError(f"'{made.name}' lies in a file beside it, which is not covered")
        data = stored.RawDataAsNumpy()
        made.raw_data = b"" if isinstance(data, int) else data.tobytes()
        return made


def _known(infos: dict[str, onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto:
    if name not in infos:
        raise ValueError(f"nothing is said of '{name}'")
    return infos[name]


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode("utf-8")


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model's message, its large initialisers by name, which the message lacks the data of, and
    the digest of the files that were read."""

    model: onnx.ModelProto
    weights: dict[str, np.ndarray]
    sha256: str

    def fill(self) -> onnx.ModelProto:
        """Return the message with all its data, for tools that take nothing else."""
        for tensor in self.model.graph.initializer:
            if tensor.name in self.weights:
                _set_data(tensor, self.weights[tensor.name].tobytes())
        self.weights.clear()
        return self.model


def load_onnx(files: ModelFiles) -> tuple[onnx.ModelProto, str]:
    """Return the model in `files`, with all its weights, and the digest of what was read.

    Raises:
        ModelFormatError: it cannot be read, or its data files do not fit it.
    """
    loaded = load_parts(files)
    return loaded.fill(), loaded.sha256


def load_parts(files: ModelFiles) -> LoadedModel:
    """Return the model in `files`; its large initialisers are arrays that protobuf never holds.

    A decoder that takes embeddings has the model that looks them up before it.

    Raises:
        ModelFormatError: it cannot be read, its data files do not fit it, or its embedding does
            not.
    """
    own = _load_own(files)
    if files.embedding is None:
        return own
    embedding = load_parts(files.embedding)
    model = join_embedding(own.model, embedding.model, files.embedding.paths[0])
    weights = {f"{JOINED}{name}": value for name, value in embedding.weights.items()}
    return LoadedModel(
        model=model,
        weights={**weights, **own.weights},
        sha256=join_digests(own.sha256, embedding.sha256),
    )


def _load_own(files: ModelFiles) -> LoadedModel:
    path = files.paths[0]
    model = onnx.ModelProto()
    held: dict[int, np.ndarray] = {}
    wanted: dict[DataRange, list[tuple[TensorProto, int]]] = {}

    def begin(own: OwnBytes) -> TakeData:
        nonlocal model, held
        if is_ort(own.peek(8)):
            model = read_ort(own.read(), path)
            return take
        try:
            model, held = read_message(own)
        except (DecodeError, WireError) as error:
            raise ModelFormatError(
                f"{path} is not a readable ONNX file: {error}", hint=EXPORT_AGAIN
            ) from error
        for tensor, place in _external(model):
            wanted.setdefault(_span(tensor, path), []).append((tensor, place))
        return take

    def take(span: DataRange, data: np.ndarray) -> None:
        if len(data) != span.length:
            raise ValueError(
                f"{span.path} ends before byte {span.offset + span.length}, which it has to hold"
            )
        for tensor, place in wanted.pop(span, ()):
            value = array_of_bytes(tensor, data) if place >= 0 else None
            if value is None:
                _set_data(tensor, data.tobytes())
            else:
                held[place] = value

    try:
        sha256 = files.read_parts(begin)
        _take_empty(wanted, take)
    except ValueError as error:
        data = ", ".join(str(p) for p in files.paths[1:])
        raise ModelFormatError(
            f"the external data of {path} ({data}) does not fit the model: {error}",
            hint=EXPORT_AGAIN,
        ) from error
    found = {tensor.name: held.get(place) for place, tensor in enumerate(model.graph.initializer)}
    weights = {name: value for name, value in found.items() if value is not None}
    return LoadedModel(model=model, weights=weights, sha256=sha256)


def _set_data(tensor: TensorProto, data: bytes) -> None:
    tensor.raw_data = data
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def read_proto(path: Path) -> onnx.ModelProto:
    """Return the message of a model file alone: weights in files beside it stay there.

    Raises:
        ModelFormatError: it cannot be read.
    """
    with open_plain(path) as file:
        head = file.read(8)
        if is_ort(head):
            return read_ort(head + file.read(), path)
    return onnx.load(str(path), load_external_data=False)


def _take_empty(wanted: Mapping[DataRange, list[tuple[TensorProto, int]]], take: TakeData) -> None:
    """Give tensors without elements their no bytes, and refuse what was in no file."""
    for span, tensors in list(wanted.items()):
        if span.length:
            raise ValueError(f"'{tensors[0][0].name}' names bytes that are in no data file")
        take(span, np.empty(0, np.uint8))


def _external(model: onnx.ModelProto) -> Iterator[tuple[TensorProto, int]]:
    """Yield the tensors whose data lies in other files, each with its place among the graph's
    initialisers; -1 of those elsewhere."""
    for place, tensor in enumerate(model.graph.initializer):
        if _is_external(tensor):
            yield tensor, place
    nodes = itertools.chain(model.graph.node, *(function.node for function in model.functions))
    for node in all_nodes(nodes):
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else attribute.graphs
            inner = [t for graph in graphs for t in graph.initializer]
            own = (attribute.t, *attribute.tensors, *inner)
            yield from ((tensor, -1) for tensor in own if _is_external(tensor))


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def _span(tensor: TensorProto, model: Path) -> DataRange:
    """Return where the tensor's bytes lie; onnx reads to the end of the file where no length is
    stated."""
    if tensor.data_type not in _STORED:
        raise ValueError(
            f"'{tensor.name}' is of the data type {tensor.data_type}, which has no fixed size"
        )
    element = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    bits = _BITS.get(tensor.data_type, 8 * element.itemsize)
    wanted = (math.prod(tensor.dims) * bits + 7) // 8
    entries = {entry.key: entry.value for entry in tensor.external_data}
    stated = _number(tensor, entries, "length", wanted)
    if stated != wanted:
        raise ValueError(
            f"'{tensor.name}' of the shape {list(tensor.dims)} has {stated} bytes, "
            f"expected {wanted}"
        )
    if not entries.get("location"):
        raise ValueError(f"'{tensor.name}' names no file")
    place = model.parent / entries["location"]
    return DataRange(path=place, offset=_number(tensor, entries, "offset", 0), length=wanted)


def _number(tensor: TensorProto, entries: Mapping[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ValueError(f"the {key} of '{tensor.name}' is {text[:40]!r}, expected a number")
    return int(text)


_BITS = {
    **{getattr(TensorProto, name): 4 for name in ("INT4", "UINT4", "FLOAT4E2M1")},
    **{getattr(TensorProto, name): 2 for name in ("INT2", "UINT2") if hasattr(TensorProto, name)},
}
"""Bits of an element, where there are several in a byte."""

_STORED = frozenset(onnx.helper.get_all_tensor_dtypes()) - {
    TensorProto.UNDEFINED,
    TensorProto.STRING,
}


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


def array_of_bytes(tensor: onnx.TensorProto, data: np.ndarray) -> np.ndarray | None:
    """Return the array of a large tensor whose bytes are `data`, in their memory; None of small
    ones, of dtypes that NumPy or ONNX lacks, and where the data does not fit."""
    is_damaged = tensor.data_type not in _ELEMENTS or min(tensor.dims, default=0) < 0
    if len(data) < LEAST_BYTES or is_damaged:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    is_plain = dtype.isbuiltin == 1 and not dtype.hasobject
    if not is_plain or math.prod(tensor.dims) * dtype.itemsize != len(data):
        return None
    return data.view(dtype).reshape(tensor.dims)


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
    rest, data = bytearray(), np.empty(0, np.uint8)
    for field in _fields(own, size):
        if field.is_large and field.number == _TENSOR_RAW_DATA:
            data = own.read_array(field.size)
        else:
            rest += field.head + own.read(field.size)
    tensor.MergeFromString(bytes(rest))
    value = array_of_bytes(tensor, data)
    if value is None and data.size:
        tensor.raw_data = data.tobytes()
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
