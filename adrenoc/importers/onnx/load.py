"""Reads the bytes of an ONNX model: its message, and the weights that lie in files beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from adrenoc.base.errors import ModelFormatError
from adrenoc.base.files.read import open_plain
from adrenoc.importers.formats import DataRange, ModelFiles, OwnBytes, TakeData, is_ort
from adrenoc.importers.onnx.graph import all_nodes
from adrenoc.importers.onnx.ort_format import read_ort
from adrenoc.importers.onnx.read_message import array_of_bytes, read_message
from adrenoc.importers.onnx_wire import MOST_DIGITS, WireError
from adrenoc.importers.other_formats import EXPORT_AGAIN


@dataclass(frozen=True, kw_only=True)
class Loaded:
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


def load_parts(files: ModelFiles) -> Loaded:
    """Return the model in `files`; its large initialisers are spilled as they are read.

    Raises:
        ModelFormatError: it cannot be read, or its data files do not fit it.
    """
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

    def take(span: DataRange, data: bytes) -> None:
        if len(data) != span.length:
            raise ValueError(
                f"{span.path} ends before byte {span.offset + span.length}, which it has to hold"
            )
        for tensor, place in wanted.pop(span, ()):
            value = array_of_bytes(tensor, data) if place >= 0 else None
            if value is None:
                _set_data(tensor, data)
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
    return Loaded(model=model, weights=weights, sha256=sha256)


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
        take(span, b"")


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
    if tensor.data_type not in _ELEMENTS:
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

_ELEMENTS = frozenset(onnx.helper.get_all_tensor_dtypes()) - {
    TensorProto.UNDEFINED,
    TensorProto.STRING,
}
