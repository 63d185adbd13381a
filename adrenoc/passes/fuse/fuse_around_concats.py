"""Fuse a graph, but keep those concatenations apart that need no kernel if they stay alone.

A concatenation along the channels whose parts begin at whole blocks can be written in place: who
makes a part writes it into the whole (`join_blocks`).  Fusion would make it part of the maps that
read it, and each of them would read all parts again.  Which of the two is less is seen only when
everything else is fused, so the graph is fused twice where the first answer was wrong.

Before -> after:
    c = concat(a, b); conv2d(c); conv2d(c)     the same: `concat` stays a node, and needs no kernel
    c = concat(a, b); y = shuffle(slice(c))    map[concat strided_slice ...]: one kernel as before
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from adrenoc.base.decision import DecisionLog
from adrenoc.base.tvmapi import tvm
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.node_kinds import CONCAT
from adrenoc.passes.analyse.channel_ranges import (
    Concat,
    Slice,
    concat_of,
    restore_whole_sources,
    slice_of,
)
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_maps import fuse
from adrenoc.passes.place.assign_layouts import assign_layouts


def fuse_around_concats(graph: Graph, context: Context) -> Graph:
    """Fuse the nodes of a graph; concatenations that may be written in place stay alone."""
    log = context.log
    candidates = _candidates(graph, context)
    if not candidates:
        return fuse(graph, log)
    trial = DecisionLog()
    fused = fuse(_mark_concats(graph, set(candidates)), trial)
    kept = {name for name in candidates if _pays(fused, graph, name, log)}
    if len(kept) < len(candidates):
        return fuse(_mark_concats(graph, kept), log)
    for decision in trial:
        log.add(decision.subject, decision.taken, decision.reason)
    return fused


def _mark_concats(graph: Graph, outputs: set[str]) -> Graph:
    nodes = [replace(n, op=CONCAT) if n.output in outputs else n for n in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


def _candidates(graph: Graph, context: Context) -> list[str]:
    """Tensors whose parts would begin at whole blocks of channels."""
    found = []
    planned: Graph | None = None
    for node in graph.nodes:
        if not node.is_map or node.fused != (CONCAT,) or node.output in graph.output_names:
            continue
        concat = concat_of(graph, node)
        if concat is None or not _falls_on_blocks(graph, node, concat):
            continue
        planned = planned or assign_layouts(graph, context.silent)
        layout = planned.layouts[node.output]
        if layout is not None and layout.axis("C") == concat.axis:
            found.append(node.output)
    return found


def _falls_on_blocks(graph: Graph, node: Node, concat: Concat) -> bool:
    made = all(part.name in graph.producers for part in concat.parts)
    whole = all(part.start % LANES == 0 for part in concat.parts)
    return made and whole and graph.tensors[node.output].is_float


def _pays(graph: Graph, before: Graph, name: str, log: DecisionLog) -> bool:
    """Return whether a concatenation of a fused graph takes no more launches in place than as a
    map.

    What would take the concatenation in is seen in the graph before fusion: a single map does.
    Parts that cannot lie in it are written twice, which takes no launch (`second_stores`).
    """
    node = graph.producers.get(name)
    if node is None:  # nobody reads it
        return False
    concat = concat_of(graph, node)
    if concat is None:
        return False
    readers = before.consumers[name]
    if _regroups(before, name, readers):
        reason = f"its only reader {readers[0].name} moves all elements anyway"
        log.add(name, "concatenated where it is read", reason)
        return False
    cuts = {part.name: slice_of(graph, graph.producers[part.name]) for part in concat.parts}
    slices = {part: cut for part, cut in cuts.items() if cut is not None}
    names = [part.name for part in restore_whole_sources(graph, concat.parts, slices)]
    alone = 0 if len(readers) == 1 and readers[0].is_map else 1
    extra = sum(_takes_kernel(graph, part, slices.get(part)) for part in dict.fromkeys(names))
    if extra > alone:
        log.add(
            name,
            "concatenated by a kernel",
            f"in place {extra} of its {len(names)} parts would take a kernel each, {alone} now",
        )
    return extra <= alone


def _takes_kernel(graph: Graph, part: str, cut: Slice | None) -> bool:
    """Return whether a part takes a kernel of its own, for the concatenation is none."""
    if cut is not None and cut.start % LANES == 0:
        return cut.source not in graph.producers
    return graph.producers[part].is_map and len(graph.consumers[part]) == 1


def _regroups(graph: Graph, name: str, readers: Sequence[Node]) -> bool:
    """Return whether a tensor is only read by a map that cuts its axes anew: a shuffle of
    channels."""
    if len(readers) != 1 or not readers[0].is_map or readers[0].body is None:
        return False
    if not isinstance(readers[0].body.value, tvm.ir.TensorLoad):
        return False
    before, after = (
        sorted(extent for extent in graph.tensors[tensor].shape if extent != 1)
        for tensor in (name, readers[0].output)
    )
    return before != after and math.prod(before) == math.prod(after)
