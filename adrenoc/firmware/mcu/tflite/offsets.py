"""Tables of offsets for moves: where each index of an axis reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adrenoc.base.refused import RefusedError


def offsets_of(
    shape: Sequence[int], indices: Sequence[np.ndarray], axes: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four tables of a move: what each index of an axis reads, by the source's index on each axis
    (-1: outside) and its axes in order."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    found = []
    for axis, index in zip(axes or range(len(shape)), indices, strict=True):
        offsets = np.where(index < 0, -1, index * steps[axis])
        if len(offsets) > 1 or offsets[0]:
            found.append(offsets)
    if len(found) > 4:
        raise RefusedError(f"{len(found)} axes of more than one element")
    found = [np.zeros(1, np.int64)] * (4 - len(found)) + found
    return found[0], found[1], found[2], found[3]
