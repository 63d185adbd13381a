"""Compute in float32 what is rounded to integers: the quanta of quantised models.

An integer up to 2048 is exact in half, so data and weights of 8 bits stay as the preset stores
them.  What leads to them does not: sums, the factors that they are scaled by, and integers of 16
bits are kept in float32.

Before -> after (fp16):
    %q = conv2d[conv2d add multiply round clip](%x, %w, %bias)
    the same; %q is `rounded`, in halves and computed in float32, and %bias stays in float32
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import changes_in_half
from adrenoc.kernels.families.operators import gives, is_kind, is_product
from adrenoc.kernels.families.shared.operator import Kind, Numbers
from adrenoc.passes.analyse.scalar_body import parts_of_kind
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.drop_conversions import drop_conversions
from adrenoc.passes.precision.dynamic_quanta import (
    GREATEST_EXACT,
    find_dynamic_sources,
    is_data,
)
from adrenoc.passes.precision.known import Interval
from adrenoc.passes.precision.pin_precision import moves
from adrenoc.passes.precision.static_quanta import MOST_MORE, find_static_sources

_ROUNDING = ("tirx.round", "tirx.nearbyint")
_NO_BOUND = 1e9
_NUMBERS_OF_A_BYTE = 256


def keep_integers(graph: Graph, context: Context) -> Graph:
    """Mark what is rounded, and the tensors that a half would change before.

    Where the GPU has dot products of bytes, whole numbers that fit are to be stored as bytes.
    """
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
        for name in _list_scales(node):
            if changes_in_half(graph.tensors[name].value):
                exact.add(name)
    ranges: Mapping[str, Interval] = {}
    if rounded:
        analysis = Analysis(graph)
        graph, ranges = drop_conversions(analysis), analysis.whole
    graph = _store_bytes(graph, rounded, ranges, log, dot_products=context.target.has_dot_products)
    if floats:
        return graph.change_precision(rounded, rounded=True)
    exact |= _inexact_before(graph, rounded, ranges)
    if dynamic := find_dynamic_sources(graph, rounded, ranges):
        exact |= dynamic
        log.add(f"{len(dynamic)} tensors", "float32", _why_dynamic(graph, dynamic))
    exact |= _find_static_parts(graph, rounded, ranges, exact, log)
    for node in graph.nodes:
        if moves(node) and node.inputs[0] in exact:
            exact.add(node.output)
    if rounded:
        log.add(
            f"{len(rounded)} tensors",
            "computed in float32",
            "they are rounded to integers, as quantised models do: sums in half would move them",
        )
    return graph.change_precision(rounded, rounded=True).change_precision(exact, float32=True)


def _list_scales(node: Node) -> tuple[str, ...]:
    """Return what a node reads but for the factors of its products: what scales and moves sums."""
    return node.inputs[2:] if is_product(node) else node.inputs


def _why_dynamic(graph: Graph, names: Collection[str]) -> str:
    constants = (graph.tensors[name].value for name in names)
    mib = sum(value.size * 2 for value in constants if value is not None) / 2**20
    return (
        "dynamic quantisations are computed of them, and choose their quanta by the range: half "
        f"would move numbers by whole quanta ({mib:.1f} MiB more of constants)"
    )


def _find_static_parts(
    graph: Graph,
    rounded: set[str],
    ranges: Mapping[str, Interval],
    exact: Collection[str],
    log: DecisionLog,
) -> frozenset[str]:
    """Return the float parts of a network that is quantised throughout; none where they are most of
    it."""
    found, share = find_static_sources(graph, rounded, ranges, exact)
    if not found:
        return found
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


def _store_bytes(
    graph: Graph,
    rounded: set[str],
    ranges: Mapping[str, Interval],
    log: DecisionLog,
    *,
    dot_products: bool,
) -> Graph:
    """Have whole numbers of a byte's range stored so, where the GPU multiplies bytes."""
    lows = _byte_lows({n: ends for n, ends in ranges.items() if graph.tensors[n].is_float})
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


def _byte_lows(ranges: Mapping[str, Interval]) -> dict[str, int]:
    """Tensor -> the number that a byte of zero stands for, where 256 numbers hold its range.

    Zero is always among them: it is what lies outside of an image.
    """
    lows: dict[str, int] = {}
    for name, ends in ranges.items():
        least, most = min(ends.low, 0.0), max(ends.high, 0.0)
        if most - least < _NUMBERS_OF_A_BYTE:
            lows[name] = int(least)
    return lows


def _inexact_before(graph: Graph, rounded: set[str], ranges: Mapping[str, Interval]) -> set[str]:
    """Return what a kernel of its own sums, scales, or reads from wide integers, and the next
    rounds."""
    found = set()
    for output in rounded:
        for name in graph.producers[output].inputs:
            maker = graph.producers.get(name)
            if maker is None or not is_data(graph, name, ranges):
                continue
            if _sums(maker) or maker.is_map:
                found.add(name)
    return found


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
