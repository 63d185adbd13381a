"""Compute in float32 what is rounded to integers: the quanta of quantised models.

An integer up to 2048 is exact in half, so data and weights of 8 bits stay as the preset stores
them.  What leads to them does not: sums, the factors that they are scaled by, and integers of 16
bits are kept in float32.

Before -> after (fp16):
    %q = conv2d[conv2d add multiply round clip](%x, %w, %bias)
    the same; %q is `rounded`, in halves and computed in float32, and %bias stays in float32

A dynamic quantisation takes its quantum from the data: from its largest and its smallest number.
Half moves these, and with them every quantum; and it moves data by an eighth of a quantum, which
moves one number in eight to the next.  Each is an error of a whole quantum, which the layers behind
it carry on to the next quantisation, so that halves anywhere before one cost much more than their
own rounding.  The products between them, which take most of the time, are of bytes as before.

Other roundings have factors that are computed, too: gates, norms, and the quantum of an earlier
rounding.  A factor is the quantum where nothing but maps leads to it from the greatest or least
numbers of what is rounded, and none of them squashes, as gates do.

Before -> after (mixed):
    s = (max(x) - min(x)) / 255; q = round(x / s)      x, its largest and smallest number
    x = layer_norm(matmul(p, w) * t + r)               and s, and the sum, t and r, stay in float32

Where converters leave an operator in floats (the first convolution, a norm, a softmax), what comes
out of it is rounded to whole numbers next.  Half moves one number in some dozens to the next one
there, an error of a whole quantum, which the layers behind carry on.  Such parts are small, so
that float32 costs little; networks of which most is in floats are left as they are.

Before -> after (mixed):
    q = round(conv2d(image, w) / s)       image and w stay in float32

Conversions that change no number are dropped: what is quantised ends as
`float(uint8(clip(round(...))))`: the clip has left whole numbers that the integer type holds, so
that the conversion is of nothing, lane by lane, in every kernel.

Before -> after:
    q = conv2d[add multiply round clip astype(uint8) astype(float32)](x, w, b)
    q = conv2d[add multiply round clip](x, w, b)
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.decision import DecisionLog
from adrenoc.base.tvmapi import Expr, dtype_of, tirx, tvm
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.half import changes_in_half
from adrenoc.kernels.body_cost import operands_of, parts_of_kind
from adrenoc.kernels.families.operators import gives, is_kind, is_product
from adrenoc.kernels.families.shared.operator import Kind, Numbers, size_of
from adrenoc.passes.analyse.scalar_body import parts_of
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis, Expression, Interval, Known

GREATEST_EXACT = 2048.0
"""The largest integer up to which a half holds every one."""
_SQUASHING = ("tirx.exp", "tirx.sigmoid", "tirx.tanh", "tirx.erf")
"""What gates and shares are made by; quanta may be powers of two."""


def _is_dynamic(graph: Graph, node: Node, rounded: Collection[str]) -> bool:
    """Return whether a smaller factor is of the greatest or least numbers of what is rounded.  That
    waits for all numbers, so none of what a kernel rounds as it makes them is dynamic."""
    if node.body is None:
        return False
    size = size_of(graph, node.output)
    factors = [name for name in node.inputs if size_of(graph, name) < size]
    extremes = [name for name in factors if _is_plainly_read(node.body, name)]
    data = _led_by_maps(graph, [n for n in node.inputs if n not in factors], rounded)
    return any(data & _picked_for(graph, name) for name in extremes)


def led_by(
    graph: Graph, starts: Iterable[str], rounded: Collection[str], ranges: Mapping[str, Interval]
) -> frozenset[str]:
    """Return what halves would change of `starts` and of what makes them, up to `rounded`."""
    waiting = list(starts)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found or name in rounded:
            continue
        if is_data(graph, name, ranges):
            maker = graph.producers.get(name)
            waiting += [] if maker is None else maker.inputs
        elif not changes_in_half(graph.tensors[name].value):
            continue
        found.add(name)
    return frozenset(found)


def is_data(graph: Graph, name: str, ranges: Mapping[str, Interval]) -> bool:
    """Return whether a tensor's numbers are others in half: no whole numbers that it can hold."""
    if graph.tensors[name].value is not None or not graph.tensors[name].is_float:
        return False
    return name not in ranges or ranges[name].most > GREATEST_EXACT


def _picked_for(graph: Graph, factor: str) -> frozenset[str]:
    """Return the tensors whose greatest or least numbers make a factor, and what maps make them of.
    Those of no more elements than the factor are factors themselves, of other numbers."""
    size = size_of(graph, factor)
    waiting, seen, picked = [factor], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        maker = graph.producers.get(name)
        if name in seen or maker is None:
            continue
        seen.add(name)
        end = maker.epilogue
        is_plain = end is None or _is_plainly_read(end, Node.RESULT)
        if gives(maker, Numbers.PICKED) and is_plain:
            picked |= {n for n in maker.inputs if size_of(graph, n) > size}
            waiting += maker.inputs
        elif maker.is_map and maker.body is not None:
            waiting += [n for n in maker.inputs if _is_plainly_read(maker.body, n)]
    return _led_by_maps(graph, picked, ())


def _led_by_maps(graph: Graph, names: Iterable[str], rounded: Collection[str]) -> frozenset[str]:
    """Return these tensors, and what maps make them of, up to what comes out of a rounding."""
    waiting, found = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in found or graph.tensors[name].value is not None:
            continue
        found.add(name)
        maker = graph.producers.get(name)
        if maker is not None and maker.is_map and name not in rounded:
            waiting += maker.inputs
    return frozenset(found)


def _is_plainly_read(body: Body, name: str) -> bool:
    """Return whether a body reads a tensor other than to squash it."""

    def plain(part: Any) -> tuple[Expr, ...]:
        squashes = isinstance(part, tvm.ir.Call) and getattr(part.op, "name", "") in _SQUASHING
        return () if squashes else operands_of(part)

    loads = (p for p in parts_of(body.value, plain) if isinstance(p, tvm.ir.TensorLoad))
    return any(body.source_of(load.source) == name for load in loads)


MOST_MORE = 0.25
"""The largest share of all bytes that a run moves that float32 may add before roundings. No GPU
decides it: a network of which half is quantised is at three times that, one of which a layer is not
at a tenth."""


def _find_static_parts(
    graph: Graph,
    rounded: Collection[str],
    ranges: Mapping[str, Interval],
    exact: Collection[str],
    log: DecisionLog,
) -> frozenset[str]:
    """Return the float parts of a network quantised throughout; none where they are most of it.
    They count by what float32 adds to what a run of the network moves in halves and bytes."""
    starts = [name for output in rounded for name in graph.producers[output].inputs]
    found = led_by(graph, starts, rounded, ranges) - {*exact}
    if not found:
        return found
    more = sum(2 * _times_moved(graph, name) for name in found)
    whole = sum(
        (1 if name in ranges and not is_data(graph, name, ranges) else 2)
        * _times_moved(graph, name)
        for name in graph.tensors
        if graph.tensors[name].is_float
    )
    share = more / max(1, whole)
    moved = f"quanta are rounded of them, of which half would move some: float32 adds {share:.1%}"
    if share > MOST_MORE:
        log.add(
            f"{len(found)} tensors",
            "stored as the preset says",
            f"{moved} to the bytes of a run, more than the {MOST_MORE:.0%} that are spent for it",
        )
        return frozenset()
    log.add(f"{len(found)} tensors", "float32", f"{moved} to the bytes of a run")
    return found


def _times_moved(graph: Graph, name: str) -> int:
    """Elements that are written, and read by each reader; of constants those that are read."""
    tensor = graph.tensors[name]
    readers = 1 if tensor.value is not None else 1 + len(graph.consumers[name])
    return readers * math.prod(tensor.shape)


def drop_conversions(analysis: Analysis) -> Graph:
    """Return the graph with such conversions replaced by what they convert."""
    graph, nodes = analysis.graph, []
    for node in graph.nodes:
        body, epilogue = node.body, node.epilogue
        if body is not None and not body.reduced:
            body = _drop_casts(body, analysis.known)
        if epilogue is not None:
            epilogue = _drop_casts(
                epilogue, {**analysis.known, Node.RESULT: analysis.results[node.output]}
            )
        changed = body is not node.body or epilogue is not node.epilogue
        nodes.append(replace(node, body=body, epilogue=epilogue) if changed else node)
    return graph.replace_nodes(nodes)


def _drop_casts(body: Body, known: Mapping[str, Known]) -> Body:
    expression = Expression(body, known)

    def drop(part: Any) -> Any:
        inner = part.value
        if not isinstance(inner, tirx.Cast) or dtype_of(part) != dtype_of(inner.value):
            return part
        if not dtype_of(part).startswith("float"):
            return part
        before, after = expression[inner.value], expression[inner]
        same = before.whole and before.interval == after.interval
        return inner.value if same else part

    value = structural_map(body.value, (tirx.Cast, drop))
    return body if value.same_as(body.value) else replace(body, value=value)


_ROUNDING = ("tirx.round", "tirx.nearbyint")
_NO_BOUND = 1e9
_NUMBERS_OF_A_BYTE = 256


def keep_integers(graph: Graph, context: Context) -> Graph:
    """Mark what is rounded, and the tensors that a half would change before.  Where the GPU has dot
    products of bytes, whole numbers that fit are to be stored as bytes."""
    options, log = context.options, context.log
    rounded, exact = set(), set(graph.float32_names)
    floats = (options.storage_dtype, options.compute_dtype) == ("float32", "float32")
    for node in graph.nodes:
        bodies = [b for b in (node.body, node.epilogue) if b is not None]
        if not any(_holds(b, _is_rounding) for b in bodies):
            continue
        rounded.add(node.output)
        if floats:
            continue
        if any(_holds(b, _is_wide) for b in bodies):
            exact.add(node.output)
        # What scales and moves sums: all that it reads but for the factors of its products.
        scales = node.inputs[2:] if is_product(node) else node.inputs
        exact |= {name for name in scales if changes_in_half(graph.tensors[name].value)}
    ranges: Mapping[str, Interval] = {}
    if rounded:
        analysis = Analysis(graph)
        graph, ranges = drop_conversions(analysis), analysis.whole
    graph = _store_bytes(graph, rounded, ranges, log, dot_products=context.target.has_dot_products)
    if floats:
        return graph.change_precision(rounded, rounded=True)
    exact |= _inexact_before(graph, rounded, ranges)
    dynamic = [n for n in graph.nodes if n.output in rounded and _is_dynamic(graph, n, rounded)]
    if led := led_by(graph, (name for node in dynamic for name in node.inputs), rounded, ranges):
        exact |= led
        constants = (graph.tensors[name].value for name in led)
        mib = sum(value.size * 2 for value in constants if value is not None) / 2**20
        why = (
            "dynamic quantisations are computed of them, and choose their quanta by the range: half"
            f" would move numbers by whole quanta ({mib:.1f} MiB more of constants)"
        )
        log.add(f"{len(led)} tensors", "float32", why)
    exact |= _find_static_parts(graph, rounded, ranges, exact, log)
    for node in graph.nodes:
        if node.moves_alone and node.inputs[0] in exact:
            exact.add(node.output)
    if rounded:
        log.add(
            f"{len(rounded)} tensors",
            "computed in float32",
            "they are rounded to integers, as quantised models do: sums in half would move them",
        )
    return graph.change_precision(rounded, rounded=True).change_precision(exact, float32=True)


def _store_bytes(
    graph: Graph,
    rounded: set[str],
    ranges: Mapping[str, Interval],
    log: DecisionLog,
    *,
    dot_products: bool,
) -> Graph:
    """Have whole numbers of a byte's range stored so, where the GPU multiplies bytes."""
    lows: dict[str, int] = {}
    for name, ends in ranges.items():
        # Zero is always among them: it is what lies outside of an image.
        least, most = min(ends.low, 0.0), max(ends.high, 0.0)
        if graph.tensors[name].is_float and most - least < _NUMBERS_OF_A_BYTE:
            lows[name] = int(least)
    if not lows or not rounded:
        return graph
    if not dot_products:
        log.add(
            f"{len(lows)} tensors",
            "whole numbers stored as floats",
            "no driver seen of this GPU has a dot product of bytes in its OpenCL C",
        )
        return graph
    log.add(
        f"{len(lows)} tensors",
        "stored as bytes",
        "whole numbers of a range of 256, which the GPU multiplies four at a time",
    )
    asked = {name: replace(graph.precision(name), low=low) for name, low in lows.items()}
    return replace(graph, precisions={**graph.precisions, **asked})


def _inexact_before(graph: Graph, rounded: set[str], ranges: Mapping[str, Interval]) -> set[str]:
    """Return what one kernel sums, scales or reads from wide integers, and the next rounds."""
    read = {name for output in rounded for name in graph.producers[output].inputs}
    makers = {name: graph.producers[name] for name in read if name in graph.producers}
    return {
        name
        for name, maker in makers.items()
        if is_data(graph, name, ranges) and (maker.is_map or _sums(maker))
    }


def _sums(node: Node) -> bool:
    adds = gives(node, Numbers.WEIGHTED, Numbers.SUMMED)
    averages = is_kind(node, Kind.REDUCTION) and gives(node, Numbers.AVERAGED)
    return adds or averages or node.is_fold


def _holds(body: Body, wanted: Callable[[Any], bool]) -> bool:
    return any(map(wanted, parts_of_kind(body.value, (tvm.ir.Call, tirx.FloatImm))))


def _is_rounding(part: Any) -> bool:
    return isinstance(part, tvm.ir.Call) and getattr(part.op, "name", "") in _ROUNDING


def _is_wide(part: Any) -> bool:
    return isinstance(part, tirx.FloatImm) and GREATEST_EXACT < abs(part.value) < _NO_BOUND
