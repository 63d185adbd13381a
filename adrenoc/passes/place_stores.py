"""Write what only moves texels where it is made: heads, tokens, windows, parts of them.

A kernel counts its results texel by texel and can store each anywhere.  So a reshape, a transpose
or a slice that keeps texels whole needs no kernel, if one kernel makes what it reads.

Before -> after:
    y = matmul(x, w); q, k, v = the heads of y, each    matmul(x, w) writes q, k and v;
    in a kernel of its own                              y is in no memory
"""

from __future__ import annotations

from collections.abc import Mapping

from adrenoc.decision import DecisionLog
from adrenoc.gpu import Limits
from adrenoc.graph import Graph, Node, Store
from adrenoc.operand import Memory
from adrenoc.passes.second_stores import MOST_STORES, can_store, with_stores
from adrenoc.passes.texel_moves import TexelMove, placing_of, texel_move


def place_stores(graph: Graph, limits: Limits, log: DecisionLog) -> Graph:
    """Let the kernels that make what a map moves store it where the map would."""
    most = min(MOST_STORES, limits.max_write_image_args)
    stores: dict[str, list[Store]] = {}
    moved: dict[str, TexelMove] = {}
    for node in graph.nodes:
        move = None if node.stores or not _can_be_placed(graph, node) else texel_move(graph, node)
        if move is None:
            continue
        move = _from_the_first(graph, move, moved)
        found = _maker(graph, move.source)
        placing = None if found is None else placing_of(move)
        if found is None or placing is None:
            continue
        maker, first = found
        reason = _obstacle(graph, node, maker, stores.get(maker.output, []), most)
        if reason is not None:
            log.add(node.name, "a kernel that only moves texels", reason)
            continue
        store = Store(tensor=node.output, first=first, placing=placing)
        stores.setdefault(maker.output, []).append(store)
        moved[node.output] = move
        log.add(node.output, f"written by {maker.name}", f"it is texels of {move.source} elsewhere")
    if not moved:
        return graph
    kept = [node for node in graph.nodes if node.output not in moved]
    read = {graph.owner(name) for node in kept for name in node.inputs}
    read |= {graph.owner(name) for name in graph.outputs if name not in moved}
    return graph.with_nodes(with_stores(graph, n, stores.get(n.output), read) for n in kept)


def _can_be_placed(graph: Graph, node: Node) -> bool:
    """Whether what a map makes is floats that lie in the GPU's memory, in blocks or rows."""
    made = graph.operand(node.output)
    return (
        made.layout is not None
        and made.memory in (Memory.TEXTURE, Memory.BLOCKED, Memory.PLAIN)
        and made.dtype.startswith("float")
    )


def _from_the_first(graph: Graph, move: TexelMove, moved: Mapping[str, TexelMove]) -> TexelMove:
    """A move of what is moved itself, as one move."""
    owner, at = graph.place(move.source)
    first = moved.get(owner)
    # A view has as many rows and columns as what it is cut from; an alias has the same texels.
    return move if first is None else move.after(first, block=at)


def _maker(graph: Graph, source: str) -> tuple[Node, int] | None:
    """The one node that makes a tensor, and where its blocks begin in that node's result."""
    makers = graph.makers(source)
    if len(makers) != 1 or not can_store(graph, makers[0]):
        return None
    (maker,) = makers
    (owner, at), (place, start) = graph.place(source), graph.place(maker.output)
    part, whole = graph.operand(source), graph.operand(maker.output)
    if owner != place or part.layout is None or whole.layout is None:
        return None
    (n, _, h, w), mine, first = part.extents, whole.extents, at - start
    if (n, h, w) != (mine.n, mine.h, mine.w) or first < 0:
        return None
    return (maker, first) if first + part.extents.blocks <= mine.blocks else None


def _obstacle(graph: Graph, node: Node, maker: Node, known: list[Store], most: int) -> str | None:
    """Why the kernel that makes what a map moves cannot write what the map makes."""
    target = graph.owner(node.output)
    image = graph.operand(target).memory is Memory.TEXTURE
    if image and target in {graph.owner(name) for name in maker.inputs}:
        return f"{maker.name} reads {target}, and cannot write the same image"
    written = (*maker.written, *(store.tensor for store in known), target)
    if len({graph.owner(name) for name in written}) > most:
        return f"{maker.name} would write more than {most} images"
    return None
