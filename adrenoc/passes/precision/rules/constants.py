"""Constants that halves cannot hold, and what is computed by them.

A weight of a million is infinite in half, and weights that all lie below 2^-14 have few digits or
none left: an epilogue that brings the result back to one comes too late.  A constant that is only
added, as a bias or a mask is, stays in float32 alone.  What such a constant is multiplied by, or
that is read from it, is stored in float32 too, as a precision policy would have it, and so is what
hands it on.

Before -> after (mixed):
    %y = conv2d(%x, %w)             the same, and y, b and p stay in float32
             max|w| = 1e6, max|b| = 1e-6
         epilogue + %b
    %p = max_pool2d(%y)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from adrenoc.families.operators import gives
from adrenoc.families.shared.operator import Numbers
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX, explain_not_half
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.expression import Expression
from adrenoc.tvmapi import IF_THEN_ELSE, Call, tirx, tvm


def constants(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The constants beyond half, the tensors that they scale, and those that hand these on."""
    graph = analysis.graph
    reasons = _reasons(graph)
    carried: set[str] = set()
    for node in graph.nodes if reasons else ():
        if not node.has_kernel or not graph.tensors[node.output].is_float:
            continue
        read = [name for name in node.inputs if name in reasons]
        yield from ((name, reasons[name]) for name in read)
        scaled = next((n for n in read if _changes_size(analysis, node, n)), None)
        if scaled is not None:
            yield node.output, f"{scaled} stays in float32 and makes it"
        elif handed := _hands_on(analysis, node, carried):
            yield node.output, f"it hands on {handed}"
        else:
            continue
        carried.add(node.output)


def _reasons(graph: Graph) -> dict[str, str]:
    """The constants that half cannot hold, each with the reason."""
    return {
        name: reason
        for name, tensor in graph.tensors.items()
        if tensor.value is not None
        and tensor.is_float
        and (reason := explain_not_half(tensor.value))
    }


def _changes_size(analysis: Analysis, node: Node, name: str) -> bool:
    """Whether a node's result is about as far beyond half as the constant that it reads."""
    expressions = analysis.expressions[node.output]
    readers = [e for e in expressions if name in e.body.sources.values()]
    if not readers:
        return True  # weights of the operator itself
    if analysis.graph.precision(node.output).rounded:
        return False  # multiples of a quantum, which the factor has brought about
    if analysis[name].interval.high > HALF_MAX:
        return True
    return any(_is_scaled_by(expression, name) for expression in readers)


def _is_scaled_by(expression: Expression, name: str) -> bool:
    """Whether an expression is a constant's element, or multiplies it or computes with it."""
    value = expression.body.value
    if _is_load(value):
        return True
    return any(name in expression.reads(part) for part in _terms(value) if not _is_load(part))


def _hands_on(analysis: Analysis, node: Node, carried: Collection[str]) -> str:
    """The carried tensor that a node's results are as large as, empty where there is none.

    Of a choice, as a concatenation is, one carried tensor is enough; of a sum all terms have to be.
    """
    tensors = [analysis.graph.tensors[name] for name in node.inputs]
    computed = [tensor.name for tensor in tensors if tensor.is_float and tensor.value is None]
    found = next((n for n in computed if n in carried), "")
    hands_on = gives(node, Numbers.AVERAGED, Numbers.PICKED)
    if not found or not (node.is_map or node.is_concat or hands_on):
        return ""
    expressions = analysis.expressions[node.output]
    for e in expressions:
        if not all(_is_load(part) or not e.reads(part) for part in _terms(e.body.value)):
            return ""
    chosen = all(_is_load(part) for e in expressions for part in _choices(e.body.value))
    return found if chosen or all(n in carried for n in computed) else ""


def _choices(value: Any) -> Iterator[Any]:
    """The parts of which an expression is one."""
    if isinstance(value, tirx.Select):
        branches = (value.true_value, value.false_value)
    elif isinstance(value, Call) and value.op.name == IF_THEN_ELSE:
        branches = tuple(value.args[1:])
    else:
        yield value
        return
    for branch in branches:
        yield from _choices(branch)


def _terms(value: Any) -> Iterator[Any]:
    """The parts of which an expression is a sum, the largest, or a choice."""
    for part in _choices(value):
        if isinstance(part, tirx.Add | tirx.Sub | tirx.Max | tirx.Min):
            yield from _terms(part.a)
            yield from _terms(part.b)
        else:
            yield part


def _is_load(value: Any) -> bool:
    return isinstance(value, tvm.ir.TensorLoad)
