"""Operators between a variable and the memory of its state (`variables.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import dtype_of, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result, Value
from adrenoc.importers.tflite.quant import QUANTISED_RANGES, subtract_zeros
from adrenoc.importers.tflite.variables import FIRST, FROM_STATE, TO_STATE


def _from_state(node: Node) -> Value:
    """Return what a variable holds: its first value, and how far the state says that it is from
    that."""
    info, held = node.results[0], node.data(0)
    if info.is_quantised:
        held = held if dtype_of(held) == "float32" else node.emit(held.astype("float32"))
    value = _shift(node, held, relax.op.add)
    if info.is_quantised:
        low, high = (float(bound - info.zero) for bound in QUANTISED_RANGES[info.dtype])
        value = node.emit(relax.op.clip(relax.op.round(value), low, high))
    return Value(info=info, made=value)


def _to_state(node: Node) -> Result:
    """Return how far a value is from the first one of its variable."""
    value = _shift(node, node.value(0).expr, relax.op.subtract)
    wanted = node.results[0].dtype
    return value if dtype_of(value) == wanted else value.astype(wanted)


def _shift(
    node: Node, x: relax.Expr, change: Callable[[relax.Expr, relax.Expr], relax.Expr]
) -> relax.Expr:
    info = node.results[0] if node.operator.kind == FROM_STATE else node.info(0)
    stored = node.option(FIRST)
    first = subtract_zeros(replace(info, value=stored)) if info.is_quantised else stored
    first = np.asarray(first).astype(dtype_of(x))
    return node.emit(change(x, make_constant(first))) if first.any() else x


STATE_OPS: dict[str, Convert] = {FROM_STATE: _from_state, TO_STATE: _to_state}
