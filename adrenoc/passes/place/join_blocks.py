"""Write concatenations in place and read slices where they are: ranges of channels as views.

A concatenation along the channels whose parts begin at whole blocks is one tensor: who makes a
part writes its blocks there, and who reads a part, or a range of parts, reads them there.  A
slice of whole blocks is such a range too.  Concatenations of concatenations become one tensor, and
so do those that grow: concat(a, b), concat(a, b, c), ...

Before -> after:
    a = conv2d(x); b = conv2d(y); c = concat(a, b)     a and b lie in c: no kernel, no copy
    s = strided_slice(x, channels 8..16)               s lies in x from block 2 on

No kernel may read an image that it writes (OpenCL leaves undefined what it reads), and a tensor
can lie in one place only.  Parts that this forbids are written twice, by the kernels that make
them (`second_stores`); what nothing makes, as inputs of the model, is copied.  Where more than
one part would be, the concatenation stays a kernel.

Before -> after:
    a = conv2d(x); b = conv2d(a); c = concat(a, b)     b lies in c; conv2d(x) writes a and into c
    a, b = split(conv2d(x)); c = concat(a, y); d = concat(b, y)     conv2d(x) writes into c and d

What only moves texels is written where it is made (`place_stores`): heads, tokens, windows.

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

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import CONCAT, Graph, Node, Store, Tensor, View
from adrenoc.ir.layout import LANES, Memory, agree
from adrenoc.passes.analyse.reads import (
    Concat,
    ConcatPart,
    Slice,
    concat_of,
    restore_whole_sources,
    slice_of,
)
from adrenoc.passes.context import Context
from adrenoc.passes.place.copies import copy_node
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
    """Return the stores that would bring a part into a concatenation; none where some cannot be.  A
    kernel writes `most` memories.  `known` are those that are decided on: what they write can be
    part of this one.  `gone` are outputs that no kernel makes, `refused` nodes with the memory that
    they must not write."""
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
    `read` are the memories that somebody reads."""
    if not stores:
        return node
    before = node.stores or (Store(tensor=node.output),)
    kept = (s for s in before if graph.owner(s.tensor) in read)
    return replace(node, stores=(*kept, *stores))


def place_stores(graph: Graph, context: Context) -> Graph:
    """Let the kernels that make what a map moves store it where the map would."""
    limits, log = context.limits, context.log
    plan = _Moves(graph=graph, most=min(MOST_STORES, limits.max_write_image_args))
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
class _Moves:
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


MOST_COPIES = 1
"""Parts of a concatenation that may be copied: a kernel each, as the concatenation is one."""


def join_blocks(graph: Graph, context: Context) -> Graph:
    """Make parts of concatenations, and slices, views of the whole where nothing forbids it."""
    limits, log = context.limits, context.log
    concats = {n.output: concat_of(graph, n) for n in graph.nodes if n.is_concat}
    ranges = {name: concat for name, concat in concats.items() if concat is not None}
    slices = {}
    for node in graph.nodes:
        cut = slice_of(graph, node)
        if cut is None or node.output in graph.output_names:
            continue
        source = graph.aliases.get(cut.source, cut.source)
        if source not in graph.producers or not _alike(graph, node.output, cut.source):
            continue
        part, whole = graph.operand(node.output), graph.operand(cut.source)
        if part.roles.axis("C") != cut.axis:
            continue
        end = cut.start + part.extents.c
        if cut.start % LANES or (end % LANES and end != whole.extents.c):
            log.add(
                node.output,
                "copied",
                f"channels {cut.start} to {end} of {cut.source} are not whole blocks of {LANES}",
            )
            continue
        slices[node.output] = cut
    if not concats and not slices:
        return graph
    most = min(MOST_STORES, limits.max_write_image_args)
    plan = _Plan(graph=graph, concats=ranges, slices=slices, most_stores=most)
    for name, concat in ranges.items():
        reason = _refusal(graph, name, concat)
        if reason is not None:
            plan.as_kernel[name] = reason
    while True:
        joined = plan.attempt()
        more = plan.learn(joined)
        if not more:
            break
    plan.tell(log)
    return _rewritten(joined, plan)


def _alike(graph: Graph, part: str, whole: str) -> bool:
    """Return whether two tensors lie in the same kind of memory, in blocks, with the same roles."""
    mine, other = graph.placements[part], graph.placements[whole]
    if mine.memory not in (Memory.TEXTURE, Memory.BLOCKED) or mine.layout is None:
        return False
    if len(graph.tensors[part].shape) != len(graph.tensors[whole].shape):
        return False
    return (
        (mine.memory, mine.dtype) == (other.memory, other.dtype)
        and other.layout is not None
        and mine.layout.order is other.layout.order
        and agree(mine.layout, other.layout, graph.tensors[whole].shape)
    )


def _refusal(graph: Graph, name: str, concat: Concat) -> str | None:
    """Return why a concatenation cannot be written in place, whatever else there is."""
    placement = graph.placements[name]
    if placement.memory not in (Memory.TEXTURE, Memory.BLOCKED) or placement.layout is None:
        return f"it is in {placement.memory.value} memory"
    if placement.layout.axis("C") != concat.axis:
        return f"axis {concat.axis} is not its channels, as {placement.layout} has them"
    for part in concat.parts:
        if part.start % LANES:
            return f"{part.name} begins at channel {part.start}, within a block of {LANES}"
    return None


@dataclass(kw_only=True)
class _Plan:
    """What is known about the views of one graph; each attempt may teach more."""

    graph: Graph
    concats: Mapping[str, Concat]
    slices: Mapping[str, Slice]
    most_stores: int
    as_kernel: dict[str, str] = field(default_factory=dict)
    """Concatenations that stay kernels, and why."""
    apart: dict[str, str] = field(default_factory=dict)
    """Parts that keep memory of their own, and why."""
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Nodes, with memory that they must not write a second time."""
    copied: dict[str, list[tuple[ConcatPart, str]]] = field(default_factory=dict)
    """Concatenation -> the parts that are copied into it in the last attempt, and why."""
    stores: list[SecondStore] = field(default_factory=list)
    """What is written twice in the last attempt."""
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    """Part and concatenation -> why the part is written twice."""

    def vanishes(self, name: str) -> bool:
        """Return whether the node that gives a tensor needs no kernel."""
        return name in self.slices or (name in self.concats and name not in self.as_kernel)

    def attempt(self) -> Graph:
        """Return the graph with all views that nothing known forbids; its nodes are untouched."""
        self.copied = {}
        views = {
            name: View(
                base=self.graph.aliases.get(cut.source, cut.source), first=cut.start // LANES
            )
            for name, cut in self.slices.items()
        }
        graph = replace(self.graph, views=views)
        for node in reversed(self.graph.nodes):
            concat = self.concats.get(node.output)
            if concat is not None and node.output not in self.as_kernel:
                graph = self._join(graph, node.output, concat)
        self._store_twice(graph)
        return graph

    def _store_twice(self, graph: Graph) -> None:
        """Let those that make the parts write them, where they would be copied."""
        self.stores, self.reasons = [], {}
        gone = {node.output for node in graph.nodes if self.vanishes(node.output)}
        for node in graph.nodes:  # inner ones first: they can be parts
            left = []
            for part, reason in self.copied.get(node.output, ()):
                found = second_stores(
                    graph,
                    node.output,
                    part,
                    most=self.most_stores,
                    known=self.stores,
                    gone=gone,
                    refused=self.refused,
                )
                self.stores += found
                if found:
                    self.reasons[part.name, node.output] = reason
                else:
                    left.append((part, reason))
            if node.output in self.copied:
                self.copied[node.output] = left

    def _join(self, graph: Graph, name: str, concat: Concat) -> Graph:
        """Place the parts of one concatenation."""
        views = dict(graph.views)
        parts = restore_whole_sources(graph, concat.parts, self.slices)
        if name not in views and name not in self.apart:
            together = self._find_common_place(graph, name, parts)
            if together is not None:
                return replace(graph, views={**views, name: together})
        copied = []
        for part in parts:
            own = graph.aliases.get(part.name, part.name)
            reason = self._obstacle(replace(graph, views=views), name, part.name)
            if reason is not None:
                copied.append((part, reason))
                continue
            views[own] = View(base=name, first=part.start // LANES)
        self.copied[name] = copied
        return replace(graph, views=views)

    def _find_common_place(
        self, graph: Graph, name: str, parts: Sequence[ConcatPart]
    ) -> View | None:
        """Return the range of another tensor that these parts are already, one after the other."""
        owner, first = graph.place(parts[0].name)
        own = graph.aliases.get(parts[0].name, parts[0].name)
        if owner == own or not _alike(graph, name, owner):
            return None
        for part in parts:
            if graph.place(part.name) != (owner, first + part.start // LANES):
                return None
        tail = graph.operand(name).extents.c % LANES
        whole = graph.operand(owner).extents
        end = first * LANES + graph.operand(name).extents.c
        return None if tail and end != whole.c else View(base=owner, first=first)

    def _obstacle(self, graph: Graph, name: str, part: str) -> str | None:
        """Return why a part cannot be written into the whole."""
        own = graph.aliases.get(part, part)
        if own in graph.views:
            return f"it lies in {graph.views[own].base}"
        if own in self.graph.output_names or own not in self.graph.producers:
            return "it is an input, an output or a constant of the model"
        if not _alike(graph, part, name):
            mine, other = graph.placements[part], graph.placements[name]
            return (
                f"it is {mine.dtype} in {mine.memory.value}, {mine.layout}, and the whole "
                f"{other.dtype} in {other.memory.value}, {other.layout}"
            )
        return self.apart.get(own)

    def learn(self, graph: Graph) -> bool:
        """Find what an attempt may not do; whether there is anything.  Of each whole only the
        first: with that part apart, the next one may do no harm."""
        known = self._decided_count
        troubled: set[str] = set()
        stores: dict[str, list[str]] = {}
        for store in self.stores:
            stores.setdefault(store.maker, []).append(graph.owner(store.whole))
        for node in graph.nodes:
            if self.vanishes(node.output):
                continue
            own = graph.owner(node.output)
            written = {own, *stores.get(node.output, ())} - {node.output}
            for name in node.inputs:
                owner = graph.owner(name)
                image = graph.operand(owner).memory is Memory.TEXTURE
                if image and owner in written and owner not in troubled:
                    troubled.add(owner)
                    self._separate(graph, node, name, owner)
        if troubled:
            return self._decided_count > known
        for name, copies in self.copied.items():
            whole = graph.owner(name)
            image = graph.operand(name).memory is Memory.TEXTURE
            within = image and any(graph.owner(part.name) == whole for part, _ in copies)
            if len(copies) > MOST_COPIES or within:
                part, reason = copies[0]
                self.as_kernel[name] = (
                    f"in place {len(copies)} of its parts would be copied, the first, "
                    f"{part.name}, because {reason}"
                )
        return self._decided_count > known

    @property
    def _decided_count(self) -> int:
        return len(self.apart) + len(self.as_kernel) + len(self.refused)

    def _separate(self, graph: Graph, node: Node, name: str, owner: str) -> None:
        """Forbid what makes a node read `name` from the image `owner`, which it writes."""
        undefined = f"which lies in the same image as {node.output}: OpenCL leaves that undefined"
        part = self._part_of(graph, name)
        if part is not None and all(can_store(graph, maker) for maker in graph.makers(part)):
            self.apart[part] = f"{node.name} reads {name}, {undefined}"
        elif graph.owner(node.output) != owner:
            self.refused.add((node.output, owner))
        elif node.output in self.apart:
            raise ValueError(f"{node.output} lies in {owner} and should not")
        else:
            self.apart[node.output] = f"its kernel reads {name}, {undefined}"

    def _part_of(self, graph: Graph, name: str) -> str | None:
        """Return the part of a concatenation that a tensor is, or is cut from."""
        own = graph.aliases.get(name, name)
        while own in graph.views:
            if own not in self.slices:
                return own
            base = graph.views[own].base
            own = graph.aliases.get(base, base)
        return None

    def tell(self, log: DecisionLog) -> None:
        """Decisions on what is not written in place."""
        for name, reason in self.as_kernel.items():
            log.add(name, "concatenated by a kernel", reason)
        for name, copies in self.copied.items():
            for part, reason in copies:
                log.add(part.name, f"copied into {name}", reason)
        for (part_name, whole), reason in self.reasons.items():
            log.add(part_name, f"written into {whole} too", reason)


def _rewritten(graph: Graph, plan: _Plan) -> Graph:
    """Leave out the kernels that views make needless, and add the copies that they need.  What a
    concatenation that stays a kernel computes is a map like any other."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    views, placements = dict(graph.views), dict(graph.placements)
    stores: dict[str, list[Store]] = {}
    for number, store in enumerate(plan.stores):
        whole = graph.tensors[store.whole]
        axis = graph.operand(store.whole).roles.axis("C")
        shape = tuple(store.channels if a == axis else n for a, n in enumerate(whole.shape))
        tensor = replace(whole, name=f"{store.source}_in_{store.whole}_{number}", shape=shape)
        tensors.append(tensor)
        views[tensor.name] = View(base=store.whole, first=store.start)
        placements[tensor.name] = graph.placements[store.whole]
        stores.setdefault(store.maker, []).append(Store(tensor=tensor.name, first=store.first))
    for node in graph.nodes:
        if node.output in plan.slices:
            continue
        if node.output not in plan.concats or node.output in plan.as_kernel:
            nodes.append(replace(node, op="map") if node.is_concat else node)
            continue
        for number, (part, _) in enumerate(plan.copied.get(node.output, ())):
            tensor = graph.tensors[part.name]
            name = f"{part.name}_in_{node.output}_{number}"
            copy = replace(tensor, name=name, value=None)
            tensors.append(copy)
            nodes.append(copy_node(part.name, copy, CONCAT))
            views[name] = View(base=node.output, first=part.start // LANES)
            placements[name] = graph.placements[node.output]
    joined = replace(graph, views=views, placements=placements)
    read = {joined.owner(name) for node in nodes for name in node.inputs}
    read.update(joined.owner(name) for name in joined.outputs)
    stored = [add_stores(joined, node, stores.get(node.output), read) for node in nodes]
    return joined.replace_nodes(stored, tensors)
