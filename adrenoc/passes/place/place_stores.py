"""Write what only moves texels where it is made: heads, tokens, windows, parts of them.

A kernel counts its results texel by texel and can store each anywhere.  So a reshape, a transpose,
a slice or a concatenation that keeps texels whole needs no kernel, if one kernel makes each of the
tensors that it reads.

Before -> after:
    y = matmul(x, w); q, k, v = the heads of y, each    matmul(x, w) writes q, k and v;
    in a kernel of its own                              y is in no memory

A part that cannot lie in the whole, since it lies in another one, or since a kernel that writes
the whole reads it, needs no copy if those that make it write it to both places.

Before -> after:
    a = conv2d(x); b = conv2d(a); copy a into c; b lies in c     conv2d(x) writes a and c's blocks
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph, Node, Store
from adrenoc.ir.layout import LANES, Memory, agree
from adrenoc.passes.analyse.reads import ConcatPart
from adrenoc.passes.context import Context
from adrenoc.passes.place.texel_moves import TexelMove, placing_of, texel_moves

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
    part: ConcatPart,
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
    """Return whether a node's kernel makes floats in blocks or rows, to write wherever it may."""
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


def place_stores(graph: Graph, context: Context) -> Graph:
    """Let the kernels that make what a map moves store it where the map would."""
    limits, log = context.limits, context.log
    plan = _Plan(graph=graph, most=min(MOST_STORES, limits.max_write_image_args))
    for node in graph.nodes:
        if not node.stores and can_store(graph, node):
            plan.place(node, log)
    stores, moved = plan.stores, plan.moved
    if not moved:
        return graph
    kept = [node for node in graph.nodes if node.output not in moved]
    read = {graph.owner(name) for node in kept for name in node.inputs}
    read |= {graph.owner(name) for name in graph.outputs if name not in moved}
    return graph.replace_nodes(add_stores(graph, n, stores.get(n.output), read) for n in kept)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is decided on: maker -> what it stores elsewhere, and the tensors that come so."""

    graph: Graph
    most: int
    """Memories that one kernel may write."""
    stores: dict[str, list[Store]] = field(default_factory=dict)
    moved: dict[str, TexelMove | None] = field(default_factory=dict)
    """How each is texels of another tensor; None for those of several parts."""

    def place(self, node: Node, log: DecisionLog) -> None:
        """Let the makers of what a node moves write it, if all of them can."""
        moves = [self._chain_moves(move) for move in texel_moves(self.graph, node)]
        found: list[tuple[Node, Store]] = []
        for move in moves:
            made = _maker(self.graph, move.source)
            placing = None if made is None or made[0].output in self.moved else placing_of(move)
            if made is None or placing is None:
                return
            maker, first = made
            found.append((maker, Store(tensor=node.output, first=first, placing=placing)))
        if not found:
            return
        makers = list({maker.output: maker for maker, _ in found}.values())
        reasons = (self._obstacle(node, maker) for maker in makers)
        reason = next((reason for reason in reasons if reason is not None), None)
        if reason is not None:
            log.add(node.name, "a kernel that only moves texels", reason)
            return
        for maker, store in found:
            self.stores.setdefault(maker.output, []).append(store)
        self.moved[node.output] = moves[0] if len(moves) == 1 else None
        who = " and ".join(maker.name for maker in makers)
        sources = " and ".join(dict.fromkeys(move.source for move in moves))
        log.add(node.output, f"written by {who}", f"it is texels of {sources} elsewhere")

    def _chain_moves(self, move: TexelMove) -> TexelMove:
        """Return a move of what is moved itself, as one move."""
        owner, at = self.graph.place(move.source)
        first = self.moved.get(owner)
        # A view has as many rows and columns as what it is cut from; an alias the same texels.
        return move if first is None else move.compose(first, block=at)

    def _obstacle(self, node: Node, maker: Node) -> str | None:
        """Return why the kernel that makes what a map moves cannot write what the map makes."""
        graph, target = self.graph, self.graph.owner(node.output)
        image = graph.operand(target).memory is Memory.TEXTURE
        if image and target in {graph.owner(name) for name in maker.inputs}:
            return f"{maker.name} reads {target}, and cannot write the same image"
        if node.output in graph.states and self._is_read_from(maker, target):
            return f"{target} is a state, of which others yet read what the last run left"
        known = self.stores.get(maker.output, [])
        written = (*maker.writes, *(store.tensor for store in known), target)
        if len({graph.owner(name) for name in written}) > self.most:
            return f"{maker.name} would write more than {self.most} images"
        return None

    def _is_read_from(self, maker: Node, target: str) -> bool:
        """Return whether the memory of a tensor is read by a node or by any that comes after it."""
        graph = self.graph
        nodes = graph.nodes[graph.nodes.index(maker) :]
        return any(graph.owner(name) == target for node in nodes for name in node.inputs)


def _maker(graph: Graph, source: str) -> tuple[Node, int] | None:
    """Return the one node that makes a tensor, and where its blocks begin in that node's result."""
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
