"""Stored bytes of a constant: within the tables of the file or behind them, and as an array."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import flatbuffers
import numpy as np

_NIBBLE = 4


def read_behind(buffer: Any, content: bytes) -> np.ndarray:
    """Return the bytes that a buffer names behind all tables, as files of 2 GB have them; none as a
    rule.

    Raises:
        ValueError: they lie outside of the file.
    """
    begin, size = int(buffer.Offset()), int(buffer.Size())
    if begin <= 1:  # 1 is what a writer puts there before it knows
        return np.zeros(0, np.uint8)
    if begin + size > len(content):
        raise ValueError(f"a buffer ends at byte {begin + size} of {len(content)}")
    return np.frombuffer(content, np.uint8, size, begin)


def number_names(names: Iterable[str]) -> list[str]:
    """Tell tensors of one name apart, as a file may have them: `t`, `t__1`, `t__2`."""
    seen: Counter[str] = Counter()
    found = []
    for index, given in enumerate(names):
        name = given or f"tensor_{index}"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}__{seen[name] - 1}")
    return found


def decode_stored(stored: np.ndarray, dtype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return the stored bytes as an array; two numbers of four bits lie in a byte, the lower one
    first."""
    count = math.prod(shape)
    if dtype == "int4":
        pairs = np.stack([stored & 15, stored >> _NIBBLE], -1).reshape(-1)[:count]
        return ((pairs.astype(np.int8) ^ 8) - 8).reshape(shape)
    wanted = count * np.dtype(dtype).itemsize
    if stored.nbytes != wanted:
        raise ValueError(f"'{name}' stores {stored.nbytes} bytes, expected {wanted}")
    return stored.view(dtype).reshape(shape)


_BUILTIN_CODE = 10
"""Where the vtable of an operator's code has its newer number, from 127 on and below it."""


def builtin_code(code: Any) -> int:
    """Return the newer number as it is stored: the package gives the older one in its place below
    127."""
    table = code._tab
    at = table.Offset(_BUILTIN_CODE)
    return int(table.Get(flatbuffers.number_types.Int32Flags, at + table.Pos)) if at else 0
