"""Products of two tensors of which only ratios or roots are read, as similarities have them.

The product of two lengths of 300 is beyond half, and that of two of 1e-4 is zero there, while what
one divides by them is of the size of one.  Products that are added to other tensors, or read by
convolutions, are of the size of the model's activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.graph import Body, Graph, Node
from adrenoc.passes.scalar_body import loaded
from adrenoc.tvmapi import Call, Expr, tirx, tvm

ADDING = (
    *("sum", "mean", "max", "prod", "adaptive_avg_pool2d"),
    *("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"),
)
"""Operators whose results are about as large as what they read, or as the sum of it."""

_BOUNDED = ("tirx.sigmoid", "tirx.tanh", "tirx.erf", "tirx.sin", "tirx.cos")
_ROOTS = ("tirx.sqrt", "tirx.rsqrt", "tirx.log", "tirx.log2")


def products_of_ratios(graph: Graph) -> dict[str, str]:
    """The tensors of such products and of their sums, each with the node that it is kept for."""
    products: set[str] = set()
    for node in graph.nodes:
        if _is_product(node, products):
            products.add(node.output)
    kept: dict[str, str] = {}
    for node in reversed(graph.nodes):
        for name in _relative(node):
            if name in products:
                kept.setdefault(name, node.name)
        if node.output in kept:
            for name in products.intersection(node.inputs):
                kept.setdefault(name, kept[node.output])
    return kept


def _is_product(node: Node, products: set[str]) -> bool:
    held = node.op in ADDING and node.prologue is None and node.inputs[0] in products
    for body in (node.prologue, node.body, node.epilogue):
        if body is not None:
            names = products | {Node.RESULT} if held else products
            held = not body.reduced and _multiplies(body.value, body, names)
    return held


def _multiplies(value: Expr, body: Body, products: set[str]) -> bool:
    """Whether a part is two loaded factors, or such a product times, plus or above a number."""
    if isinstance(value, tvm.ir.TensorLoad):
        return _name(body, value) in products
    if isinstance(value, tirx.Mul) and all(loaded(side) for side in (value.a, value.b)):
        return not any(_is_bounded(side) for side in (value.a, value.b))
    if isinstance(value, tirx.Mul | tirx.Add | tirx.Max):
        for side, other in ((value.a, value.b), (value.b, value.a)):
            if not loaded(other):
                return _multiplies(side, body, products)
    return isinstance(value, tirx.Cast) and _multiplies(value.value, body, products)


def _is_bounded(value: Expr) -> bool:
    return isinstance(value, Call) and value.op.name in _BOUNDED


def _relative(node: Node) -> Iterator[str]:
    """The tensors that a node divides, divides by, or takes a root of."""
    for body in node.bodies:
        for part in _ratio_parts(body):
            for load in _terms(part):
                name = _name(body, load)
                yield node.inputs[0] if name == Node.RESULT and node.op in ADDING else name


def _ratio_parts(body: Body) -> list[Expr]:
    found: list[Expr] = []

    def note(part: Any) -> Any:
        if isinstance(part, tirx.Div):
            if loaded(part.b):
                found.extend((part.a, part.b))
        elif isinstance(part, Call) and part.op.name in _ROOTS:
            found.append(part.args[0])
        return part

    structural_map(body.value, (tvm.ir.Expr, note))
    return found


def _terms(value: Expr) -> Iterator[Any]:
    """The loads that a part multiplies, or keeps apart from a number."""
    if isinstance(value, tvm.ir.TensorLoad):
        yield value
    elif isinstance(value, tirx.Mul):
        yield from _terms(value.a)
        yield from _terms(value.b)
    elif isinstance(value, tirx.Add | tirx.Max):
        if not loaded(value.a) or not loaded(value.b):
            yield from _terms(value.a)
            yield from _terms(value.b)
    elif isinstance(value, tirx.Cast):
        yield from _terms(value.value)


def _name(body: Body, load: Any) -> str:
    return next((n for b, n in body.sources.items() if b.same_as(load.source)), "")
