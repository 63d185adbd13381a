"""Give the axes of every tensor their roles N, C, H, W.

Convolutions, pools and matmuls say which axis is the channel; maps hand the roles of their
sources on, axis by axis, so that transposes, squeezes and slices keep every element in its
texel.  What nobody decides gets the layout of its rank.

Constants take the roles of the tensors that they meet.  A node that cannot read an operand in
the layout that it has, gets a copy in one that it can (`assign_memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Layout, channels_last, default_layout
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import same_layout
from adrenoc.passes.analyse.elementwise import reads_elementwise
from adrenoc.passes.context import Context


def assign_layouts(graph: Graph, context: Context) -> Graph:
    """Choose the layout of every tensor, None for those whose axes cannot have roles."""
    layouts: dict[str, Layout | None] = {}
    demands = _demands(graph)
    for name in graph.inputs:
        layouts[name] = demands.get(name) or default_layout(graph.tensors[name].shape)
    for node in graph.nodes:
        layouts[node.output] = _output_layout(graph, node, layouts, demands)
    for name, tensor in graph.tensors.items():
        if tensor.value is not None:
            layouts[name] = demands.get(name) or _constant_layout(graph, name, layouts)
        if layouts[name] is None and tensor.shape and tensor.is_float:
            context.log.add(
                name,
                "row-major buffer",
                f"shape {tensor.shape} has more than four extents above one",
            )
    return replace(graph, layouts=layouts)


def wanted_layout(graph: Graph, node: Node, position: int) -> Layout | None:
    """Return the layout that an operator needs its input `position` in; None where any will do."""
    operator = OPERATORS.get(node.op)
    return None if operator is None else operator.wants_layout(node, position, graph.tensors)


def _demands(graph: Graph) -> dict[str, Layout]:
    """Return what the first choosy reader of each tensor wants, also through maps that keep
    axes."""
    demands: dict[str, Layout] = {}
    for node in reversed(graph.nodes):
        for position, name in enumerate(node.inputs):
            wanted = wanted_layout(graph, node, position)
            if wanted is None and _keeps_axes(graph, node, position):
                wanted = demands.get(node.output)
            if wanted is not None:
                demands[name] = wanted
    return demands


def _keeps_axes(graph: Graph, node: Node, position: int) -> bool:
    """Return whether the output's axes are those of this input, one for one."""
    name = node.inputs[position]
    if node.is_concat:
        return True
    if graph.tensors[name].shape != graph.tensors[node.output].shape:
        return False
    if node.body is not None:
        return not node.body.reduced and reads_elementwise(node.body, name, graph)
    operator = OPERATORS.get(node.op)
    return position == 0 and operator is not None and operator.keeps_axes


def _output_layout(
    graph: Graph, node: Node, layouts: Mapping[str, Layout | None], demands: Mapping[str, Layout]
) -> Layout | None:
    shape = graph.tensors[node.output].shape
    if node.body is not None or (node.is_region or node.is_region_memory):
        handed = (
            _inherit_layout(graph, node.body, shape, layouts) if node.body is not None else None
        )
        return demands.get(node.output) or handed or default_layout(shape)
    source = layouts.get(node.inputs[0]) if node.inputs else None
    operator = OPERATORS.get(node.op)
    makes = same_layout if operator is None else operator.makes_layout
    return makes(node, graph.tensors, source)


def _inherit_layout(
    graph: Graph, body: Body, shape: tuple[int, ...], layouts: Mapping[str, Layout | None]
) -> Layout | None:
    """Return the roles that the output axes have in the sources, the largest source first."""
    sources = sorted(
        ((b, n) for b, n in body.sources.items() if layouts.get(n) is not None),
        key=lambda entry: -_size(graph.tensors[entry[1]].shape),
    )
    for buffer, name in sources:
        layout = layouts[name]
        if layout is None:
            continue
        roles = _roles_by_axis(body, buffer, layout, graph.tensors[name].shape)
        completed = _complete_roles(roles, shape)
        if completed is not None:
            return Layout(completed)
    return None


def _roles_by_axis(
    body: Body, buffer: object, layout: Layout, source_shape: tuple[int, ...]
) -> dict[int, str]:
    """Output axis -> role, where a load's index is that axis plus a constant."""
    roles: dict[int, str] = {}
    for load in loads_of(body.value):
        if not load.source.same_as(buffer):
            continue
        for position, index in enumerate(load.indices):
            role = layout.roles[position]
            if role == "1" or source_shape[position] == 1:
                continue
            for axis, var in enumerate(body.axes):
                if _moves_with(index, var) and axis not in roles and role not in roles.values():
                    roles[axis] = role
    return roles


def _moves_with(index: object, var: object) -> bool:
    """Return whether an index is the variable itself, or it plus or minus something."""
    if hasattr(index, "same_as") and index.same_as(var):
        return True
    from adrenoc.base.tvmapi import tirx

    return isinstance(index, (tirx.Add, tirx.Sub)) and index.a.same_as(var)


def _complete_roles(roles: dict[int, str], shape: tuple[int, ...]) -> str | None:
    """Letters for all axes, or None where the channel would be missing or letters run out."""
    wide = [axis for axis, extent in enumerate(shape) if extent != 1]
    if "C" not in roles.values():
        return None
    spare = [r for r in "NHWC" if r not in roles.values()]
    letters = []
    for axis in range(len(shape)):
        if axis in roles:
            letters.append(roles[axis])
        elif axis in wide:
            if not spare:
                return None
            letters.append(spare.pop(0))
        else:
            letters.append("1")
    return "".join(letters)


def _constant_layout(
    graph: Graph, name: str, layouts: Mapping[str, Layout | None]
) -> Layout | None:
    """Return the roles under which a constant is read, so that it can be read as texels."""
    shape = graph.tensors[name].shape
    for node in graph.consumers[name]:
        for body in node.bodies:
            layout = layouts.get(node.inputs[0] if body is node.prologue else node.output)
            if body is node.parts.get("score"):
                layout = channels_last(len(body.axes))
            roles = _roles_read(body, name, layout)
            if roles is not None:
                completed = _complete_roles(roles, shape)
                if completed is not None:
                    return Layout(completed)
    return default_layout(shape)


def _roles_read(body: Body, name: str, layout: Layout | None) -> dict[int, str] | None:
    if layout is None:
        return None
    roles: dict[int, str] = {}
    for load in loads_of(body.value):
        if body.source_of(load.source) != name:
            continue
        for position, index in enumerate(load.indices):
            for axis, var in enumerate(body.axes):
                role = layout.roles[axis]
                if _moves_with(index, var) and role != "1" and role not in roles.values():
                    roles[position] = role
    return roles


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
