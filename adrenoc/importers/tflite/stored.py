"""Stored bytes of a constant as an array."""

from __future__ import annotations

import math

import numpy as np

_NIBBLE = 4


def decode_stored(stored: np.ndarray, dtype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    """The stored bytes as an array; two numbers of four bits lie in a byte, the lower one first."""
    count = math.prod(shape)
    if dtype == "int4":
        pairs = np.stack([stored & 15, stored >> _NIBBLE], -1).reshape(-1)[:count]
        return ((pairs.astype(np.int8) ^ 8) - 8).reshape(shape)
    wanted = count * np.dtype(dtype).itemsize
    if stored.nbytes != wanted:
        raise ValueError(f"'{name}' stores {stored.nbytes} bytes, expected {wanted}")
    return stored.view(dtype).reshape(shape)
