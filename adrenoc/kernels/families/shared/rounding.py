"""Constants in the dtype that they are stored in, and what Winograd's algorithm makes of those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.bundle.filter_transform import FilterTransform
from adrenoc.ir.program import Matrix

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


def round_constant(constant: np.ndarray, dtype: str, transform: Matrix | None = None) -> Rounded:
    """Return a constant as `dtype`, or what `transform` makes of its filters once they are of that
    dtype.

    What is rounded first is what a direct convolution multiplies by: a bundle for several GPUs
    holds it once for both.
    """
    if transform is None:
        return _round(constant, dtype)
    filters = FilterTransform.from_matrix(transform)
    rows = max(1, PART_ELEMENTS * len(constant) // max(constant.size, 1))
    value: np.ndarray | None = None
    lost, largest = 0, 0.0
    for begin, part in _parts(constant, rows):
        plain = _round(part, dtype)
        made = _round(filters.apply(plain.value), dtype)
        if value is None:
            value = np.empty((len(constant), *made.value.shape[1:]), made.value.dtype)
        value[begin : begin + rows] = made.value
        lost += plain.lost + made.lost
        largest = max(largest, plain.largest, made.largest)
    if value is None:  # no rows
        return _round(filters.apply(constant), dtype)
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
