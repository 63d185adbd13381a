"""Reads the few facts of an ONNX file that are needed before (or without) the onnx package.

An ONNX file is one protobuf message.  Walking its wire format tells a model from a text file, a
truncated file from a whole one, and which external data files it names, in milliseconds and
without loading the weights.

Source: protobuf encoding guide; field numbers of onnx.proto3.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MODEL_IR_VERSION, _MODEL_GRAPH = 1, 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_TENSOR_EXTERNAL_DATA = 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


MOST_NODES = 200_000
"""Of a model, with those of its branches and loops, which can hold each other many times."""


class WireError(ValueError):
    """The bytes are not a protobuf message, or they end too early."""


class TooManyNodesError(ValueError):
    """The graph has more than `MOST_NODES` nodes."""


@dataclass(frozen=True, kw_only=True)
class OnnxOutline:
    """Whether the file holds a graph, and the external data files that it names."""

    has_graph: bool
    external_files: tuple[str, ...]


def outline(path: Path) -> OnnxOutline:
    """Walk the file at `path`.

    Raises:
        WireError: the file is not one whole protobuf message.
        TooManyNodesError: nothing could be made of the model.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        found = _Found()
        has_graph = has_version = False
        for number, start, end in _fields(view, 0, len(view)):
            has_version |= number == _MODEL_IR_VERSION
            if number == _MODEL_GRAPH and start >= 0:
                has_graph = True
                _walk_graph(view, start, end, found)
        return OnnxOutline(has_graph=has_graph and has_version, external_files=tuple(found.names))


@dataclass
class _Found:
    """What a walk has found so far."""

    names: dict[str, None] = field(default_factory=dict)
    """Of data files, in order."""
    nodes: int = 0

    def count_node(self) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise TooManyNodesError(f"more than {MOST_NODES} nodes")


def _walk_graph(view: mmap.mmap, start: int, end: int, found: _Found) -> None:
    for number, first, last in _fields(view, start, end):
        if number == _GRAPH_INITIALIZER and first >= 0:
            _walk_tensor(view, first, last, found)
        elif number == _GRAPH_NODE and first >= 0:
            found.count_node()
            for number_, a, b in _fields(view, first, last):
                if number_ == _NODE_ATTRIBUTE and a >= 0:
                    _walk_attribute(view, a, b, found)


def _walk_attribute(view: mmap.mmap, start: int, end: int, found: _Found) -> None:
    for number, first, last in _fields(view, start, end):
        if first < 0:
            continue
        if number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
            _walk_tensor(view, first, last, found)
        elif number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
            _walk_graph(view, first, last, found)


def _walk_tensor(view: mmap.mmap, start: int, end: int, found: _Found) -> None:
    for number, first, last in _fields(view, start, end):
        if number != _TENSOR_EXTERNAL_DATA or first < 0:
            continue
        entry = {key: view[a:b] for key, a, b in _fields(view, first, last) if a >= 0}
        if entry.get(_ENTRY_KEY) == b"location":
            found.names[entry.get(_ENTRY_VALUE, b"").decode("utf-8", "replace")] = None


def _fields(view: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, start, end) of each field; start is -1 where it is not bytes."""
    while position < end:
        key, position = _varint(view, position, end)
        number, kind = key >> 3, key & 7
        start = -1
        if number == 0:
            raise WireError(f"field number 0 at byte {position}")
        if kind == _VARINT:
            _, position = _varint(view, position, end)
        elif kind == _BYTES:
            length, start = _varint(view, position, end)
            position = start + length
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"wire type {kind} at byte {position}")
        if position > end:
            raise WireError(f"a field needs {position - end} bytes more than there are")
        yield number, start, position


def _varint(view: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"a number is cut off at byte {position}")
