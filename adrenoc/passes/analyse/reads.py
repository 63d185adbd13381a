"""Who reads what a kernel makes, and where maps read: what fusion may leave out.

A part of a concatenation is read as the whole, a whole as the slices that lie in it, a reshaped
tensor as what it is reshaped to.  `Graph.consumers` knows those that read a tensor by its name
alone, so a pass that leaves out a kernel because each of them can do without asks here too.

What a kernel reads of an image that it writes, OpenCL leaves undefined.

Parts of a concatenation share one image, so a kernel that comes to read what another one read, or
to write what another one wrote, can get its own image among what it reads.  Each pass that joins
kernels after `join_blocks` asks here about the kernel that it would make.

Of pads that mirror or repeat, and of enlargements, channels stay where they are, so that a texel of
theirs is a texel of what they read, and who reads them can read that instead.

Before -> after:
    p = map[nn.pad reflect](x); y = conv2d(p, w)      y = conv2d[nn.pad conv2d](x, w), which reads
                                                      row abs(h - 1) of x where it read row h of p
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adrenoc.base.tvmapi import IF_THEN_ELSE, BufferLoad, Expr, const_int, dtype_of, tirx, tvm
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.layout import Layout, Memory, agree
from adrenoc.kernels.body_cost import loads_of, parts_of_kind
from adrenoc.kernels.views import bind_extents


def reads_elementwise(body: Body, name: str, graph: Graph) -> bool:
    """Return whether every read of tensor `name` is of the very element that is computed."""
    return all(
        is_identity(load.indices, body.axes, graph.tensors[name].shape)
        for load in loads_of(body.value)
        if body.source_of(load.source) == name
    )


def is_identity(indices: Any, axes: Sequence[Expr], shape: Sequence[int]) -> bool:
    """Return whether indices are the axes, one for one, of a tensor of this shape."""
    return len(indices) == len(axes) and all(
        extent == 1 or index.same_as(axis)
        for index, axis, extent in zip(indices, axes, shape, strict=True)
    )


OUTSIDE = -1
"""A row or column that no tensor has."""


def find_moved_source(graph: Graph, node: Node) -> str | None:
    """Return the tensor that a map reads at other rows and columns, and does nothing else."""
    body, layout = node.body, graph.placements[node.output].layout
    if body is None or layout is None or not isinstance(body.value, tvm.ir.TensorLoad):
        return None
    if len(node.inputs) != 1 or body.reduced or node.output in graph.output_names:
        return None
    (source,) = node.inputs
    theirs = graph.placements[source].layout
    if graph.tensors[source].value is not None or theirs is None:
        return None
    shapes = [graph.tensors[name].shape for name in (source, node.output)]
    if len(theirs.roles) != len(layout.roles):
        return None
    if not all(agree(theirs, layout, shape) for shape in shapes):
        return None
    return source if _moves_pixels(graph, node, source, body, layout) else None


def _moves_pixels(graph: Graph, node: Node, source: str, body: Body, layout: Layout) -> bool:
    """Return whether rows are read by row and columns by column, and nothing else moves."""
    before, made = graph.tensors[source].shape, graph.tensors[node.output].shape
    load: BufferLoad = body.value
    facts = zip(layout.roles, load.indices, body.axes, before, made, strict=True)
    moved = False
    for role, index, axis, extent, own in facts:
        kept = index.same_as(axis) or (extent == 1 and const_int(index) == 0)
        if role in "HW":
            others = [other for other in body.axes if not other.same_as(axis)]
            if mentions([index], others):
                return False
            moved = moved or not index.same_as(axis)
        elif extent != own or not kept:
            return False
    return moved


def mentions(expressions: Iterable[Any], axes: Sequence[Any]) -> bool:
    """Return whether expressions depend on any of these axes."""
    found = (var for expression in expressions for var in parts_of_kind(expression, tirx.Var))
    return any(var.same_as(axis) for var in found for axis in axes)


def zero_outside(body: Body, layout: Layout, shape: Sequence[int]) -> Body:
    """Have a move read outside of its source wherever it is itself read outside of `shape`.  That
    is for zero padding, which comes after the map, and for sources that are zero there."""
    load: BufferLoad = body.value
    indices = list(load.indices)
    for at, (role, axis, extent) in enumerate(zip(layout.roles, body.axes, shape, strict=True)):
        if role in "HW":
            inside = tirx.And(axis >= 0, axis < extent)
            outside = tirx.const(OUTSIDE, dtype_of(indices[at]))
            indices[at] = tirx.Select(inside, indices[at], outside)
    return replace(body, value=BufferLoad(load.source, indices))


@dataclass(frozen=True, kw_only=True)
class ConcatPart:
    """One operand of a concatenation; `start` is its first index along the axis."""

    name: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Concat:
    """A tensor that is others side by side along `axis`, in order."""

    axis: int
    parts: tuple[ConcatPart, ...]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A tensor that is `source` from index `start` of `axis` on, whole along the other axes."""

    axis: int
    source: str
    start: int


def concat_of(graph: Graph, node: Node) -> Concat | None:
    """Return what a node puts side by side; None where it does something else.  TVM states a
    concatenation as `if_then_else(k <= i, last[i - k], <the parts before>)`."""
    body = node.body
    if body is None or body.reduced or node.epilogue is not None:
        return None
    axis, rest, loads = None, body.value, []
    while isinstance(rest, tvm.ir.Call) and rest.op.name == IF_THEN_ELSE:
        condition, then, rest = rest.args
        place = _read_bound(condition, body)
        if place is None or (axis is not None and place[0] != axis):
            return None
        axis = place[0]
        loads.append((place[1], then))
    if axis is None:
        return None
    parts, end = [], graph.tensors[node.output].shape[axis]
    for start, load in (*loads, (0, rest)):
        name = _find_shifted_source(graph, body, load, axis, start)
        if name is None or start + graph.tensors[name].shape[axis] != end:
            return None
        parts.append(ConcatPart(name=name, start=start))
        end = start
    return Concat(axis=axis, parts=tuple(reversed(parts)))


def slice_of(graph: Graph, node: Node) -> Slice | None:
    """Return what a map cuts out, with steps of one; None where it does something else."""
    body = node.body
    if not node.is_map or body is None or node.epilogue is not None or len(node.inputs) != 1:
        return None
    (source,) = node.inputs
    shape, whole = graph.tensors[node.output].shape, graph.tensors[source].shape
    cut = [a for a, (x, y) in enumerate(zip(shape, whole, strict=False)) if x != y]
    if len(shape) != len(whole) or len(cut) != 1:
        return None
    (axis,) = cut
    load = body.value
    if not isinstance(load, tvm.ir.TensorLoad):
        return None
    start = const_int(_analyzer(body, shape).simplify(load.indices[axis] - body.axes[axis]))
    if start is None or _find_shifted_source(graph, body, load, axis, -start) is None:
        return None
    return Slice(axis=axis, source=source, start=start)


def restore_whole_sources(
    graph: Graph, parts: Sequence[ConcatPart], slices: Mapping[str, Slice]
) -> tuple[ConcatPart, ...]:
    """Return the parts; slices that are in order all of what they are cut from become that.

    Before -> after:
        concat(x[0:8], x[8:16], y)      concat(x, y)
    """
    found: list[ConcatPart] = []
    waiting = list(parts)
    while waiting:
        first = waiting[0]
        cut = slices.get(first.name)
        run = 1 if cut is None else _run_of(graph, waiting, slices, cut.source)
        whole = cut is not None and run > 1
        found.append(ConcatPart(name=cut.source, start=first.start) if cut and whole else first)
        del waiting[:run]
    return tuple(found)


def _run_of(
    graph: Graph, parts: Sequence[ConcatPart], slices: Mapping[str, Slice], source: str
) -> int:
    """Return how many of the first parts are, in order, all of a tensor; 1 if they are not."""
    for count, part in enumerate(parts):
        cut, at = slices.get(part.name), part.start - parts[0].start
        if cut is None or (cut.source, cut.start) != (source, at):
            return 1
        if at + graph.tensors[part.name].shape[cut.axis] == graph.tensors[source].shape[cut.axis]:
            return count + 1
    return 1


def _analyzer(body: Body, shape: tuple[int, ...]) -> Any:
    """It knows the axes that have one element only."""
    alone = [axis for axis, extent in zip(body.axes, shape, strict=True) if extent == 1]
    return bind_extents(alone, [1] * len(alone))


def _read_bound(condition: Any, body: Body) -> tuple[int, int] | None:
    """Return (axis, k) of the condition `k <= axis`."""
    if isinstance(condition, tirx.LE):
        bound, var = condition.a, condition.b
    elif isinstance(condition, tirx.GE):
        bound, var = condition.b, condition.a
    else:
        return None
    axes = [number for number, axis in enumerate(body.axes) if axis.same_as(var)]
    least = const_int(bound)
    return None if least is None or not axes else (axes[0], least)


def _find_shifted_source(graph: Graph, body: Body, load: Expr, axis: int, start: int) -> str | None:
    """Return the tensor that is read at the element's own place, `start` less along `axis`."""
    if not isinstance(load, tvm.ir.TensorLoad):
        return None
    name = body.source_of(load.source)
    if name is None or len(load.indices) != len(body.axes):
        return None
    analyzer = _analyzer(body, graph.tensors[name].shape)
    for number, (index, var) in enumerate(zip(load.indices, body.axes, strict=True)):
        if graph.tensors[name].shape[number] == 1 and const_int(analyzer.simplify(index)) == 0:
            continue
        wanted = -start if number == axis else 0
        if const_int(analyzer.simplify(index - var)) != wanted:
            return None
    return name


def first_obstacle(obstacles: Mapping[str, object]) -> str | None:
    """Return the first reason that holds; None where none does."""
    return next((reason for reason, holds in obstacles.items() if holds), None)


def find_clash(graph: Graph, nodes: Iterable[Node]) -> str | None:
    """Return why the kernel of one of these nodes cannot be, if so."""
    return next((clash for node in nodes if (clash := image_clash(graph, node))), None)


def image_clash(graph: Graph, node: Node) -> str | None:
    """Return why the kernel of a node cannot be: what it reads lies in an image that it writes."""
    written = {
        graph.owner(name) for name in node.writes if graph.placements[name].memory is Memory.TEXTURE
    }
    name = next((name for name in node.inputs if graph.owner(name) in written), None)
    if name is None:
        return None
    return f"{node.name} reads {name} from the image that it writes, which OpenCL leaves undefined"


def reads_first_alone(reader: Node, name: str) -> bool:
    """Return whether a node reads a tensor as its first input and nowhere else."""
    again = any(name in body.sources.values() for body in reader.bodies)
    return reader.inputs.count(name) == 1 and reader.inputs[0] == name and not again


def other_use(graph: Graph, node: Node) -> str | None:
    """Return why those that read a node's output are not all that need its kernel."""
    name = node.output
    owner = graph.owner(name)
    if node.stores:
        return "its kernel writes concatenations too"
    if name in graph.output_names:
        return "an output of the model"
    if owner != name:
        return f"it lies in {owner}, which others read"
    names = [n for n in (*graph.views, *graph.aliases) if n != name and graph.owner(n) == name]
    if not names:
        return None
    read = {n for reader in graph.nodes for n in reader.inputs} | set(graph.outputs)
    other = next((n for n in names if n in read), None)
    return None if other is None else f"it is also read as {other}"
