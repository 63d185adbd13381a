"""Bounds on what a TFLite file may stand for: its offsets may lead to one place many times.

A table that a million entries name is a million graphs, operators or constants to who walks them,
from a file of a few megabytes; in flexbuffers, lists within lists double with each level.
"""

from __future__ import annotations

from typing import Any

MOST_TABLES = 200_000
"""Graphs, tensors, operators and buffers in all."""

_FREE_BYTES = 256 << 20
_MOST_TIMES = 16
"""What vectors and constants may take of memory, of the file's size: converters do share some."""

_MOST_STORED_BYTES = 256 << 10
_MOST_ITEMS = 10_000
_MOST_DEPTH = 16
"""Of the options of a custom operator."""


class Budget:
    """What reading a file of `size` bytes may still take."""

    def __init__(self, size: int) -> None:
        self._tables = MOST_TABLES
        self._bytes = max(_FREE_BYTES, _MOST_TIMES * size)

    def tables(self, count: int) -> int:
        """Count so many tables that are read, and hand back their count.

        Raises:
            ValueError: there are more than any model has.
        """
        self._tables -= count
        if self._tables < 0:
            raise ValueError(f"it has more than {MOST_TABLES} graphs, tensors, operators, buffers")
        return count

    def memory(self, count: int) -> None:
        """Count so many bytes that are taken for what the file holds.

        Raises:
            ValueError: its tables name the same bytes again and again.
        """
        self._bytes -= count
        if self._bytes < 0:
            raise ValueError("its tables stand for far more bytes than it has")


def read_custom_options(node: Any) -> tuple[dict[str, Any], bytes]:
    """Return the options of a custom operator of the file, and its bytes where these are no map.

    Raises:
        ValueError: see `custom_options`.
    """
    found = node.CustomOptionsAsNumpy()
    stored = b"" if isinstance(found, int) else bytes(found)
    options = custom_options(stored) if stored else {}
    return options, b"" if options else stored


def custom_options(stored: bytes) -> dict[str, Any]:
    """Return the options of a custom operator, a map in flexbuffers; none where it is something
    else.

    Raises:
        ValueError: lists and maps hold each other too deeply or too often.
    """
    from flatbuffers import flexbuffers

    if len(stored) > _MOST_STORED_BYTES:
        raise ValueError(f"a custom operator has options of {len(stored)} bytes")
    try:
        root = flexbuffers.GetRoot(stored)
    except ValueError:  # too few bytes for one
        return {}
    found = _value(root, [_MOST_ITEMS], 0)
    return found if isinstance(found, dict) else {}


def _value(place: Any, left: list[int], depth: int) -> Any:
    """Return a value of plain Python, at a place; `left` counts what may still be read."""
    left[0] -= 1
    if left[0] < 0 or depth > _MOST_DEPTH:
        raise ValueError("the options of a custom operator hold each other")
    if place.IsMap:
        held = place.AsMap
        _check_count(len(held), left)
        keys, values = held.Keys, held.Values
        return {
            keys[index].AsKey: _value(values[index], left, depth + 1) for index in range(len(held))
        }
    for is_one, how in (
        (place.IsVector, "AsVector"),
        (place.IsTypedVector, "AsTypedVector"),
        (place.IsFixedTypedVector, "AsFixedTypedVector"),
    ):
        if not is_one:
            continue
        held = getattr(place, how)
        _check_count(len(held), left)
        return [_value(held[index], left, depth + 1) for index in range(len(held))]
    if place.IsString:  # TensorFlow's own operators keep a serialised node there, not text
        return bytes(place.AsStringBytes).decode("utf-8", errors="replace")
    return place.Value


def _check_count(count: int, left: list[int]) -> None:
    if count > left[0]:
        raise ValueError(f"the options of a custom operator hold {count} values")
