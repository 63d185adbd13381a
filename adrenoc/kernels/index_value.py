"""Integer arithmetic of indices on other operands: expressions, or arrays of numbers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import Expr, iconst, tirx

_BINARY = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
}

_COMPARED = {
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
}
_JOINED = {tirx.And: np.logical_and, tirx.Or: np.logical_or}

Values = Sequence[tuple[Expr, Any]]
"""Variables, and what each stands for."""


class UnknownFormError(Exception):
    """An index is more than sums, products, quotients and remainders."""


def index_value(index: Expr, values: Values) -> Any:
    """Return an index where its variables are int32 expressions, or arrays of numbers.

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
    return compute(*(index_value(side, values) for side in _sides(index)))


def _sides(binary: Any) -> tuple[Expr, Expr]:
    return binary.a, binary.b


def index_expr(index: Expr, values: Values) -> Expr:
    """Return an index where its variables are int32 expressions.

    Raises:
        UnknownFormError: it is more than arithmetic of these.
    """
    value = index_value(index, values)
    return iconst(value) if isinstance(value, int) else value


def truth_value(condition: Expr, values: Values) -> Any:
    """Return a condition where its variables are arrays of numbers.

    Raises:
        UnknownFormError: it is more than comparisons of arithmetic of these.
    """
    if isinstance(condition, tirx.Not):
        return np.logical_not(truth_value(condition.a, values))
    joined, compared = _JOINED.get(type(condition)), _COMPARED.get(type(condition))
    if joined is not None:
        return joined(*(truth_value(side, values) for side in _sides(condition)))
    if compared is None:
        raise UnknownFormError
    return compared(*(index_value(side, values) for side in _sides(condition)))
