"""Reads the bytes of an ONNX model: its message, and the weights that lie in files beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from adrenoc.base.errors import ModelFormatError
from adrenoc.base.files.read import open_plain
from adrenoc.importers.formats import DataRange, ModelFiles, TakeData, is_ort
from adrenoc.importers.onnx.graph import all_nodes
from adrenoc.importers.onnx.ort_format import read_ort
from adrenoc.importers.onnx_wire import MOST_DIGITS
from adrenoc.importers.other_formats import EXPORT_AGAIN


def load_onnx(files: ModelFiles) -> tuple[onnx.ModelProto, str]:
    """Return the model in `files`, with all its weights, and the digest of what was read.

    Raises:
        ModelFormatError: it cannot be read, or its data files do not fit it.
    """
    path = files.paths[0]
    model = onnx.ModelProto()
    wanted: dict[DataRange, list[TensorProto]] = {}

    def begin(content: bytes) -> TakeData:
        if is_ort(content[:8]):
            model.CopyFrom(read_ort(content, path))
            return take
        try:
            model.ParseFromString(content)
        except DecodeError as error:
            raise ModelFormatError(
                f"{path} is not a readable ONNX file: {error}", hint=EXPORT_AGAIN
            ) from error
        for tensor in _external(model):
            wanted.setdefault(_span(tensor, path), []).append(tensor)
        return take

    def take(span: DataRange, data: bytes) -> None:
        if len(data) != span.length:
            raise ValueError(
                f"{span.path} ends before byte {span.offset + span.length}, which it has to hold"
            )
        for tensor in wanted.pop(span, ()):
            tensor.raw_data = data
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]

    try:
        _, sha256 = files.read(begin)
        _take_empty(wanted, take)
    except ValueError as error:
        data = ", ".join(str(p) for p in files.paths[1:])
        raise ModelFormatError(
            f"the external data of {path} ({data}) does not fit the model: {error}",
            hint=EXPORT_AGAIN,
        ) from error
    return model, sha256


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


def _take_empty(wanted: Mapping[DataRange, list[TensorProto]], take: TakeData) -> None:
    """Give tensors without elements their no bytes, and refuse what was in no file."""
    for span, tensors in list(wanted.items()):
        if span.length:
            raise ValueError(f"'{tensors[0].name}' names bytes that are in no data file")
        take(span, b"")


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
