"""Keep in float32 means that are subtracted, where little is left.

The mean of products less the product of means, as variances, guided filters and similarities of
images have it, is a small part of either: of two numbers of 0.25 that halves hold to 0.0001, their
difference of 0.001 has one digit.

Before -> after (mixed):
    %a = avg_pool2d(%x)                     the same, and a, b, p, c stay in float32
    %b = avg_pool2d(%y)
    %p = map %x * %y
    %c = avg_pool2d(%p) - %a * %b
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.context import Context
from adrenoc.passes.precision.signs import UNKNOWN, Sign, signs_of
from adrenoc.tvmapi import tirx, tvm


def keep_differences(graph: Graph, context: Context) -> Graph:
    """Mark the float tensors of which such differences are computed, and these."""
    log = context.log
    signs = signs_of(graph)
    exact: dict[str, str] = {}
    for node in graph.nodes:
        if not graph.tensors[node.output].is_float:
            continue
        for body in node.bodies:
            for names in _cancelled(graph, node, body, signs):
                why = f"{node.name} subtracts the product of means from the mean of products"
                exact.update(dict.fromkeys((*names, node.output), why))
    for name, why in exact.items():
        if not graph.precision(name).float32:
            log.add(name, "float32", why)
    return graph.with_precision(exact, float32=True)


def _cancelled(
    graph: Graph, node: Node, body: Body, signs: dict[str, Sign]
) -> Iterator[tuple[str, ...]]:
    """The tensors of each difference in an expression that cancels: means, and the products."""
    for part in _differences(body):
        names = [_name(body, side) for side in _factors(part.b)]
        first = _name(body, part.a)
        maker = node if first == Node.RESULT else graph.producers.get(first)
        if len(names) != 2 or maker is None or not _averages(maker, signs):
            continue
        makers = [graph.producers.get(name) for name in names]
        if all(m is not None and _averages(m, signs) for m in makers):
            kept = (*names, first, maker.inputs[0])
            yield tuple(n for n in kept if n != Node.RESULT and graph.tensors[n].is_float)


def _averages(node: Node, signs: dict[str, Sign]) -> bool:
    """Whether a node adds up numbers with weights that are not negative."""
    if is_kind(node, Kind.CONVOLUTION):
        return signs.get(node.inputs[1], UNKNOWN).least
    return gives(node, Numbers.AVERAGED, Numbers.SUMMED)


def _factors(value: Any) -> tuple[Any, ...]:
    return (value.a, value.b) if isinstance(value, tirx.Mul) else ()


def _differences(body: Body) -> list[Any]:
    """The differences that an expression holds."""
    found: list[Any] = []

    def note(part: Any) -> Any:
        found.append(part)
        return part

    structural_map(body.value, (tirx.Sub, note))
    return found


def _name(body: Body, value: Any) -> str:
    if not isinstance(value, tvm.ir.TensorLoad):
        return ""
    return next((n for b, n in body.sources.items() if b.same_as(value.source)), "")
