"""Decide where each tensor lives: texture, buffer of blocks, or row-major buffer.

Consumers speak first (which layout an operator can read), then producers, and a copy is made
only where the two disagree.  The ladder for a tensor is: texture as planes, texture as rows,
buffer of blocks; integers, booleans, and the model's own inputs and outputs are row-major.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node, Placement, Tensor
from adrenoc.ir.layout import LANES, Layout, TexelOrder, agree
from adrenoc.ir.operand import Memory
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.operators import OPERATORS, changed_input
from adrenoc.passes.analyse.cpu_nodes import row_major_tensors, tensors_on_cpu
from adrenoc.passes.analyse.deep_sums import is_deep
from adrenoc.passes.analyse.region_nodes import region_border
from adrenoc.passes.context import Context
from adrenoc.passes.place.assign_layouts import wanted_layout
from adrenoc.passes.place.copy_node import copy_node
from adrenoc.target.gpu import NO_HALF_TYPE, Limits


def assign_memory(graph: Graph, context: Context) -> Graph:
    """Place every tensor and insert the copies that the placements need."""
    options, limits, log = context.options, context.limits, context.log
    graph = _separate_outputs(graph, log)
    layouts = graph.layouts
    on_cpu = tensors_on_cpu(graph)
    changed, cached = _changed_in_place(graph), _names_of_caches(graph)
    row_major = row_major_tensors(graph) | region_border(graph)
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
    """States of which a run changes rows, by both names: no rounding of one adds up.

    Others are made anew at each run of what they were, and keep the digits that the model has.
    """
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
            if fits_in_texture(layout.reorder(order), tensor.shape, limits):
                if order is not TexelOrder.PLANES and tensor.value is None:
                    log.add(
                        tensor.name,
                        f"texture, {layout.reorder(order)}",
                        f"as planes it is {_extents(layout, tensor.shape)}, beyond "
                        f"{_limits_text(limits)}",
                    )
                return Placement(memory=Memory.TEXTURE, layout=layout.reorder(order), dtype=dtype)
        rows = layout.reorder(TexelOrder.ROWS)
        log.add(
            tensor.name,
            f"buffer, {layout}",
            f"as planes it is {_extents(layout, tensor.shape)} and as rows "
            f"{_extents(rows, tensor.shape)}, beyond {_limits_text(limits)}",
        )
    held = limits.buffer_dtype(dtype)
    if held != dtype:
        log.add(tensor.name, held, NO_HALF_TYPE)
    return Placement(memory=Memory.BLOCKED, layout=layout, dtype=held)


def fits_in_texture(layout: Layout, shape: tuple[int, ...], limits: Limits) -> bool:
    """Return whether an image of this layout exists on the target."""
    layers, rows, cols, _ = layout.texture_shape(shape)
    return (
        cols <= limits.image2d_max_width_texels
        and rows <= limits.image2d_max_height_texels
        and layers <= limits.image_max_array_layers
    )


def _extents(layout: Layout, shape: tuple[int, ...]) -> str:
    layers, rows, cols, _ = layout.texture_shape(shape)
    return f"{cols} x {rows} texels in {layers} layers"


def _limits_text(limits: Limits) -> str:
    return (
        f"{limits.image2d_max_width_texels} x {limits.image2d_max_height_texels} in "
        f"{limits.image_max_array_layers}"
    )


def _separate_outputs(graph: Graph, log: DecisionLog) -> Graph:
    """Return an output that is also read inside of the graph, or is an input, becomes a copy."""
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

    Half arithmetic rounds it as it reads it, but in deep networks the first sums are in float.
    """
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

    def rename(body: Body | None) -> Body | None:
        return None if body is None else _read_from(body, names)

    return replace(
        node,
        inputs=tuple(names.get(n, n) for n in node.inputs),
        body=rename(node.body),
        prologue=rename(node.prologue),
        epilogue=rename(node.epilogue),
        parts={key: _read_from(body, names) for key, body in node.parts.items()},
    )


def _read_from(body: Body, names: Mapping[str, str]) -> Body:
    return replace(body, sources={b: names.get(n, n) for b, n in body.sources.items()})
