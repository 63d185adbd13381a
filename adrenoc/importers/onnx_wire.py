"""Reads what an ONNX file says but for the numbers of its tensors, in milliseconds.

An ONNX file is one protobuf message.  Walking its wire format tells a model from a text file and a
truncated file from a whole one, counts what it holds before anything is made of it, and leaves the
weights where they are.

Source: protobuf encoding guide; onnx.proto3.
"""

import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

View = bytes | mmap.mmap
"""The bytes of a file, all of them or as they are looked at."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_TENSOR, _NODE = "TensorProto", "NodeProto"
_WALKED = (_TENSOR, _NODE, "AttributeProto", "FunctionProto", "GraphProto", "SparseTensorProto")
"""Messages that are tensors, or may hold some."""

_MOST_DIGITS = 19
"""The most digits of an offset or a length: what lies beyond no file has."""

MOST_NODES = 200_000
"""The most nodes of a model, those of branches and loops too, which can hold each other."""

MOST_FIELDS = 5_000_000
"""The most fields walked one by one: a file of few megabytes may consist of empty ones."""

_SMALL_BYTES = 4 << 20
"""Up to so many bytes are kept with what was read of them: models whose weights lie beside them."""
_KEPT = 2
"""Models: a command reads one, or compares two."""


class WireError(ValueError):
    """The bytes are not a protobuf message, or they end too early."""


class TooManyNodesError(ValueError):
    """The graph has more than `MOST_NODES` nodes, or the file more than `MOST_FIELDS` fields."""


@dataclass
class Outline:
    """A model's message without its tensors' numbers, and those whose numbers lie elsewhere."""

    model: Any
    external: list[Any] = field(default_factory=list)
    nodes: int = 0
    fields: int = 0
    walked: tuple[str, ...] = _WALKED

    def read(self, message: Any, view: Any, start: int, end: int) -> None:
        """Read into a message what lies between two bytes."""
        kind = message.DESCRIPTOR
        rest, at = bytearray(), start
        self.nodes += kind.name == _NODE
        for number, first, last in walk_fields(view, start, end):
            self.fields += 1
            if self.nodes > MOST_NODES or self.fields > MOST_FIELDS:
                raise TooManyNodesError(f"more than {MOST_NODES} nodes or {MOST_FIELDS} fields")
            one: Any = kind.fields_by_number.get(number) if first >= 0 else None
            inner = None if one is None else one.message_type
            is_numbers = kind.name == _TENSOR and one is not None and one.name.endswith("_data")
            if inner is not None and inner.name in self.walked:
                self.read(_make_inner(message, one.name), view, first, last)
            elif inner or not is_numbers or not self.takes(one.name, view, first, last):
                rest += view[at:last]
            at = last
        message.MergeFromString(bytes(rest))
        if kind.name == _TENSOR:
            self.end_tensor(message)

    def takes(self, _name: str, _view: Any, _first: int, _last: int) -> bool:
        """Return whether numbers of a tensor stay out of its message."""
        return True

    def end_tensor(self, tensor: Any) -> None:
        """Note a tensor that was read."""
        if tensor.data_location == tensor.EXTERNAL:
            self.external.append(tensor)


def _make_inner(message: Any, name: str) -> Any:
    """Return the message in a field of another one, the next where there may be several."""
    held = getattr(message, name)
    if hasattr(held, "add"):
        return held.add()
    held.SetInParent()
    return held


def read_outline(path: Path) -> Outline:
    """Return what the file at `path` says, which nobody changes.

    A command asks for a model's files many times, and the tables of a decoder whose weights lie
    beside it take a tenth of a second to walk; bytes that are the same say the same. Raises
    WireError where the file is not one whole protobuf message, or it is no model; TooManyNodesError
    where nothing could be made of the model."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= _SMALL_BYTES and (content := file.read()):
            return _outline_once(content)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _outline_of(view)


def _outline_of(view: View) -> Outline:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    found = Outline(model=onnx.ModelProto())
    try:
        found.read(found.model, view, 0, len(view))
    except DecodeError as error:
        raise WireError(str(error)) from error
    if not (found.model.HasField("graph") and found.model.HasField("ir_version")):
        raise WireError("it holds no graph")
    return found


_outline_once = lru_cache(maxsize=_KEPT)(_outline_of)


@dataclass(frozen=True, kw_only=True)
class External:
    """Where a tensor's bytes lie: `length` of them from `offset` on, in the file of that name."""

    file: str
    offset: int
    length: int


def external_of(tensor: Any) -> External:
    """Return where the bytes of a tensor lie; by its shape and type where no length is stated.
    Raises ValueError where it says that in no number, of no file, or of other bytes than its shape
    takes."""
    from onnx import TensorProto, helper

    kind = tensor.data_type
    if kind not in helper.get_all_tensor_dtypes() or kind in (0, TensorProto.STRING):
        raise ValueError(f"'{tensor.name}' is of the data type {kind}, which has no fixed size")
    name = TensorProto.DataType.Name(kind)
    bits = 8 * helper.tensor_dtype_to_np_dtype(kind).itemsize
    packed = [n for n in (2, 4) if name.startswith((f"INT{n}", f"UINT{n}", f"FLOAT{n}E"))]
    wanted = (math.prod(tensor.dims) * min([bits, *packed]) + 7) // 8
    entries = {entry.key: entry.value for entry in tensor.external_data}
    offset, length = (
        _number(tensor.name, entries, key, other)
        for key, other in (("offset", 0), ("length", wanted))
    )
    if length != wanted or length < 0:
        raise ValueError(
            f"'{tensor.name}' of the shape {list(tensor.dims)} has {length} bytes, "
            f"expected {max(wanted, 0)}"
        )
    if not entries.get("location"):
        raise ValueError(f"'{tensor.name}' names no file")
    return External(file=entries["location"], offset=offset, length=wanted)


def _number(tensor: str, entries: dict[str, str], key: str, default: int) -> int:
    if key not in entries:
        return default
    text = entries[key]
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"the {key} of '{tensor}' is {text[:40]!r}, expected a number")
    return int(text)


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
    """Return a number of some bytes, and where it ends. Raises WireError where it is cut off."""
    value = shift = 0
    while position < end and shift < 70:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"a number is cut off at byte {position}")
