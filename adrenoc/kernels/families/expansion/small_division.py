"""Quotient and remainder of small numbers, by a multiplication and a shift.

An Adreno has no division: compilers make some thirty instructions of one by a constant, as many
of the remainder, and more where they cannot rule out that a number is negative.
"""

from __future__ import annotations

from adrenoc.base.tvmapi import Expr, floordiv, iconst
from adrenoc.kernels.statements import Statements

BITS = 31
"""The bits of a number that is not negative."""


def divide_by_constant(
    builder: Statements, value: Expr, divisor: int, most: int, hints: tuple[str, str]
) -> tuple[Expr, Expr]:
    """Quotient and remainder of a named value in 0 to `most`; `hints` are for their names.

    Numbers too large for that are divided.
    """
    if most < divisor:
        return iconst(0), value
    if divisor == 1:
        return value, iconst(0)
    found = reciprocal(divisor, most)
    if found is None:
        quotient = floordiv(value, divisor)
    else:
        quotient = (value * iconst(found[0])) >> iconst(found[1])
    quotient = builder.share(quotient, hints[0])
    return quotient, builder.share(value - quotient * iconst(divisor), hints[1])


def reciprocal(divisor: int, most: int) -> tuple[int, int] | None:
    """(factor, shift): `n * factor >> shift` is `n // divisor` for 0 <= n <= most.

    The factor is above 2^shift / divisor by `over / divisor`; as long as n times `over` is below
    2^shift the quotient is not, even of the largest remainder.  None: no product of 31 bits does.
    """
    for shift in range(BITS):
        factor = -(-(1 << shift) // divisor)
        over = factor * divisor - (1 << shift)
        if most * factor >= 1 << BITS:
            break
        if most * over < 1 << shift:
            return factor, shift
    return None
