"""Integer arithmetic of indices on other operands: expressions, or arrays of numbers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from adrenoc.tvmapi import Expr, iconst, tirx

_BINARY = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
}

Values = Sequence[tuple[Expr, Any]]
"""Variables, and what each stands for."""


class UnknownFormError(Exception):
    """An index is more than sums, products, quotients and remainders."""


def index_value(index: Expr, values: Values) -> Any:
    """An index where its variables are int32 expressions, or arrays of numbers.

    Raises:
        UnknownFormError: it is more than arithmetic of these.
    """
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    if isinstance(index, tirx.Cast):
        return index_value(index.value, values)
    for var, value in values:
        if index.same_as(var):
            return value
    if isinstance(index, tirx.Div):
        return tirx.truncdiv(*(index_expr(part, values) for part in (index.a, index.b)))
    compute = _BINARY.get(type(index))
    if compute is None:
        raise UnknownFormError
    return compute(index_value(index.a, values), index_value(index.b, values))


def index_expr(index: Expr, values: Values) -> Expr:
    """An index where its variables are int32 expressions.

    Raises:
        UnknownFormError: it is more than arithmetic of these.
    """
    value = index_value(index, values)
    return iconst(value) if isinstance(value, int) else value
