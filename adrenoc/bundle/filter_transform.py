"""Filters as Winograd's algorithm multiplies with them, made in the same bits by all who make them.

A compiler makes them for kernels, and whoever loads a bundle for several GPUs makes them of the
plain filters that it holds (`adrenoc.bundle.moves`; in the runtime `bundle/filter_transform.cc`).
Sums are whole multiples of the filters, added in one order in double precision, and one division
ends them: coefficients are powers of two, so that no product is rounded and nothing is left to a
compiler that joins products and sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class FilterTransform:
    """`G w G^T` of filters `w`: row i of G is `rows[i]` over `divisors[i]`."""

    rows: tuple[tuple[int, ...], ...]
    divisors: tuple[int, ...]

    @classmethod
    def from_matrix(cls, matrix: Sequence[Sequence[Fraction]]) -> FilterTransform:
        """Return the same as whole numbers."""
        divisors = tuple(math.lcm(*(c.denominator for c in row)) for row in matrix)
        rows = (
            tuple(int(c * divisor) for c in row)
            for row, divisor in zip(matrix, divisors, strict=True)
        )
        return cls(rows=tuple(rows), divisors=divisors)

    @property
    def taps(self) -> int:
        """Rows and columns of a filter."""
        return len(self.rows[0])

    @property
    def side(self) -> int:
        """Rows and columns of what becomes of it."""
        return len(self.rows)

    def apply(self, filters: np.ndarray) -> np.ndarray:
        """Filters along the last two axes, in double precision."""
        import numpy as np

        wide = filters.astype(np.float64)
        with np.errstate(invalid="ignore"):  # what is infinite is no number then
            down = np.stack([_add(row, wide, axis=-2) for row in self.rows], axis=-2)
            across = np.stack([_add(row, down, axis=-1) for row in self.rows], axis=-1)
        divisors = np.array(self.divisors, np.float64)
        whole: np.ndarray = across / np.multiply.outer(divisors, divisors)
        return whole


def _add(factors: Sequence[int], filters: np.ndarray, axis: int) -> np.ndarray:
    """Return the sum over one axis, the first products first."""
    lines = [filters.take(at, axis) * factor for at, factor in enumerate(factors)]
    whole = lines[0]
    for line in lines[1:]:
        whole = whole + line
    return whole
