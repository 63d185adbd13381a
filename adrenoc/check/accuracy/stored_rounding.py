"""Numbers as they are when a preset has stored them."""

from __future__ import annotations

import numpy as np

from adrenoc.ir.half import HALF_MAX


def round_to(value: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that remain of these in a dtype; beyond its range infinity."""
    with np.errstate(over="ignore"):
        return value.astype(dtype).astype(value.dtype)


def round_within(value: np.ndarray, dtype: str) -> np.ndarray:
    """As stored, but within the range: overflow is the fault of who made it."""
    if dtype == "float16":
        value = np.clip(value, -HALF_MAX, HALF_MAX)
    return round_to(value, dtype)
