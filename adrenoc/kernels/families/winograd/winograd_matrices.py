"""The matrices of Winograd's minimal filtering F(m, 3), made from interpolation points.

A 1-D convolution of m + 2 inputs by 3 weights gives m outputs; as the product of polynomials at
m + 2 points it needs m + 2 multiplications instead of 3 m:

    y = A^T ((G w) * (B^T d))

Applied to rows and columns, F(m x m, 3 x 3) needs (m + 2)^2 multiplications for m^2 outputs.
Points beyond 0, 1, -1 make the numbers in between larger, and so the rounding coarser.

Source: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin and S. Gray, Fast
Algorithms for Convolutional Neural Networks (2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from adrenoc.ir.program import Matrix

TAPS = 3
_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2))


@dataclass(frozen=True, kw_only=True)
class Winograd:
    """F(m, 3): `side` = m + 2 inputs a tile and axis."""

    outputs: int
    input_transform: Matrix
    """B^T, [side, side]."""
    output_transform: Matrix
    """A^T, [outputs, side]."""
    weight_transform: Matrix
    """G, [side, 3]."""

    @property
    def side(self) -> int:
        """Inputs a tile along one axis."""
        return self.outputs + TAPS - 1

    @property
    def growth(self) -> int:
        """A power of two: a number of a transformed tile is at most so many times an input."""
        largest = max(sum(abs(c) for c in row) for row in self.input_transform) ** 2
        return 1 << (math.ceil(largest) - 1).bit_length()

    @property
    def weight_growth(self) -> float:
        """A transformed weight is at most so many times the largest weight."""
        return float(max(sum(abs(c) for c in row) for row in self.weight_transform)) ** 2


@lru_cache
def winograd(outputs: int) -> Winograd:
    """F(outputs, 3), for 2 to 4 outputs."""
    points = _POINTS[: outputs + TAPS - 2]
    inputs, weights = [], []
    for at in points:
        others = [p for p in points if p != at]
        scale = Fraction(1)
        for other in others:
            scale *= at - other
        # The smallest whole factor that leaves both rows without sign changes of their own.
        sign = -1 if scale < 0 else 1
        inputs.append(tuple(sign * c for c in (*_polynomial(others), Fraction(0))))
        weights.append(tuple(sign * at**k / scale for k in range(TAPS)))
    inputs.append(_polynomial(list(points)))
    weights.append((Fraction(0),) * (TAPS - 1) + (Fraction(1),))
    output = [
        (*(p**i for p in points), Fraction(1 if i == outputs - 1 else 0)) for i in range(outputs)
    ]
    return Winograd(
        outputs=outputs,
        input_transform=tuple(inputs),
        output_transform=tuple(output),
        weight_transform=tuple(weights),
    )


def _polynomial(roots: list[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the product of (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [root * c for c in coefficients] + [Fraction(0)]
        coefficients = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return tuple(coefficients)
