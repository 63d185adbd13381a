"""Control flow without resources, and what stands for a graph of its own, written out.

Before → after:
    y = STABLEHLO_COMPOSITE(x) {f}       y = f(x)
    y = IF(c, x) {then: f, else: g}      y = where(c, f(x), g(x)), or one of them where c is known
    y = WHILE(n, x) {n < 2} {n+1, f(x)}  y = f(f(x))
"""

from __future__ import annotations

from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import constant_value
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.inline import BODY, COMPOSITE
from adrenoc.importers.tflite.node import Node, Result, Value

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


def _if(node: Node) -> list[Result]:
    numbers = [int(node.option(f"{name}SubgraphIndex")) for name in ("Then", "Else")]
    values = [node.value(i) for i in range(1, len(node.inputs))]
    condition = constant_value(node.data(0))
    if condition is not None:
        return list(node.call(numbers[0 if condition.reshape(-1)[0] else 1], values))
    branches = [node.call(number, values) for number in numbers]
    choice = node.emit(relax.op.reshape(node.data(0), []))
    return [_choose(node, choice, a, b) for a, b in zip(*branches, strict=True)]


def _choose(node: Node, choice: relax.Expr, a: Value, b: Value) -> Value:
    """Both branches are computed: they have no effects, and kernels cannot be skipped."""
    return Value(info=a.info, made=node.emit(relax.op.where(choice, a.expr, b.expr)))


def _while(node: Node) -> list[Result]:
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


def _composite(node: Node) -> list[Result]:
    """Return what its name means to a runtime that knows it, the graph beside it says to all
    others."""
    values = [node.value(i) for i in range(len(node.inputs))]
    return list(node.call(int(node.option(BODY)), values))


CONTROL_OPS: dict[str, Convert] = {
    "IF": _if,
    COMPOSITE: _composite,
    "STABLEHLO_WHILE": _while,
    "WHILE": _while,
}
