"""Control flow without resources, and what stands for a graph of its own, written out.

Before → after:
    y = STABLEHLO_COMPOSITE(x) {f}       y = f(x)
    y = IF(c, x) {then: f, else: g}      y = where(c, f(x), g(x)), or one of them where c is known
    y = WHILE(n, x) {n < 2} {n+1, f(x)}  y = f(f(x))

Operators between a variable and the memory of its state (`variables.py`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import (
    QUANTISED_RANGES,
    Result,
    TensorValue,
    TfliteNode,
    subtract_zeros,
)
from adrenoc.importers.tflite.variables import BODY, COMPOSITE, FIRST, FROM_STATE, TO_STATE

MOST_ITERATIONS = 1024
"""Longer loops are refused: each iteration becomes kernels of its own."""

BY_DATA = (
    "it loops as many times as data tell, and a program for the GPU has a fixed number of steps"
)
_SUPPRESSION = "suppression"
_OF_BOXES = (
    ": tf.image.non_max_suppression is an operator and no loop, where non_max_suppression_padded "
    "is one; or give boxes and scores as outputs, and select on the CPU"
)
"""What to do about the loop of TensorFlow that its tensors' names tell."""


class LoopOfDataError(RefusedError):
    """How often a loop runs is known at run time alone."""


def _if(node: TfliteNode) -> list[Result]:
    numbers = [int(node.option(f"{name}SubgraphIndex")) for name in ("Then", "Else")]
    values = [node.value(i) for i in range(1, len(node.inputs))]
    condition = constant_value(node.data(0))
    if condition is not None:
        return list(node.call(numbers[0 if condition.reshape(-1)[0] else 1], values))
    branches = [node.call(number, values) for number in numbers]
    choice = node.emit(relax.op.reshape(node.data(0), []))
    # Both are computed: they have no effects, and kernels cannot be skipped.
    return [
        TensorValue(info=a.info, made=node.emit(relax.op.where(choice, a.expr, b.expr)))
        for a, b in zip(*branches, strict=True)
    ]


def _while(node: TfliteNode) -> list[Result]:
    condition, body = (int(node.option(f"{name}SubgraphIndex")) for name in ("Cond", "Body"))
    values = [node.value(i) for i in range(len(node.inputs))]
    for _ in range(MOST_ITERATIONS):
        known = constant_value(node.call(condition, values)[0].expr)
        if known is None:
            suppresses = any(_SUPPRESSION in result.name for result in node.results)
            raise LoopOfDataError(BY_DATA + (_OF_BOXES if suppresses else ""))
        if not known.reshape(-1)[0]:
            return list(values)
        values = node.call(body, values)
    raise RefusedError(f"more iterations than {MOST_ITERATIONS}, expected at most as many")


def _from_state(node: TfliteNode) -> TensorValue:
    """Return what a variable holds: its first value, and how far the state is from that."""
    info, held = node.results[0], node.data(0)
    if info.is_quantised:
        held = held if dtype_of(held) == "float32" else node.emit(held.astype("float32"))
    value = _shift(node, held, relax.op.add)
    if info.is_quantised:
        low, high = (float(bound - info.zero) for bound in QUANTISED_RANGES[info.dtype])
        value = node.emit(relax.op.clip(relax.op.round(value), low, high))
    return TensorValue(info=info, made=value)


def _to_state(node: TfliteNode) -> Result:
    """Return how far a value is from the first one of its variable."""
    value = _shift(node, node.value(0).expr, relax.op.subtract)
    wanted = node.results[0].dtype
    return value if dtype_of(value) == wanted else value.astype(wanted)


def _shift(
    node: TfliteNode, x: relax.Expr, change: Callable[[relax.Expr, relax.Expr], relax.Expr]
) -> relax.Expr:
    info = node.results[0] if node.operator.kind == FROM_STATE else node.info(0)
    stored = node.option(FIRST)
    first = subtract_zeros(replace(info, value=stored)) if info.is_quantised else stored
    first = np.asarray(first).astype(dtype_of(x))
    return node.emit(change(x, make_constant(first))) if first.any() else x


STATE_OPS: dict[str, Convert] = {FROM_STATE: _from_state, TO_STATE: _to_state}


CONTROL_OPS: dict[str, Convert] = {
    "IF": _if,
    "STABLEHLO_WHILE": _while,
    "WHILE": _while,
    COMPOSITE: lambda node: list(
        node.call(int(node.option(BODY)), [node.value(i) for i in range(len(node.inputs))])
    ),
}
