"""What the planning graph may hold: between stages where the options ask for it, and at the end.

`adrenoc/compile/pipeline/steps.py` has all checks of a finished compilation.
"""

from collections import Counter
from collections.abc import Sequence

from adrenoc.base.errors import DefectError
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Memory
from adrenoc.kernels.families.operators import changed_input
from adrenoc.passes.analyse.reads import image_clash
from adrenoc.target.gpu import Limits


def check_image(name: str, physical: Sequence[int], limits: Limits) -> None:
    """Hold an image of physical shape `[layers, rows, columns, 4]` against the limits.

    Raises:
        DefectError: it is beyond them.
    """
    if not limits.hold_image(physical):
        layers, rows, columns, _ = physical
        raise DefectError(
            f"{name} is {columns} x {rows} texels in {layers} layers, at most {limits.image_text}"
        )


def check_graph(graph: Graph, limits: Limits | None = None) -> None:
    """Every tensor is made before it is read; with `limits`, every image exists on the target.

    Views lie inside of their base, and no kernel reads an image that it writes.

    Raises:
        DefectError: naming the tensor and the rule.
    """
    for name in graph.views:
        _check_view(graph, name)
    _check_order(graph)
    for name in graph.tensors if limits is not None else ():
        spec = graph.operand(name)
        if spec.memory is Memory.TEXTURE and limits is not None:
            check_image(name, spec.physical, limits)


def _check_order(graph: Graph) -> None:
    """Every tensor is made, once, before it is read."""
    known = {*graph.inputs, *(n for n, t in graph.tensors.items() if t.value is not None)}
    made: set[tuple[str, int]] = set()
    shared = {graph.owner(name) for name in graph.views}
    placed: Counter[str] = Counter()
    for node in graph.nodes:
        _check_node(node)
        for name in node.inputs:
            if graph.owner(name) not in known and not _blocks(graph, name, shared) <= made:
                raise DefectError(f"{node.name} reads {name} before it is made")
        _check_stores(graph, node)
        elsewhere = _count_placed_texels(graph, node)
        placed.update(elsewhere)
        for name in node.writes:
            e = graph.operand(name).extents if name in elsewhere else None
            if e is not None and placed[name] < e.n * e.blocks * e.h * e.w:
                continue  # another kernel writes the rest
            again = _blocks(graph, name, shared) & made
            if again and graph.owner(name) not in _changed_owners(graph, node):
                raise DefectError(f"{node.name} writes blocks of {name} a second time")
            made |= _blocks(graph, name, shared)
        if graph.placements and (clash := image_clash(graph, node)):
            raise DefectError(clash)
    for name in graph.outputs:
        if graph.owner(name) not in known and not _blocks(graph, name, shared) <= made:
            raise DefectError(f"nothing makes the output {name}")


def _changed_owners(graph: Graph, node: Node) -> set[str]:
    """Return the memory that a node changes a part of; none of most."""
    position = changed_input(node)
    changed = () if position is None else (node.inputs[position],)
    read = {graph.owner(name) for name in node.inputs}
    in_place = read.intersection(graph.owner(name) for name in node.also_writes)
    return in_place.union(graph.owner(name) for name in changed)


def _blocks(graph: Graph, name: str, shared: set[str]) -> set[tuple[str, int]]:
    """Return a tensor's blocks by the memory's owner; one where views do not share the memory."""
    owner, first = graph.place(name)
    if owner not in shared or graph.placements[owner].layout is None:
        return {(owner, 0)}
    return {(owner, first + i) for i in range(graph.operand(name).extents.blocks)}


def _check_view(graph: Graph, name: str) -> None:
    view = graph.views[name]
    part, whole = graph.operand(name), graph.operand(view.base)
    mine, other = part.extents, whole.extents
    if view.first < 0 or view.first + mine.blocks > other.blocks:
        raise DefectError(f"{name} begins at block {view.first} of {view.base}, and ends beyond")
    if mine.c % LANES and view.first * LANES + mine.c != other.c:
        raise DefectError(f"{name} ends within a block of {view.base}, whose lanes are not zero")
    if (mine.n, mine.h, mine.w) != (other.n, other.h, other.w):
        raise DefectError(f"{name} has other rows and columns than {view.base}")
    if (part.memory, part.dtype) != (whole.memory, whole.dtype) or (
        part.roles.order is not whole.roles.order
    ):
        raise DefectError(f"{name} lies in other memory than {view.base}")


def _check_stores(graph: Graph, node: Node) -> None:
    """What a kernel writes beside its output are ranges of that."""
    for store in node.stores:
        if store.placing is not None:
            continue  # `_count_placed_texels` looks at those
        part, whole = graph.operand(store.tensor).extents, graph.operand(node.output).extents
        end = store.first + part.blocks
        if (
            store.first < 0
            or end > whole.blocks
            or (part.c % LANES and store.first * LANES + part.c != whole.c)
            or (part.n, part.h, part.w) != (whole.n, whole.h, whole.w)
        ):
            raise DefectError(f"{store.tensor} is no range of blocks of {node.output}")


def _count_placed_texels(graph: Graph, node: Node) -> Counter[str]:
    """Return texels of each tensor that a kernel places one by one.

    Raises:
        DefectError: they are of blocks that it does not have.
    """
    found: Counter[str] = Counter()
    whole = graph.operand(node.output).extents if node.stores else None
    for store in node.stores:
        placing = store.placing
        if placing is None or whole is None:
            continue
        if store.first < 0 or store.first + placing.blocks > whole.blocks:
            raise DefectError(f"{store.tensor} is of blocks that {node.output} does not have")
        found[store.tensor] += placing.texels(whole)
    return found


def _check_node(node: Node) -> None:
    within = (Node.RESULT, Node.BESIDE)
    for body in node.bodies:
        stray = {n for n in body.sources.values() if n not in (*node.inputs, *within)}
        if stray:
            raise DefectError(f"{node.name} reads {sorted(stray)}, which are not its inputs")
