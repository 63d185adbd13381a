"""What each level of the IR may hold, checked between stages where the options ask for it."""

from __future__ import annotations

from collections import Counter

from adrenoc.graph import Graph, Node
from adrenoc.layout import LANES
from adrenoc.operand import Memory
from adrenoc.passes.lower import Program
from adrenoc.target import Limits


class IllegalIrError(Exception):
    """A stage broke a rule of its level: a bug of adrenoc, not of the user."""


def check_graph(graph: Graph, limits: Limits | None = None) -> None:
    """Every tensor is made before it is read; with `limits`, every image exists on the target.

    Views lie inside of their base, and no kernel reads an image that it writes.

    Raises:
        IllegalIrError: naming the tensor and the rule.
    """
    for name in graph.views:
        _check_view(graph, name)
    _check_order(graph)
    for name in graph.tensors if limits is not None else ():
        spec = graph.operand(name)
        if spec.memory is not Memory.TEXTURE:
            continue
        layers, rows, cols, _ = spec.physical
        if limits is not None and (
            cols > limits.image2d_max_width_texels
            or rows > limits.image2d_max_height_texels
            or layers > limits.image_max_array_layers
        ):
            raise IllegalIrError(f"{name} is {cols} x {rows} texels in {layers} layers")


def _check_order(graph: Graph) -> None:
    """Every tensor is made, once, before it is read."""
    known = {*graph.inputs, *(n for n, t in graph.tensors.items() if t.value is not None)}
    made: set[tuple[str, int]] = set()
    placed: Counter[str] = Counter()
    for node in graph.nodes:
        _check_node(node)
        for name in node.inputs:
            if graph.owner(name) not in known and not _blocks(graph, name) <= made:
                raise IllegalIrError(f"{node.name} reads {name} before it is made")
        _check_stores(graph, node)
        elsewhere = _placed(graph, node)
        placed.update(elsewhere)
        for name in node.written:
            if name in elsewhere and placed[name] < _texels(graph, name):
                continue  # another kernel writes the rest
            again = _blocks(graph, name) & made
            if again:
                raise IllegalIrError(f"{node.name} writes blocks of {name} a second time")
            made |= _blocks(graph, name)
        _check_images(graph, node)
    for name in graph.outputs:
        if graph.owner(name) not in known and not _blocks(graph, name) <= made:
            raise IllegalIrError(f"nothing makes the output {name}")


def _blocks(graph: Graph, name: str) -> set[tuple[str, int]]:
    """The blocks of channels of a tensor, by the owner of the memory; one of a tensor alone."""
    owner, first = graph.place(name)
    if not graph.views or graph.placements[owner].layout is None:
        return {(owner, 0)}
    return {(owner, first + i) for i in range(graph.operand(name).extents.blocks)}


def _check_view(graph: Graph, name: str) -> None:
    view = graph.views[name]
    part, whole = graph.operand(name), graph.operand(view.base)
    mine, other = part.extents, whole.extents
    if view.first < 0 or view.first + mine.blocks > other.blocks:
        raise IllegalIrError(f"{name} begins at block {view.first} of {view.base}, and ends beyond")
    if mine.c % LANES and view.first * LANES + mine.c != other.c:
        raise IllegalIrError(f"{name} ends within a block of {view.base}, whose lanes are not zero")
    if (mine.n, mine.h, mine.w) != (other.n, other.h, other.w):
        raise IllegalIrError(f"{name} has other rows and columns than {view.base}")
    alike = (part.memory, part.dtype, part.roles.fold) == (
        whole.memory,
        whole.dtype,
        whole.roles.fold,
    )
    if not alike:
        raise IllegalIrError(f"{name} lies in other memory than {view.base}")


def _check_images(graph: Graph, node: Node) -> None:
    """OpenCL leaves undefined what a kernel reads from an image that it writes."""
    if not graph.placements:
        return
    written = {
        graph.owner(name) for name in node.written if graph.operand(name).memory is Memory.TEXTURE
    }
    for name in node.inputs:
        if graph.owner(name) in written:
            raise IllegalIrError(f"{node.name} reads {name} from the image that it writes")


def _check_stores(graph: Graph, node: Node) -> None:
    """What a kernel writes beside its output are ranges of that."""
    for store in node.stores:
        if store.placing is not None:
            continue  # `_placed` looks at those
        part, whole = graph.operand(store.tensor).extents, graph.operand(node.output).extents
        end = store.first + part.blocks
        if (
            store.first < 0
            or end > whole.blocks
            or (part.c % LANES and store.first * LANES + part.c != whole.c)
            or (part.n, part.h, part.w) != (whole.n, whole.h, whole.w)
        ):
            raise IllegalIrError(f"{store.tensor} is no range of blocks of {node.output}")


def _placed(graph: Graph, node: Node) -> Counter[str]:
    """Texels of each tensor that a kernel places one by one.

    Raises:
        IllegalIrError: they are of blocks that it does not have.
    """
    found: Counter[str] = Counter()
    whole = graph.operand(node.output).extents if node.stores else None
    for store in node.stores:
        placing = store.placing
        if placing is None or whole is None:
            continue
        if store.first < 0 or store.first + placing.blocks > whole.blocks:
            raise IllegalIrError(f"{store.tensor} is of blocks that {node.output} does not have")
        found[store.tensor] += placing.texels(whole)
    return found


def _texels(graph: Graph, name: str) -> int:
    e = graph.operand(name).extents
    return e.n * e.blocks * e.h * e.w


def _check_node(node: Node) -> None:
    for body in node.bodies:
        stray = {n for n in body.sources.values() if n not in (*node.inputs, Node.RESULT)}
        if stray:
            raise IllegalIrError(f"{node.name} reads {sorted(stray)}, which are not its inputs")


def check_program(program: Program, limits: Limits) -> None:
    """Every launch fits the target.

    Raises:
        IllegalIrError: naming the kernel and the limit.
    """
    for kernel in program.kernels.values():
        threads = 1
        for extent in kernel.launch.work_group:
            threads *= extent
        if threads > limits.max_work_group_size:
            raise IllegalIrError(
                f"{kernel.name} has {threads} threads a group, at most {limits.max_work_group_size}"
            )
        if kernel.shared_bytes > limits.local_mem_bytes:
            raise IllegalIrError(
                f"{kernel.name} takes {kernel.shared_bytes} bytes of local memory a group, at most "
                f"{limits.local_mem_bytes}"
            )
        if len(kernel.scopes) > limits.max_kernel_args:
            raise IllegalIrError(
                f"{kernel.name} has {len(kernel.scopes)} arguments, at most "
                f"{limits.max_kernel_args}"
            )
