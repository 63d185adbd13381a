"""Products of two tensors of which only ratios or roots are read, as similarities have them.

The product of two lengths of 300 is beyond half, and that of two of 1e-4 is zero there, while what
one divides by them is of the size of one.  Products that are added to other tensors, or read by
convolutions, are of the size of the model's activations.

Products of matrices are such products too where both are computed.  Linear attention adds up keys
times values over all tokens, multiplies queries by that, and divides by what the queries and the
keys alone come to: a ratio of the size of the values, of numbers that are as large as there are
tokens times three activations.

Before -> after (mixed):
    kv = matmul(k, [v, 1]); o = matmul(q, kv); y = o[.., :-1] / (o[.., -1] + 1e-15)
    the same, and kv and o stay in float32
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.body import Body, loaded
from adrenoc.ir.graph import Graph, Node
from adrenoc.tvmapi import Call, Expr, tirx, tvm

ADDING = (Numbers.SUMMED, Numbers.AVERAGED, Numbers.PICKED, Numbers.MULTIPLIED)
"""Results that are about as large as what is read, or as the sum of it."""

_BOUNDED = ("tirx.sigmoid", "tirx.tanh", "tirx.erf", "tirx.sin", "tirx.cos")
_ROOTS = ("tirx.sqrt", "tirx.rsqrt", "tirx.log", "tirx.log2")


def products_of_ratios(graph: Graph) -> dict[str, str]:
    """The tensors of such products and of their sums, each with the node that it is kept for."""
    products: set[str] = set()
    computed = {name for name, tensor in graph.tensors.items() if tensor.value is None}
    inverses = {node.output for node in graph.nodes if _is_inverse(node, computed)}
    for node in graph.nodes:
        if _is_product(node, products, computed):
            products.add(node.output)
    kept: dict[str, str] = {}
    for node in reversed(graph.nodes):
        for name in _relative(node, computed, inverses):
            if name in products:
                kept.setdefault(name, node.name)
        if node.output in kept:
            for name in products.intersection(node.inputs):
                kept.setdefault(name, kept[node.output])
    for node in graph.nodes:  # one over such a product is as small as that is large
        if node.output in inverses and _inverts_product(node, products, computed):
            kept.setdefault(node.output, node.name)
    return kept


def _is_product(node: Node, products: set[str], computed: Container[str]) -> bool:
    held = gives(node, *ADDING) and node.prologue is None and node.inputs[0] in products
    if is_kind(node, Kind.PRODUCT):
        held = all(name in computed for name in node.inputs[:2])
    for body in (node.prologue, node.body, node.epilogue):
        if body is not None:
            names = products | {Node.RESULT} if held else products
            held = (
                _contracts(body, computed) if body.reduced else _multiplies(body.value, body, names)
            )
    return held


def _contracts(body: Body, computed: Container[str]) -> bool:
    """Whether a fold adds up products of two computed tensors, as one of matrices does."""
    value = body.value
    if not isinstance(value, tirx.Add):
        return False
    terms = [side for side in (value.a, value.b) if isinstance(side, tirx.Mul)]
    factors = [side for term in terms for side in (term.a, term.b)]
    return len(factors) == 2 and all(
        any(_source(body, buffer) in computed for buffer in loaded(side)) for side in factors
    )


def _is_inverse(node: Node, computed: Container[str]) -> bool:
    """Whether what a node makes is one over what is computed."""
    body = node.epilogue or node.body
    return body is not None and not body.reduced and _inverts(body, body.value, computed)


def _inverts_product(node: Node, products: set[str], computed: Container[str]) -> bool:
    body = node.epilogue or node.body
    names = set(products)
    if _is_product(replace(node, epilogue=None), products, computed):
        names.add(Node.RESULT)
    if body is None:
        return False
    ratio: Any = body.value
    return any(_name(body, t) in names for t in _terms(ratio.b))


def _inverts(body: Body, value: Expr, computed: Container[str]) -> bool:
    return (
        isinstance(value, tirx.Div)
        and isinstance(value.a, tirx.FloatImm)
        and _has_computed(body, value.b, computed)
    )


def _has_computed(body: Body, value: Expr, computed: Container[str]) -> bool:
    names = (_source(body, buffer) for buffer in loaded(value))
    return any(name in computed or name == Node.RESULT for name in names)


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


def _relative(node: Node, computed: Container[str], inverses: Container[str]) -> Iterator[str]:
    """The tensors that a node divides, divides by, or takes a root of."""
    for body in node.bodies:
        for part in _ratio_parts(body, computed, inverses):
            for load in _terms(part):
                name = _name(body, load)
                if name != Node.RESULT:
                    yield name
                elif gives(node, *ADDING):
                    yield node.inputs[0]
                elif is_kind(node, Kind.PRODUCT):
                    yield from node.inputs[:2]


def _ratio_parts(body: Body, computed: Container[str], inverses: Container[str]) -> list[Expr]:
    found: list[Expr] = []

    def note(part: Any) -> Any:
        if isinstance(part, tirx.Div):
            if _has_computed(body, part.b, computed):
                found.extend((part.a, part.b))
        elif isinstance(part, tirx.Mul):
            for one, other in ((part.a, part.b), (part.b, part.a)):
                if _inverts(body, other, computed) or any(
                    _source(body, buffer) in inverses for buffer in loaded(other)
                ):
                    found.append(one)
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
    return _source(body, load.source)


def _source(body: Body, buffer: Any) -> str:
    return next((n for b, n in body.sources.items() if b.same_as(buffer)), "")
