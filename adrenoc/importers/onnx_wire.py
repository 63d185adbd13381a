"""Reads the few facts of an ONNX file that are needed before (or without) the onnx package.

An ONNX file is one protobuf message.  Walking its wire format tells a model from a text file, a
truncated file from a whole one, and which bytes of external data files it names, in milliseconds
and without loading the weights.

Source: protobuf encoding guide; field numbers of onnx.proto3.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
View = bytes | mmap.mmap
"""The bytes of a file, all of them or as they are looked at."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MODEL_IR_VERSION, _MODEL_GRAPH, _MODEL_FUNCTIONS = 1, 7, 25
_FUNCTION_NODE = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_PORT_NAME = 1
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_TENSOR_DIMS, _TENSOR_DATA_TYPE, _TENSOR_NAME, _TENSOR_EXTERNAL_DATA = 1, 2, 8, 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_BITS = {
    **dict.fromkeys((25, 26), 2),
    **dict.fromkeys((21, 22, 23), 4),
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
}
"""Number of a data type -> bits of an element."""

MOST_DIGITS = 19
"""The most digits of an offset or a length: what lies beyond no file has."""
_MOST_ELEMENTS = 2**62

MOST_NODES = 200_000
"""The most nodes of a model, with those of its branches and loops, which can hold each other many
times."""


MOST_FIELDS = 5_000_000
"""The most fields that are walked one by one: a file of a few megabytes may consist of empty
ones."""


_SMALL_BYTES = 4 << 20
"""Up to so many bytes are kept with what was read of them: models whose weights lie beside them."""
_KEPT = 2
"""Models: a command reads one, or compares two."""


class WireError(ValueError):
    """The bytes are not a protobuf message, or they end too early."""


class TooManyNodesError(ValueError):
    """The graph has more than `MOST_NODES` nodes, or the file more than `MOST_FIELDS` fields."""


@dataclass(frozen=True, kw_only=True)
class External:
    """Where a tensor's bytes lie: `length` of them from `offset` on, in the file of that name."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True, kw_only=True)
class OnnxOutline:
    """Whether the file holds a graph, and what it names of external data files."""

    has_graph: bool
    external: tuple[External, ...]


def outline(path: Path) -> OnnxOutline:
    """Walk the file at `path`.

    Raises:
        WireError: the file is not one whole protobuf message.
        TooManyNodesError: nothing could be made of the model.
    """
    return _read_view(path, _outline_of, _outline_once)


def _outline_of(view: View) -> OnnxOutline:
    found = _Found()
    has_graph = has_version = False
    for number, start, end in found.fields(view, 0, len(view)):
        has_version |= number == _MODEL_IR_VERSION
        if number == _MODEL_GRAPH and start >= 0:
            has_graph = True
            _walk_graph(view, start, end, found)
        elif number == _MODEL_FUNCTIONS and start >= 0:
            for number_, a, b in found.fields(view, start, end):
                if number_ == _FUNCTION_NODE and a >= 0:
                    _walk_node(view, a, b, found)
    return OnnxOutline(has_graph=has_graph and has_version, external=tuple(found.external))


_outline_once = lru_cache(maxsize=_KEPT)(_outline_of)


def _read_view(path: Path, read: Callable[[View], T], read_once: Callable[[bytes], T]) -> T:
    """Return what is read of a file's bytes: of a small one by `read_once`, which keeps it by
    these.

    A command asks for a model's files many times, and the tables of a decoder whose weights lie
    beside it take a tenth of a second to walk; bytes that are the same say the same.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= _SMALL_BYTES and (content := file.read()):
            return read_once(content)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return read(view)


@dataclass(frozen=True, kw_only=True)
class GraphPorts:
    """The messages (ValueInfoProto) of a graph's inputs and outputs, and its constants' names."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]
    constants: frozenset[str]


def graph_ports(path: Path) -> GraphPorts:
    """Read what goes in and out of the graph in the file at `path`, past nodes and weights.

    Raises:
        WireError: the file is not one whole protobuf message.
        TooManyNodesError: nothing could be made of the model.
    """
    return _read_view(path, _ports_of, _ports_once)


def input_names(path: Path) -> set[str]:
    """Return the names of the inputs of the graph in the file at `path`.

    Raises:
        WireError, TooManyNodesError: see `graph_ports`.
    """
    found = _Found()
    return {
        port[first:last].decode("utf-8", "replace")
        for port in graph_ports(path).inputs
        for number, first, last in found.fields(port, 0, len(port))
        if number == _PORT_NAME and first >= 0
    }


def _ports_of(view: View) -> GraphPorts:
    inputs, outputs, constants = [], [], set()
    found = _Found()
    graphs = [f for f in found.fields(view, 0, len(view)) if f[0] == _MODEL_GRAPH and f[1] >= 0]
    for _, start, end in graphs:
        for number, first, last in found.fields(view, start, end):
            if first < 0:
                continue
            if number == _GRAPH_INPUT:
                inputs.append(view[first:last])
            elif number == _GRAPH_OUTPUT:
                outputs.append(view[first:last])
            elif number == _GRAPH_INITIALIZER:
                for part, a, b in found.fields(view, first, last):
                    if part == _TENSOR_NAME and a >= 0:
                        constants.add(view[a:b].decode("utf-8", "replace"))
    return GraphPorts(inputs=tuple(inputs), outputs=tuple(outputs), constants=frozenset(constants))


_ports_once = lru_cache(maxsize=_KEPT)(_ports_of)


@dataclass
class _Found:
    """What a walk has found so far."""

    external: list[External] = field(default_factory=list)
    nodes: int = 0
    walked: int = 0

    def fields(self, view: View, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the fields between two bytes, each counted."""
        for one in walk_fields(view, start, end):
            self.walked += 1
            if self.walked > MOST_FIELDS:
                raise TooManyNodesError(f"more than {MOST_FIELDS} fields")
            yield one

    def count_node(self) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise TooManyNodesError(f"more than {MOST_NODES} nodes")


def _walk_graph(view: View, start: int, end: int, found: _Found) -> None:
    for number, first, last in found.fields(view, start, end):
        if number == _GRAPH_INITIALIZER and first >= 0:
            _walk_tensor(view, first, last, found)
        elif number == _GRAPH_NODE and first >= 0:
            _walk_node(view, first, last, found)


def _walk_node(view: View, start: int, end: int, found: _Found) -> None:
    found.count_node()
    for number, first, last in found.fields(view, start, end):
        if number == _NODE_ATTRIBUTE and first >= 0:
            _walk_attribute(view, first, last, found)


def _walk_attribute(view: View, start: int, end: int, found: _Found) -> None:
    for number, first, last in found.fields(view, start, end):
        if first < 0:
            continue
        if number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
            _walk_tensor(view, first, last, found)
        elif number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
            _walk_graph(view, first, last, found)


def _walk_tensor(view: View, start: int, end: int, found: _Found) -> None:
    entries: dict[bytes, bytes] = {}
    for number, first, last in found.fields(view, start, end):
        if number == _TENSOR_EXTERNAL_DATA and first >= 0:
            entry = {key: view[a:b] for key, a, b in found.fields(view, first, last) if a >= 0}
            entries[entry.get(_ENTRY_KEY, b"")] = entry.get(_ENTRY_VALUE, b"")
    if b"location" not in entries:
        return
    stated = _number(entries.get(b"length", b""))
    found.external.append(
        External(
            file=entries[b"location"].decode("utf-8", "replace"),
            offset=_number(entries.get(b"offset", b"")) or 0,
            length=_tensor_bytes(view, start, end) if stated is None else stated,
        )
    )


def _number(text: bytes) -> int | None:
    """Return a number as an entry has it; None where there is none, or one that onnx will
    refuse."""
    return int(text) if text.isdigit() and len(text) <= MOST_DIGITS else None


def _tensor_bytes(view: View, start: int, end: int) -> int:
    """Return the bytes of a tensor by its shape and type; 0 where onnx knows none of these."""
    elements, data_type, key_at = 1, 0, start
    for number, first, last in walk_fields(view, start, end):
        if number in (_TENSOR_DIMS, _TENSOR_DATA_TYPE):
            # A row of numbers, as protobuf 3 packs them, or the one behind the key.
            at, until = (first, last) if first >= 0 else (read_varint(view, key_at, end)[1], last)
            while at < until:
                value, at = read_varint(view, at, until)
                if number == _TENSOR_DIMS:
                    elements = min(elements * value, _MOST_ELEMENTS)
                else:
                    data_type = value
        key_at = last
    return (elements * _BITS.get(data_type, 0) + 7) // 8


def walk_fields(view: View | bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, start, end) of each field; start is -1 where it is not bytes."""
    while position < end:
        key, position = read_varint(view, position, end)
        number, kind = key >> 3, key & 7
        start = -1
        if number == 0:
            raise WireError(f"field number 0 at byte {position}")
        if kind == _VARINT:
            _, position = read_varint(view, position, end)
        elif kind == _BYTES:
            length, start = read_varint(view, position, end)
            position = start + length
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"wire type {kind} at byte {position}")
        if position > end:
            raise WireError(f"a field needs {position - end} bytes more than there are")
        yield number, start, position


def read_varint(view: View | bytes, position: int, end: int) -> tuple[int, int]:
    """Return a number of some bytes, and where it ends.

    Raises:
        WireError: it is cut off.
    """
    value = shift = 0
    while position < end and shift < 70:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"a number is cut off at byte {position}")
