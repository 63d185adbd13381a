"""Let the first convolution read the model's own image, where the cost model says that it wins.

A model's inputs are row-major, and convolutions read texels, so an image is copied into texels
first: as many bytes again as the image has, and a launch.

Before -> after:
    x_NCHW = map[layout](x); y = conv2d[conv2d add clip](x_NCHW, w)
    y = conv2d[conv2d add clip](x, w)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from adrenoc.decision import DecisionLog
from adrenoc.gpu import Limits, Performance
from adrenoc.graph import Graph, Node
from adrenoc.kernels.conv2d_local import WIDEST_ROW
from adrenoc.kernels.image_rows import RowPlan
from adrenoc.layout import LANES, Layout
from adrenoc.operand import OperandSpec
from adrenoc.options import CompileOptions
from adrenoc.rules.conv2d import conv_geometry, conv_work
from adrenoc.rules.conv_tile import least_clocks
from adrenoc.rules.machine import Machine
from adrenoc.tvmapi import bits_of, tvm

WORTH = 1.1
"""By how much it has to win: for the error of the estimates."""


def read_images(
    graph: Graph,
    options: CompileOptions,
    limits: Limits,
    performance: Performance,
    log: DecisionLog,
) -> Graph:
    """Leave out the copies whose readers are faster without."""
    machine = Machine.of(performance)
    gone: set[str] = set()
    changed: dict[str, Node] = {}
    for node in graph.nodes:
        layout = _read_as(graph, node)
        if layout is None:
            continue
        readers = graph.consumers[node.output]
        if not any(reader.op == "conv2d" for reader in readers):
            continue
        reason = _refusal(graph, node, readers, layout)
        if reason is None:
            as_read = _with_layout(graph, node.inputs[0], layout)
            direct = [_reading(reader, node) for reader in readers]
            apart = _clocks(graph, readers, options, limits, machine)
            apart += _copy_clocks(graph, node, machine)
            together = _clocks(as_read, direct, options, limits, machine)
            estimates = f"estimated {together:.0f} clocks, {apart:.0f} with a copy in texels"
            if WORTH * together < apart:
                names = ", ".join(reader.name for reader in direct)
                given = f"left out: {names} reads {node.inputs[0]} as it is given"
                log.add(node.output, given, estimates)
                changed.update((reader.output, reader) for reader in direct)
                graph = as_read
                gone.add(node.output)
                continue
            reason = estimates
        log.add(node.name, "a kernel before its convolution", reason)
    kept = (changed.get(n.output, n) for n in graph.nodes if n.output not in gone)
    return graph.with_nodes(kept) if gone else graph


def _read_as(graph: Graph, node: Node) -> Layout | None:
    """The layout by which an image is what a copy of it in texels is; None if it is no such copy.

    A copy may permute the axes: it then gives those of the image their roles.
    """
    body = node.body
    if not node.is_map or body is None or node.epilogue is not None:
        return None
    if not isinstance(body.value, tvm.ir.TensorLoad) or node.inputs[0] not in graph.inputs:
        return None
    copy = graph.operand(node.output)
    if copy.layout is None:
        return None
    shape, roles = graph.tensors[node.inputs[0]].shape, ""
    for extent, index in zip(shape, body.value.indices, strict=True):
        axis = next((i for i, var in enumerate(body.axes) if index.same_as(var)), None)
        if axis is None and extent != 1:
            return None
        roles += "1" if axis is None else copy.roles.roles[axis]
    layout = Layout(roles)
    return layout if layout.extents(shape) == copy.extents else None


def _with_layout(graph: Graph, name: str, layout: Layout) -> Graph:
    placement = replace(graph.placements[name], layout=layout)
    return replace(graph, placements={**graph.placements, name: placement})


def _refusal(graph: Graph, node: Node, readers: Sequence[Node], layout: Layout) -> str | None:
    """Why an image has to be copied."""
    placed, copy = graph.operand(node.inputs[0]), graph.operand(node.output)
    given = replace(placed, layout=layout)
    if node.stores or graph.owner(node.output) != node.output:
        return "its copy is part of another tensor"
    if placed.layout != layout and len(graph.consumers[node.inputs[0]]) > 1:
        return f"{node.inputs[0]} is also read as {placed.layout}"
    if given.dtype != "float32":
        return f"{node.inputs[0]} is of {given.dtype}"
    if copy.extents.c > LANES:
        return f"{copy.extents.c} channels are more than {LANES}"
    reasons = (_refusal_of_reader(graph, node.output, given, reader) for reader in readers)
    return next((reason for reason in reasons if reason is not None), None)


def _refusal_of_reader(graph: Graph, copy: str, given: OperandSpec, reader: Node) -> str | None:
    """Why this one has to read the copy."""
    if reader.op != "conv2d" or reader.inputs.count(copy) != 1:
        return f"{reader.op} {reader.name} reads it too"
    geometry = conv_geometry(graph, reader)
    if geometry.groups != 1 or geometry.kernel[1] > WIDEST_ROW:
        return f"{reader.name} has groups of channels or a row of {geometry.kernel[1]} taps"
    if RowPlan.of(given, geometry, graph.operand(reader.output).extents, 1) is None:
        return f"pixels of {copy} do not lie beside each other"
    return None


def _reading(reader: Node, copy: Node) -> Node:
    """The convolution on what the copy is made of."""
    inputs = tuple(copy.inputs[0] if name == copy.output else name for name in reader.inputs)
    return replace(reader, inputs=inputs)


def _clocks(
    graph: Graph,
    convs: Sequence[Node],
    options: CompileOptions,
    limits: Limits,
    machine: Machine,
) -> float:
    """Clocks of convolutions, each as one kernel."""
    works = (conv_work(graph, conv, conv_geometry(graph, conv), options) for conv in convs)
    return sum(least_clocks(work, limits, machine) for work in works)


def _copy_clocks(graph: Graph, node: Node, machine: Machine) -> float:
    """Clocks of the copy: what it waits for is memory."""
    specs = (graph.operand(node.inputs[0]), graph.operand(node.output))
    return machine.launch_clocks + machine.memory_clocks(*(_bytes(spec) for spec in specs))


def _bytes(spec: OperandSpec) -> int:
    return math.prod(spec.physical) * bits_of(spec.dtype) // 8
