"""Evaluate a scalar expression of TIR in numpy, part by part, in float64.

Whoever asks says what the leaves are: loads of tensors and variables of axes.  Shared parts are
computed once, and deep expressions take no deep stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import IF_THEN_ELSE, Expr, dtype_of, tirx, tvm
from adrenoc.kernels.families.shared.typical import NotKnownError
from adrenoc.passes.analyse.scalar_body import parts_of, values_of

Leaf = Callable[[Any], np.ndarray]
"""A load or a variable -> its numbers; raises NotKnownError where there are none."""


def evaluate(value: Expr, leaf: Leaf) -> np.ndarray:
    """Compute an expression; all arrays broadcast against each other.

    Raises:
        NotKnownError: it has a part that is not looked into.
    """
    found: dict[Expr, np.ndarray] = {}
    for part in parts_of(value, values_of):
        found[part] = _evaluate_part(part, found, leaf)
    return found[value]


def _evaluate_part(part: Any, found: dict[Expr, np.ndarray], leaf: Leaf) -> np.ndarray:
    if isinstance(part, tvm.ir.TensorLoad | tirx.Var):
        return leaf(part)
    if isinstance(part, tirx.FloatImm | tirx.IntImm):
        return np.asarray(part.value)
    sides = [found[side] for side in values_of(part)]
    if isinstance(part, tirx.Cast):
        return _cast(dtype_of(part), *sides)
    name = part.op.name if isinstance(part, tvm.ir.Call) else type(part)
    if name not in FUNCTIONS:
        raise NotKnownError
    with np.errstate(all="ignore"):  # infinities and NaN are values like others
        return np.asarray(FUNCTIONS[name](*sides))


def _cast(dtype: str, value: np.ndarray) -> np.ndarray:
    if dtype.startswith("float"):
        return value.astype(np.float64)
    return np.trunc(value) if value.dtype.kind == "f" else value


def _erf(x: np.ndarray) -> np.ndarray:
    """Approximate the error function to a thousandth."""
    return np.asarray(np.tanh(1.1283791670955126 * x * (1 + 0.0893 * x * x)))


COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: np.divide,
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.Not: lambda x: ~x.astype(bool),
    tirx.Select: np.where,
    IF_THEN_ELSE: np.where,
    "tirx.exp": np.exp,
    "tirx.exp2": np.exp2,
    "tirx.exp10": lambda x: np.power(10.0, x),
    "tirx.log": np.log,
    "tirx.log2": np.log2,
    "tirx.log10": np.log10,
    "tirx.log1p": np.log1p,
    "tirx.expm1": np.expm1,
    "tirx.sqrt": np.sqrt,
    "tirx.rsqrt": lambda x: 1 / np.sqrt(x),
    "tirx.pow": np.power,
    "tirx.fabs": np.abs,
    "tirx.abs": np.abs,
    "tirx.floor": np.floor,
    "prim.ceil": np.ceil,
    "tirx.trunc": np.trunc,
    "tirx.round": np.round,
    "tirx.nearbyint": np.round,
    "tirx.fmod": np.fmod,
    "tirx.tanh": np.tanh,
    "tirx.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tirx.erf": _erf,
    "tirx.sin": np.sin,
    "tirx.cos": np.cos,
    "tirx.tan": np.tan,
    "tirx.atan": np.arctan,
    "tirx.asin": np.arcsin,
    "tirx.acos": np.arccos,
    "tirx.atan2": np.arctan2,
    "tirx.sinh": np.sinh,
    "tirx.cosh": np.cosh,
    "tirx.asinh": np.arcsinh,
    "tirx.acosh": np.arccosh,
    "tirx.atanh": np.arctanh,
    "tirx.isnan": np.isnan,
    "tirx.isinf": np.isinf,
    "tirx.likely": lambda x: x,
}
"""What a kind of expression, or the function that it calls, computes of its sides."""
