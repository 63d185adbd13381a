"""Rows of Winograd's matrices, and tiles, whose number is not known while compiling."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from adrenoc.base.tvmapi import Expr, fconst, iconst, select, tirx


def two_terms(row: Sequence[Fraction]) -> tuple[int, int, int]:
    """Return a row of the transform as `a + sign * b`: a, b, sign."""
    first, second = sorted((u for u, c in enumerate(row) if c), key=lambda u: row[u], reverse=True)
    return first, second, int(row[second])


def quotient(number: Expr, by: int) -> Expr:
    """`number // by` of what is never negative, which TVM does not know of a name.

    Before -> after:
        t0 / 6 + (t0 % 6 >> 31)    t0 / 6
    """
    return tirx.truncdiv(number, iconst(by))


def remainder(number: Expr, by: int) -> Expr:
    """Return what `quotient` leaves.

    Before -> after:
        t0 % 6 + (6 & t0 % 6 >> 31)    t0 % 6
    """
    return tirx.truncmod(number, iconst(by))


def pick(index: Expr, values: Sequence[int]) -> Expr:
    """Return the value at an index that is not known while compiling."""
    return _select_value(index, [iconst(value) for value in values])


def signs_of(index: Expr, values: Sequence[int], size: float, dtype: str) -> Expr:
    """Pick `size` times a sign (1 or -1) at an index that is not known while compiling."""
    return _select_value(index, [fconst(size * value, dtype) for value in values])


def _select_value(index: Expr, values: Sequence[Expr]) -> Expr:
    chosen = values[-1]
    for at in reversed(range(len(values) - 1)):
        chosen = select(index == iconst(at), values[at], chosen)
    return chosen
