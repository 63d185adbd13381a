"""Constants in the dtype that they are stored in, computed from others in full precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Compute = Callable[[np.ndarray], np.ndarray]

PART_ELEMENTS = 1 << 18
"""Elements of a constant that are computed with at a time: in double precision they stay in a
cache, and what they become is not held whole beside what is stored."""

_HALF_INFINITE = np.float16(np.inf).view(np.uint16) << 1
"""The bits of an infinite half without its sign."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounded:
    """A constant as it is stored, and how many finite numbers became infinite.

    `largest` is the largest of all finite numbers, 0 where none became infinite.
    """

    value: np.ndarray
    lost: int
    largest: float


def round_constant(constant: np.ndarray, dtype: str, compute: Compute | None = None) -> Rounded:
    """`compute` of a constant, as `dtype`.

    It is given some of the rows along the first axis at a time, and has to give as many, each made
    of its own row alone.
    """
    if compute is None:
        return _round(constant, dtype)
    rows = max(1, PART_ELEMENTS * len(constant) // max(constant.size, 1))
    value: np.ndarray | None = None
    lost, largest = 0, 0.0
    for begin, part in _parts(constant, rows):
        made = _round(compute(part), dtype)
        if value is None:
            value = np.empty((len(constant), *made.value.shape[1:]), made.value.dtype)
        value[begin : begin + rows] = made.value
        lost, largest = lost + made.lost, max(largest, made.largest)
    if value is None:  # no rows
        return _round(compute(constant), dtype)
    return Rounded(value=value, lost=lost, largest=largest)


def _parts(constant: np.ndarray, rows: int) -> Iterator[tuple[int, np.ndarray]]:
    for begin in range(0, len(constant), rows):
        yield begin, constant[begin : begin + rows]


def _round(value: np.ndarray, dtype: str) -> Rounded:
    with np.errstate(over="ignore"):
        stored = value.astype(dtype, copy=False)
    lost = 0
    if dtype == "float16":
        # As bits: of halves NumPy makes floats one by one to ask whether they are infinite.
        infinite = stored.view(np.uint16) << 1 == _HALF_INFINITE
        lost = int(np.count_nonzero(infinite & np.isfinite(value))) if infinite.any() else 0
    largest = float(np.abs(value[np.isfinite(value)]).max()) if lost else 0.0
    return Rounded(value=stored, lost=lost, largest=largest)
