"""Give every tensor its place: the roles N, C, H, W of its axes, then its memory.

Roles first: convolutions, pools and matmuls say which axis is the channel; maps hand the roles of
their sources on, axis by axis, so that transposes, squeezes and slices keep every element in its
texel.  What nobody decides gets the layout of its rank.

Constants take the roles of the tensors that they meet.  A node that cannot read an operand in
the layout that it has, gets a copy in one that it can (`assign_memory`).

Then memory: texture, buffer of blocks, or row-major buffer.  Consumers speak first (which layout an
operator can read), then producers, and a copy is made only where the two disagree.  The ladder for
a tensor is: texture as planes, texture as rows, buffer of blocks; integers, booleans, and the
model's own inputs and outputs are row-major.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.base.tvmapi import tirx
from adrenoc.ir.graph import Body, Graph, Node, Placement, Tensor
from adrenoc.ir.layout import (
    LANES,
    Layout,
    Memory,
    TexelOrder,
    agree,
    channels_last,
    default_layout,
)
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.families.operators import OPERATORS, changed_input
from adrenoc.kernels.families.shared.operator import same_layout, size_of
from adrenoc.passes.analyse.reads import reads_elementwise
from adrenoc.passes.context import Context
from adrenoc.passes.place.copies import copy_node
from adrenoc.passes.precision.pin_precision import is_deep
from adrenoc.target.gpu import NO_HALF_TYPE, Limits


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
    """Return what each tensor's first choosy reader wants, also through maps that keep axes."""
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
        wanted = demands.get(node.output)
        if wanted is None and node.body is not None:
            wanted = _inherit_layout(graph, node.body, shape, layouts)
        return wanted or default_layout(shape)
    source = layouts.get(node.inputs[0]) if node.inputs else None
    operator = OPERATORS.get(node.op)
    makes = same_layout if operator is None else operator.makes_layout
    return makes(node, graph.tensors, source)


def _inherit_layout(
    graph: Graph, body: Body, shape: tuple[int, ...], layouts: Mapping[str, Layout | None]
) -> Layout | None:
    """Return the roles that the output axes have in the sources, the largest source first."""
    for buffer, name in sorted(body.sources.items(), key=lambda entry: -size_of(graph, entry[1])):
        layout = layouts.get(name)
        if layout is not None:
            roles = _roles_by_axis(body, buffer, layout, graph.tensors[name].shape)
            completed = _complete_roles(roles, shape)
            if completed is not None:
                return Layout(completed)
    return None


def _roles_by_axis(
    body: Body, buffer: object, layout: Layout, source_shape: tuple[int, ...]
) -> dict[int, str]:
    """Return output axis -> role, where a load's index is that axis plus a constant."""
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
    return isinstance(index, (tirx.Add, tirx.Sub)) and index.a.same_as(var)


def _complete_roles(roles: dict[int, str], shape: tuple[int, ...]) -> str | None:
    """Letters for all axes, or None where the channel would be missing or letters run out."""
    if "C" not in roles.values():
        return None
    spare = [r for r in "NHWC" if r not in roles.values()]
    letters = []
    for axis, extent in enumerate(shape):
        if axis not in roles and extent != 1 and not spare:
            return None
        letters.append(roles[axis] if axis in roles else spare.pop(0) if extent != 1 else "1")
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


def assign_memory(graph: Graph, context: Context) -> Graph:
    """Place every tensor and insert the copies that the placements need."""
    options, limits, log = context.options, context.limits, context.log
    graph = _separate_outputs(graph, log)
    layouts = graph.layouts
    on_cpu = {node.output for node in graph.nodes if node.is_on_cpu or node.is_copy_to_cpu}
    changed, cached = _changed_in_place(graph), _names_of_caches(graph)
    # What copies between the devices and regions of CLML read and write.
    row_major = {
        name
        for node in graph.nodes
        if node.is_region or node.is_device_copy
        for name in (*node.inputs, node.output)
    }
    placements = {}
    for name, tensor in graph.tensors.items():
        if name in changed:
            # A cache is no tensor of the user's: it is stored as all that lies between kernels.
            wide = name not in cached or not tensor.is_float or graph.precision(name).float32
            dtype = tensor.dtype if wide else options.storage_dtype
            placements[name] = Placement(memory=Memory.PLAIN, layout=layouts[name], dtype=dtype)
        elif name in on_cpu:
            placements[name] = Placement(memory=Memory.CPU, layout=None, dtype=tensor.dtype)
        elif name in row_major:
            layout = layouts[name]
            placements[name] = Placement(memory=Memory.PLAIN, layout=layout, dtype=tensor.dtype)
        else:
            placements[name] = _place(tensor, layouts[name], graph, options, limits, log)
    graph = replace(graph, placements=placements, layouts={})
    return _insert_copies(graph, options, limits, log)


def _changed_in_place(graph: Graph) -> set[str]:
    """States, and what operators change in place: row-major, as those operators address them."""
    found = set(graph.state_names)
    for node in graph.nodes:
        position = changed_input(node)
        if position is not None:
            found |= {node.output, node.inputs[position]}
    return found


def _names_of_caches(graph: Graph) -> set[str]:
    """Return states of which a run changes rows, by both names: no rounding of one adds up.  Others
    are made anew at each run of what they were, and keep the digits that the model has."""
    found: set[str] = set()
    for present, past in graph.states.items():
        maker = graph.producers.get(present)
        if maker is not None and changed_input(maker) is not None:
            found |= {present, past}
    return found


def _place(
    tensor: Tensor,
    layout: Layout | None,
    graph: Graph,
    options: CompileOptions,
    limits: Limits,
    log: DecisionLog,
) -> Placement:
    plain = Placement(memory=Memory.PLAIN, layout=layout, dtype=tensor.dtype)
    if tensor.name in graph.input_names or tensor.name in graph.output_names:
        return plain
    if not tensor.is_float or layout is None:
        return plain
    asked = graph.precision(tensor.name)
    if asked.low is not None:
        if layout.extents(tensor.shape).c > LANES:
            planes = layout.reorder(TexelOrder.PLANES)
            return Placement(memory=Memory.BYTES, layout=planes, dtype="uint32", low=asked.low)
        log.add(
            tensor.name,
            "whole numbers stored as floats",
            f"a read of bytes gives sixteen channels, and it has {layout.extents(tensor.shape).c}",
        )
    # One number costs the same in either, and scales are often smaller than halves can be.
    wide = asked.float32 or math.prod(tensor.shape) == 1
    dtype = "float32" if wide else options.storage_dtype
    if options.textures:
        for order in TexelOrder:
            if limits.hold_image(layout.reorder(order).texture_shape(tensor.shape)):
                if order is not TexelOrder.PLANES and tensor.value is None:
                    log.add(
                        tensor.name,
                        f"texture, {layout.reorder(order)}",
                        f"as planes it is {_extents(layout, tensor.shape)}, beyond "
                        f"{limits.image_text}",
                    )
                return Placement(memory=Memory.TEXTURE, layout=layout.reorder(order), dtype=dtype)
        rows = layout.reorder(TexelOrder.ROWS)
        log.add(
            tensor.name,
            f"buffer, {layout}",
            f"as planes it is {_extents(layout, tensor.shape)} and as rows "
            f"{_extents(rows, tensor.shape)}, beyond {limits.image_text}",
        )
    held = limits.buffer_dtype(dtype)
    if held != dtype:
        log.add(tensor.name, held, NO_HALF_TYPE)
    return Placement(memory=Memory.BLOCKED, layout=layout, dtype=held)


def _extents(layout: Layout, shape: tuple[int, ...]) -> str:
    layers, rows, cols, _ = layout.texture_shape(shape)
    return f"{cols} x {rows} texels in {layers} layers"


def _separate_outputs(graph: Graph, log: DecisionLog) -> Graph:
    """Copy each output that is also read inside of the graph, or is an input."""
    nodes, layouts = list(graph.nodes), dict(graph.layouts)
    tensors: list[Tensor] = []
    outputs = []
    seen: set[str] = set()
    for position, name in enumerate(graph.outputs):
        tensor = graph.tensors[name]
        if name in graph.states or name in graph.aliases:
            outputs.append(name)  # it has its memory already
            continue
        inner = bool(graph.consumers[name]) and tensor.is_float
        repeated = name in seen
        seen.add(name)
        if not (inner or repeated or name not in graph.producers):
            outputs.append(name)
            continue
        copy = Tensor(name=f"{name}_out{position}", shape=tensor.shape, dtype=tensor.dtype)
        tensors.append(copy)
        layouts[copy.name] = layouts[name]
        nodes.append(copy_node(name, copy, "layout"))
        outputs.append(copy.name)
        log.add(copy.name, "copied to a row-major buffer", f"{name} is also read inside")
    graph = replace(graph, outputs=tuple(outputs), layouts=layouts)
    return graph.replace_nodes(nodes, tensors)


def _insert_copies(
    graph: Graph, options: CompileOptions, limits: Limits, log: DecisionLog
) -> Graph:
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    placements = dict(graph.placements)
    for node in graph.nodes:
        renamed: dict[str, str] = {}
        for position, name in enumerate(node.inputs):
            wanted = _conflict(node, position, graph, placements)
            if wanted is None:
                continue
            copied = f"{name}_{wanted.roles}"
            if copied not in placements:
                tensor = replace(graph.tensors[name], name=copied, value=None)
                tensors[copied] = tensor
                asked, readers = graph.precision(name), graph.consumers[name]
                pinned = asked.float32 or any(graph.precision(r.output).float32 for r in readers)
                as_given = _keeps_image(name, wanted, graph, options)
                if pinned or as_given or asked.low is not None:
                    graph = graph.change_precision(
                        [copied], low=asked.low, float32=pinned or as_given
                    )
                if as_given:
                    log.add(
                        copied,
                        "float32",
                        f"{name} is an image that the model is given: every layer would inherit "
                        "its rounding, and keeping it costs one small tensor",
                    )
                placements[copied] = _place(tensor, wanted, graph, options, limits, log)
                nodes.append(copy_node(name, tensor, "layout"))
                log.add(
                    copied,
                    f"copied to {placements[copied].memory.value}, {wanted}",
                    f"{node.op} {node.name} cannot read {name} from "
                    f"{placements[name].memory.value}, {placements[name].layout}",
                )
            renamed[name] = copied
        nodes.append(rename_inputs(node, renamed) if renamed else node)
    return replace(graph, placements=placements).replace_nodes(nodes, tensors.values())


def _keeps_image(name: str, layout: Layout, graph: Graph, options: CompileOptions) -> bool:
    """Return whether a copy keeps the model's input as it was given: an image, one texel a pixel.
    Half arithmetic rounds it as it reads it, but in deep networks the first sums are in float."""
    tensor = graph.tensors[name]
    return (
        name in graph.input_names
        and tensor.is_float
        and layout.extents(tensor.shape).c <= LANES
        and options.storage_dtype == "float16"
        and (options.compute_dtype == "float32" or is_deep(graph))
    )


def _conflict(
    node: Node, position: int, graph: Graph, placements: Mapping[str, Placement]
) -> Layout | None:
    """Return the layout to copy an operand to, None where the node can read it as it is."""
    name = node.inputs[position]
    tensor, placement = graph.tensors[name], placements[name]
    if tensor.value is not None:
        return None  # constants are packed as their reader wants them
    wanted = wanted_layout(graph, node, position)
    if wanted is None:
        return None
    operator = OPERATORS[node.op]
    if placement.memory is Memory.PLAIN and operator.reads_often:
        return wanted
    if operator.needs_channel_only and placement.layout is not None:
        # It computes where an element lies; only its channel has to be in texels.
        return None if placement.layout.axis("C") == wanted.axis("C") else wanted
    if placement.layout is None or not agree(placement.layout, wanted, tensor.shape):
        return wanted
    return None


def rename_inputs(node: Node, names: Mapping[str, str]) -> Node:
    """Return the node reading other tensors: those of `names` under their new name."""

    def rename(body: Body) -> Body:
        return replace(body, sources={b: names.get(n, n) for b, n in body.sources.items()})

    stated = {name: getattr(node, name) for name in ("body", "prologue", "epilogue")}
    renamed: dict[str, Any] = {name: rename(body) for name, body in stated.items() if body}
    return replace(
        node,
        inputs=tuple(names.get(n, n) for n in node.inputs),
        parts={key: rename(body) for key, body in node.parts.items()},
        **renamed,
    )
