"""Reads the bytes of an ONNX model: its message, and the weights that lie in files beside it.

Protobuf holds a copy of every tensor beside the bytes that it parses, so that a model took twice
its file before anything was compiled.  So the message is walked as it is read: large initialisers
are arrays as they come by, which become TVM's constants where they lie, and protobuf gets the rest.

Models in onnxruntime's own format (.ort): a flatbuffer of the graph that ONNX has as protobuf.

onnxruntime itself reads them and writes the graph as ONNX.

Source: protobuf encoding guide; field numbers of onnx.proto3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from adrenoc.base.errors import DependencyError, ModelFormatError
from adrenoc.base.files.read import open_plain
from adrenoc.base.files.spill import LEAST_BYTES
from adrenoc.base.host.extras import import_onnxruntime, pip_install, runtime_errors
from adrenoc.importers.formats import (
    EXPORT_AGAIN,
    DataRange,
    ModelFiles,
    OwnBytes,
    TakeData,
    is_ort,
    join_digests,
    malformed,
)
from adrenoc.importers.onnx.graph import all_nodes, inner_graphs
from adrenoc.importers.onnx.prepare import JOINED, join_embedding
from adrenoc.importers.onnx_wire import Outline, WireError, external_of


def read_ort(content: bytes, path: Path) -> onnx.ModelProto:
    """Return the model in the bytes of an .ort file, as onnxruntime writes it in ONNX. Raises
    ModelFormatError where it is damaged, cut off, or for another CPU; DependencyError where
    onnxruntime is not installed."""
    try:
        runtime = import_onnxruntime()
    except ImportError as error:
        raise DependencyError(
            f"onnxruntime, which knows its own format (.ort), cannot be imported: {error}",
            hint=f"{pip_install('check')}, or compile the model as ONNX",
        ) from error
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ONNX")
    with TemporaryDirectory() as folder:
        options.optimized_model_filepath = written = str(Path(folder) / "model.onnx")
        try:
            runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except runtime_errors() as error:
            raise ModelFormatError(
                f"{path} ({len(content)} bytes) is a damaged file of onnxruntime's format, or one "
                f"of another version or CPU: {error}",
                hint=f"{EXPORT_AGAIN}, as ONNX: adrenoc compile MODEL.onnx",
            ) from error
        model = onnx.load(written)
    model.graph.name = "main"  # it leaves names of graphs out, which the standard asks for
    for attribute in (a for node in all_nodes(model.graph.node) for a in node.attribute):
        if attribute.HasField("g"):
            attribute.g.name = attribute.name
    return model


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
    """Return the model in `files`, with all its weights, and the digest of what was read. Raises
    ModelFormatError where it cannot be read, or its data files do not fit it."""
    loaded = load_parts(files)
    return loaded.fill(), loaded.sha256


def load_parts(files: ModelFiles) -> LoadedModel:
    """Return the model in `files`; its large initialisers are arrays that protobuf never holds.

    A decoder that takes embeddings has the model that looks them up before it. Raises
    ModelFormatError where it cannot be read, its data files do not fit it, or its embedding does
    not."""
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
            loader = _Loader(model=onnx.ModelProto(), walked=("GraphProto", "TensorProto"))
            loader.read(loader.model, _Stream(own), 0, own.left)
            model, held = loader.model, loader.held
        except (DecodeError, WireError) as error:
            raise malformed(f"{path} is not a readable ONNX file: {error}") from error
        for tensor, place in _external(model):
            found = external_of(tensor)
            span = DataRange(
                path=path.parent / found.file, offset=found.offset, length=found.length
            )
            wanted.setdefault(span, []).append((tensor, place))
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
        raise malformed(
            f"the external data of {path} ({data}) does not fit the model: {error}"
        ) from error
    found = {tensor.name: held.get(place) for place, tensor in enumerate(model.graph.initializer)}
    weights = {name: value for name, value in found.items() if value is not None}
    return LoadedModel(model=model, weights=weights, sha256=sha256)


def _set_data(tensor: TensorProto, data: bytes) -> None:
    tensor.raw_data = data
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def read_proto(path: Path) -> onnx.ModelProto:
    """Return the message of a model file alone: weights in files beside it stay there. Raises
    ModelFormatError where it cannot be read."""
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
            own = (attribute.t, *attribute.tensors)
            yield from ((tensor, -1) for tensor in own if _is_external(tensor))
        inner = (tensor for graph in inner_graphs(node) for tensor in graph.initializer)
        yield from ((tensor, -1) for tensor in inner if _is_external(tensor))


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


_MOST_HEAD_BYTES = 20
"""Of the number and the length of a field."""
_ELEMENTS = frozenset(onnx.helper.get_all_tensor_dtypes())
_NOTHING = np.empty(0, np.uint8)


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


@dataclass
class _Loader(Outline):
    """Reads a message but for large initialisers, which are arrays by their place."""

    held: dict[int, np.ndarray] = field(default_factory=dict)
    _data: np.ndarray = field(default_factory=lambda: _NOTHING)

    def takes(self, name: str, view: _Stream, first: int, last: int) -> bool:
        is_large = name == "raw_data" and last - first >= LEAST_BYTES
        if is_large:
            self._data = view.read_array(last - first)
        return is_large

    def end_tensor(self, tensor: TensorProto) -> None:
        value = array_of_bytes(tensor, self._data)
        if value is not None:
            self.held[len(self.model.graph.initializer) - 1] = value
        elif self._data.size:
            tensor.raw_data = self._data.tobytes()
        self._data = _NOTHING


class _Stream:
    """The bytes of a model's own file by their place, each read once; the last few stay at hand."""

    def __init__(self, own: OwnBytes) -> None:
        self._own = own
        self._last = b""
        self._end = 0

    def __getitem__(self, place: int | slice) -> Any:
        begin, end = (place.start, place.stop) if isinstance(place, slice) else (place, place + 1)
        if end > self._end:
            data = self._own.read(end - self._end)
            if len(data) < end - self._end:
                raise WireError(f"it ends before byte {end}")
            self._last, self._end = self._last[-_MOST_HEAD_BYTES:] + data, end
        at = len(self._last) - self._end + begin
        part = self._last[at : at + end - begin]
        return part if isinstance(place, slice) else part[0]

    def read_array(self, size: int) -> np.ndarray:
        """Return the next bytes as an array."""
        self._last, self._end = b"", self._end + size
        return self._own.read_array(size)
