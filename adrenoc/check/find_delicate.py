"""Parts of a network that are known to lose much in half precision, found before anything runs.

What each of them loses depends on weights and inputs, which nobody has seen yet: these are reasons
to measure, `adrenoc compile MODEL --accuracy TOL` does, and no verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.check.growing_products import longest_row_of_products
from adrenoc.check.verdict import DelicatePart
from adrenoc.families.operators import OPERATORS, is_kind, is_product
from adrenoc.families.shared.operator import Kind
from adrenoc.ir.body import Body, find_loaded_buffers
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX
from adrenoc.passes.analyse.network_parts import head_of, product_depths, streams_of
from adrenoc.passes.analyse.powers import calls, is_power, unify_reads
from adrenoc.passes.precision.dynamic_quanta import is_dynamic
from adrenoc.tvmapi import tirx, tvm

_LARGE_TABLE = 4.0
"""Tables of constants that reach this far multiply errors, too."""
_FEW_SCORES = 64
"""Outputs of fewer elements are no map of scores."""
_LONG_SOFTMAX = 4096
_LONG_STREAM = 24
"""Sums: plain residual networks of a hundred layers have 23 in a row."""
_DEEP = 150
"""Products in a row, more than plain networks of a hundred layers have."""
_LONG_PRODUCTS = 4
_TOKENS = 32
_SCORES = (Kind.SOFTMAX, Kind.ATTENTION)
_MOVES = {"concat", "reshape", "permute_dims", "strided_slice", "expand_dims", "squeeze", "layout"}
_EXP, _SIGMOID = ("tirx.exp", "tirx.exp2"), ("tirx.sigmoid",)


def find_delicate(graph: Graph, name_of: Callable[[str], str]) -> tuple[DelicatePart, ...]:
    """The delicate parts of a graph that stores halves, one of each kind, in the model's names."""
    found: dict[str, tuple[str, str]] = {}
    for detector in _DETECTORS:
        for kind, tensor, seen in detector(graph):
            found.setdefault(kind, (tensor, seen))
    return tuple(
        DelicatePart(kind=kind, subject=name_of(tensor), seen=seen)
        for kind, (tensor, seen) in found.items()
    )


_Found = Iterator[tuple[str, str, str]]


def _decoded_boxes(graph: Graph) -> _Found:
    """exp or a square of what is predicted, times a table of constants."""
    for node in _head_nodes(graph):
        tables = [factor for body in _own_bodies(node) for factor in _factors(graph, body)]
        curved = any(calls(body, _EXP) or _has_power(body) for body in _own_bodies(node))
        gate = any(_is_gate(graph, body) for body in _own_bodies(node))
        factor = max(tables, default=0.0)
        if curved and factor and not gate:
            yield (
                "decoded boxes",
                node.output,
                f"a power or exponential of what is predicted, times constants of up to "
                f"{factor:.3g}: it multiplies what the features have lost",
            )
        elif factor >= _LARGE_TABLE and _any_calls(node, _SIGMOID) and not gate:
            yield (
                "decoded boxes",
                node.output,
                f"predictions are multiplied by constants of up to {factor:.3g}",
            )


def _scores(graph: Graph) -> _Found:
    """Outputs of many elements that a sigmoid makes."""
    for output in graph.outputs:
        size = int(np.prod(graph.tensors[output].shape))
        if size < _FEW_SCORES:
            continue
        if _comes_of_sigmoid(graph, output):
            yield (
                "sigmoid scores",
                output,
                f"{size} scores by a sigmoid: where they span little of 0 to 1, their error over "
                "that span is large",
            )


def _comes_of_sigmoid(graph: Graph, output: str) -> bool:
    """Whether a sigmoid makes it, or a part of it, with no other data in between."""
    waiting, seen = [output], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in graph.makers(name):
            bodies = [body for body in _own_bodies(node) if calls(body, _SIGMOID)]
            if bodies:
                return not any(_is_gate(graph, body) for body in bodies)
            computed = [name for name in node.inputs if graph.tensors[name].value is None]
            if node.is_map and (len(computed) == 1 or set(node.operators) <= _MOVES):
                waiting += computed
    return False


def _long_softmax(graph: Graph) -> _Found:
    for node in graph.nodes:
        if is_kind(node, Kind.ATTENTION):
            terms = OPERATORS[node.op].terms
            length = 0 if terms is None else terms(graph, node)
        elif is_kind(node, Kind.SOFTMAX):
            shape = graph.tensors[node.inputs[0]].shape
            length = int(shape[int(node.attrs.get("axis", -1))])
        else:
            continue
        if length >= _LONG_SOFTMAX:
            yield (
                "long softmax",
                node.output,
                f"a softmax over {length}: each share is small, and half has few digits below 6e-5",
            )


def _deep_streams(graph: Graph) -> _Found:
    """Sums that are added to again and again, and that nothing normalises."""
    for stream in streams_of(graph):
        readers = [n for name in stream for n in graph.consumers[name]]
        if len(stream) >= _LONG_STREAM and not any(is_kind(n, Kind.NORM) for n in readers):
            yield (
                "deep residual stream",
                stream[-1],
                f"{len(stream)} sums in a row are rounded one after the other, and no norm is "
                "between them",
            )
    depths = product_depths(graph)
    for output in graph.outputs:
        if depths.get(output, 0) >= _DEEP:
            yield (
                "deep network",
                output,
                f"{depths[output]} convolutions and products in a row, each of rounded tensors",
            )


def _dynamic_quantisation(graph: Graph) -> _Found:
    """Rounding to integers by a scale that the data give."""
    rounded = {node.output for node in graph.nodes if graph.precision(node.output).rounded}
    for node in graph.nodes:
        if node.output in rounded and is_dynamic(graph, node, rounded):
            yield (
                "dynamic quantisation",
                node.output,
                "it is rounded to integers by a scale that is computed of the data: the last bit "
                "of what is before it may move whole quanta",
            )


def _linear_attention(graph: Graph) -> _Found:
    """A product of two computed tensors over many tokens, read by another such product."""
    for node in graph.nodes:
        if not _mixes(graph, node):
            continue
        right = graph.tensors[node.inputs[1]].shape
        tokens = int(right[max(len(right) - 2, 0)])
        if tokens >= _TOKENS and any(_mixes(graph, r) for r in _next_products(graph, node)):
            yield (
                "linear attention",
                node.output,
                f"sums over {tokens} tokens without a softmax: they grow with their number, and "
                "what divides them is rounded as they are",
            )


def _growing_products(graph: Graph) -> _Found:
    """Data multiplied by data again and again, with no norm, division or bound in between."""
    name, count = longest_row_of_products(graph)
    if count >= _LONG_PRODUCTS:
        yield (
            "growing products",
            name,
            f"data are multiplied by data {count} times in a row, with no norm between: how large "
            f"they become depends on the inputs, and half ends at {HALF_MAX:.0f}",
        )


_DETECTORS = (
    _growing_products,
    _decoded_boxes,
    _scores,
    _long_softmax,
    _deep_streams,
    _dynamic_quantisation,
    _linear_attention,
)


def _mixes(graph: Graph, node: Node) -> bool:
    return is_kind(node, Kind.PRODUCT) and all(
        graph.tensors[n].value is None for n in node.inputs[:2]
    )


def _next_products(graph: Graph, node: Node) -> Iterator[Node]:
    """The products that read what a node makes, with no softmax or norm on the way."""
    waiting, seen = [node.output], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for reader in graph.consumers[name]:
            if is_product(reader):
                yield reader
            elif not is_kind(reader, *_SCORES, Kind.NORM):
                waiting.append(reader.output)


def _factors(graph: Graph, body: Body) -> list[float]:
    """The largest of each table of constants that an expression multiplies by."""
    tables = {
        name: float(np.abs(value).max())
        for name in body.sources.values()
        if name not in (Node.RESULT, Node.BESIDE)
        and (value := graph.tensors[name].value) is not None
        and value.dtype.kind == "f"
        and value.size > 1
    }
    found: list[float] = []

    def note(part: Any) -> Any:
        for side in (part.a, part.b):
            read = {body.source_of(buffer) or "" for buffer in find_loaded_buffers(side)}
            if len(read) == 1 and read <= tables.keys():
                found.append(tables[read.pop()])
        return part

    structural_map(body.value, (tirx.Mul, note))
    return found


def _head_nodes(graph: Graph) -> Iterator[Node]:
    names = head_of(graph, graph.outputs)
    return (node for node in graph.nodes if node.output in names)


def _own_bodies(node: Node) -> tuple[Body, ...]:
    return tuple(body for body in (node.body, node.epilogue) if body is not None)


def _any_calls(node: Node, names: tuple[str, ...]) -> bool:
    return any(calls(body, names) for body in _own_bodies(node))


def _has_power(body: Body) -> bool:
    found: list[Any] = []

    def note(part: Any) -> Any:
        if is_power(part):
            found.append(part)
        return part

    structural_map(unify_reads(body), ((tirx.Mul, tvm.ir.Call), note))
    return bool(found)


def _is_gate(graph: Graph, body: Body) -> bool:
    """Whether a sigmoid is multiplied by data, as in SiLU and squeeze-and-excitation."""
    found: list[Any] = []

    def reads_computed(expr: Any) -> bool:
        names = (body.source_of(buffer) for buffer in find_loaded_buffers(expr))
        within = (Node.RESULT, Node.BESIDE)
        return any(n in within or (n and graph.tensors[n].value is None) for n in names)

    def note(part: Any) -> Any:
        for one, other in ((part.a, part.b), (part.b, part.a)):
            if (
                _calls_in(one, _SIGMOID)
                and not _calls_in(other, _SIGMOID)
                and reads_computed(other)
            ):
                found.append(part)
        return part

    structural_map(body.value, (tirx.Mul, note))
    return bool(found)


def _calls_in(expr: Any, names: tuple[str, ...]) -> bool:
    found: list[Any] = []

    def note(call: Any) -> Any:
        if getattr(call.op, "name", "") in names:
            found.append(call)
        return call

    structural_map(expr, (tvm.ir.Call, note))
    return bool(found)
