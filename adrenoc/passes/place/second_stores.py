"""Who could write a part of a concatenation into the whole beside where it lies already.

A part that cannot lie in the whole, since it lies in another one, or since a kernel that writes
the whole reads it, needs no copy if those that make it write it to both places.

Before -> after:
    a = conv2d(x); b = conv2d(a); copy a into c; b lies in c     conv2d(x) writes a and c's blocks
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from adrenoc.ir.graph import Graph, Node, Store
from adrenoc.ir.layout import LANES, agree
from adrenoc.ir.operand import Memory
from adrenoc.passes.analyse.channel_ranges import Part

"""Nodes that no kernel of the GPU computes."""

MOST_STORES = 16
"""Memories that one kernel may write, if the target lets it write as many images."""


@dataclass(frozen=True, kw_only=True)
class SecondStore:
    """Blocks of a node's result that its kernel writes to blocks of a concatenation too."""

    maker: str
    """The node's output."""

    first: int
    """The first of the result's blocks."""

    whole: str
    start: int
    """Where they begin in the concatenation, in blocks."""

    blocks: int
    channels: int
    """How many channels its blocks hold; the last block may hold fewer than four."""

    source: str
    """The part that they are of."""


def second_stores(
    graph: Graph,
    whole: str,
    part: Part,
    *,
    most: int,
    known: Sequence[SecondStore],
    gone: Container[str],
    refused: Container[tuple[str, str]],
) -> tuple[SecondStore, ...]:
    """Return the stores that would bring a part into a concatenation; none where some cannot be.

    A kernel writes `most` memories.  `known` are those that are decided on: what they write can be
    part of this one.  `gone` are outputs that no kernel makes, `refused` nodes with the memory
    that they must not write.
    """
    placement, spec = graph.placements[whole], graph.operand(part.name)
    rank = len(graph.tensors[whole].shape)
    if placement.layout is None or spec.layout is None or len(spec.shape) != rank:
        return ()
    if not agree(spec.layout, placement.layout, spec.shape):
        return ()
    owner, first = graph.place(part.name)
    end = first + spec.extents.blocks
    found = []
    for maker, at, where, blocks in _writers(graph, owner, known, gone):
        low, high = max(first, where), min(end, where + blocks)
        if low >= high:
            continue
        node = graph.producers[maker]
        memories = {graph.owner(store.whole) for store in known if store.maker == maker}
        full = len({*memories, graph.owner(whole), graph.owner(maker)}) > most
        if full or not can_store(graph, node) or (maker, graph.owner(whole)) in refused:
            return ()
        channels = min((high - first) * LANES, spec.extents.c) - (low - first) * LANES
        found.append(
            SecondStore(
                maker=maker,
                first=at + low - where,
                whole=whole,
                start=part.start // LANES + low - first,
                blocks=high - low,
                channels=channels,
                source=part.name,
            )
        )
    covered = sum(store.blocks for store in found)
    return tuple(found) if covered == end - first else ()


def _writers(
    graph: Graph, owner: str, known: Iterable[SecondStore], gone: Container[str]
) -> Iterable[tuple[str, int, int, int]]:
    """Who writes a memory: node, first block of its result, where in the memory, how many."""
    for node in graph.nodes:
        place, where = graph.place(node.output)
        if place == owner and node.output not in gone:
            yield node.output, 0, where, graph.operand(node.output).extents.blocks
    for store in known:
        place, where = graph.place(store.whole)
        if place == owner:
            yield store.maker, store.first, where + store.start, store.blocks


def can_store(graph: Graph, node: Node) -> bool:
    """Return whether a node's kernel can write its result to more than one place."""
    spec = graph.operand(node.output)
    return (
        node.has_kernel
        and spec.layout is not None
        and spec.memory in (Memory.TEXTURE, Memory.BLOCKED, Memory.PLAIN)
        and spec.dtype.startswith("float")
    )


def add_stores(
    graph: Graph, node: Node, stores: Sequence[Store] | None, read: Container[str]
) -> Node:
    """Return the node with these stores beside what it writes already, where somebody reads that.

    `read` are the memories that somebody reads.
    """
    if not stores:
        return node
    before = node.stores or (Store(tensor=node.output),)
    kept = (s for s in before if graph.owner(s.tensor) in read)
    return replace(node, stores=(*kept, *stores))
