"""Keep in float32 the constants that halves cannot hold, and what is computed by them.

A weight of a million is infinite in half, and weights that all lie below 2^-14 have few digits or
none left: an epilogue that brings the result back to one comes too late.  A constant that is only
added, as a bias or a mask is, stays in float32 alone.  What such a constant is multiplied by, or
that is read from it, is stored in float32 too, as a precision policy would have it, and so is what
hands it on.

Before -> after (mixed):
    %y = conv2d(%x, %w)             the same, and y, b, p stay in float32
             max|w| = 1e6, max|b| = 1e-6
         epilogue + %b
    %p = max_pool2d(%y)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from adrenoc.families.operators import gives
from adrenoc.families.shared.operator import Numbers
from adrenoc.ir.body import Body, loaded
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX, beyond_half
from adrenoc.passes.context import Context
from adrenoc.tvmapi import IF_THEN_ELSE, Call, tirx, tvm


def keep_constants(graph: Graph, context: Context) -> Graph:
    """Mark the constants beyond half, the tensors that they scale, and those that hand these on."""
    log = context.log
    reasons = {
        name: reason
        for name, tensor in graph.tensors.items()
        if tensor.value is not None and tensor.is_float and (reason := beyond_half(tensor.value))
    }
    exact: set[str] = set()
    carried: set[str] = set()
    for node in graph.nodes if reasons else ():
        if not node.has_kernel or not graph.tensors[node.output].is_float:
            continue
        read = [name for name in node.inputs if name in reasons]
        exact.update(read)
        scaled = next((n for n in read if _changes_size(graph, node, n)), None)
        if scaled is not None:
            why = f"{scaled} stays in float32 and makes it"
        elif handed := _hands_on(graph, node, carried):
            why = f"it hands on {handed}"
        else:
            continue
        carried.add(node.output)
        if not graph.precision(node.output).float32:
            log.add(node.output, "float32", why)
    for name in sorted(exact):
        log.add(name, "float32", reasons[name])
    return graph.with_precision(exact | carried, float32=True)


def _changes_size(graph: Graph, node: Node, name: str) -> bool:
    """Whether a node's result is about as far beyond half as the constant that it reads."""
    bodies = [body for body in node.bodies if name in body.sources.values()]
    if not bodies:
        return True  # weights of the operator itself
    if graph.precision(node.output).rounded:
        return False  # multiples of a quantum, which the factor has brought about
    value = graph.tensors[name].value
    if value is not None and value.max() > HALF_MAX:
        return True
    return any(_is_scaled_by(body, name) for body in bodies)


def _is_scaled_by(body: Body, name: str) -> bool:
    """Whether an expression is a constant's element, or multiplies it or computes with it."""
    if isinstance(body.value, tvm.ir.TensorLoad):
        return True
    return any(name in _names(body, part) for part in _terms(body.value) if not _is_load(part))


def _hands_on(graph: Graph, node: Node, carried: Collection[str]) -> str:
    """The carried tensor that a node's results are as large as, empty where there is none.

    Of a choice, as a concatenation is, one carried tensor is enough; of a sum all terms have to be.
    """
    floats = (n for n in node.inputs if graph.tensors[n].is_float)
    computed = [n for n in floats if graph.tensors[n].value is None]
    found = next((n for n in computed if n in carried), "")
    hands_on = gives(node, Numbers.AVERAGED, Numbers.PICKED)
    if not found or not (node.is_map or node.is_concat or hands_on):
        return ""
    for body in node.bodies:
        if not all(_is_load(part) or not loaded(part) for part in _terms(body.value)):
            return ""
    chosen = all(_is_load(part) for body in node.bodies for part in _choices(body.value))
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


def _names(body: Body, value: Any) -> list[str]:
    """The tensors that a part of an expression reads."""
    return [n for b in loaded(value) for buffer, n in body.sources.items() if buffer.same_as(b)]
