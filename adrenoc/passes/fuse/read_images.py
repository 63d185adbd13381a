"""Kernels read the images that a model is given as they lie.

A model's inputs are row-major, and convolutions read texels, so an image is copied into texels
first: as many bytes again as the image has, and a launch.  What normalises its pixels goes along.

Before -> after:
    x_NCHW = map[layout](x); y = conv2d[conv2d add clip](x_NCHW, w)
    y = conv2d[conv2d add clip](x, w)
or:
    s = map[multiply add](x); y = conv2d[conv2d add clip](s, w)
    y = conv2d[multiply add conv2d add clip](x, w), prologue x * 2 + -1
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adrenoc.base.tvmapi import tvm
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Layout, OperandSpec
from adrenoc.kernels.families.conv.conv_rules import least_clocks
from adrenoc.kernels.families.conv.local_conv import WIDEST_ROW
from adrenoc.kernels.families.matmul.gemv import suits_gemv
from adrenoc.kernels.families.operators import can
from adrenoc.kernels.families.shared.conv_geometry import (
    RowPlan,
    conv_geometry,
    conv_work,
    is_depthwise,
)
from adrenoc.kernels.families.shared.machine import CostModel
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.passes.analyse.reads import other_use, reads_first_alone
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_prologues import attach_prologue, source_of, stored_bytes


def read_images(graph: Graph, context: Context) -> Graph:
    """Leave out the copies whose readers are faster without."""
    costs, log = context.costs, context.log
    gone: set[str] = set()
    changed: dict[str, Node] = {}
    for node in graph.nodes:
        image = _image(graph, node)
        if image is None:
            continue
        readers = graph.consumers[node.output]
        if not any(can(reader, Fusion.IMAGE) for reader in readers):
            continue
        reason = _refusal(graph, node, readers, image)
        if reason is None:
            placed = replace(graph.placements[image.name], layout=image.layout)
            as_read = replace(graph, placements={**graph.placements, image.name: placed})
            direct = [_reading(reader, node, image) for reader in readers]
            apart = _clocks(graph, readers, costs) + costs.machine.launch_clocks
            # What the map waits for is memory.
            specs = (graph.operand(name) for name in (image.name, node.output))
            apart += costs.machine.memory_clocks(*map(stored_bytes, specs))
            together = _clocks(as_read, direct, costs)
            estimates = f"estimated {together:.0f} clocks, {apart:.0f} with a copy in texels"
            if costs.machine.cost.joins.image * together < apart:
                names = ", ".join(reader.name for reader in direct)
                given = f"left out: {names} reads {image.name} as it is given"
                log.add(node.output, given, estimates)
                changed.update((reader.output, reader) for reader in direct)
                graph = as_read
                gone.add(node.output)
                continue
            reason = estimates
        log.add(node.name, "a kernel before its convolution", reason)
    return graph.exchange(changed.values(), gone) if gone else graph


@dataclass(frozen=True)
class _Image:
    """An input of the model, and the layout by which it is what a map of it in texels is."""

    name: str
    layout: Layout


def _image(graph: Graph, node: Node) -> _Image | None:
    """Return what a map puts into texels, element by element; None if it does something else.

    A copy may permute the axes: it then gives those of the image their roles.
    """
    body, copy = node.body, graph.operand(node.output)
    if not node.is_map or body is None or node.epilogue is not None or copy.layout is None:
        return None
    if not isinstance(body.value, tvm.ir.TensorLoad):
        source = source_of(graph, node)
        given = source is not None and source in graph.input_names
        return _Image(source, copy.layout) if source is not None and given else None
    name = node.inputs[0]
    if len(node.inputs) > 1 or name not in graph.input_names:
        return None
    shape, axes = graph.tensors[name].shape, []
    for extent, index in zip(shape, body.value.indices, strict=True):
        axis = next((i for i, var in enumerate(body.axes) if index.same_as(var)), None)
        if axis in axes if axis is not None else extent != 1:  # a diagonal, or a part
            return None
        axes.append(axis)
    layout = Layout("".join("1" if axis is None else copy.roles.roles[axis] for axis in axes))
    return _Image(name, layout) if layout.extents(shape) == copy.extents else None


def _refusal(graph: Graph, node: Node, readers: Sequence[Node], image: _Image) -> str | None:
    """Return why an image has to be copied."""
    name = image.name
    placed, copy = graph.operand(name), graph.operand(node.output)
    given = replace(placed, layout=image.layout)
    used = other_use(graph, node)
    if used is not None:
        return f"its copy is needed: {used}"
    if placed.layout != image.layout and len(graph.consumers[name]) > 1:
        return f"{name} is also read as {placed.layout}"
    others = (graph.tensors[other] for other in node.inputs if other != name)
    if graph.precision(node.output).rounded or any(other.value is None for other in others):
        return f"{node.name} computes more than a normalisation"
    if given.dtype != "float32":
        return f"{name} is of {given.dtype}"
    if copy.extents.c > LANES:
        return f"{copy.extents.c} channels are more than {LANES}"
    reasons = (_refusal_of_reader(graph, node.output, given, reader) for reader in readers)
    return next((reason for reason in reasons if reason is not None), None)


def _refusal_of_reader(graph: Graph, copy: str, given: OperandSpec, reader: Node) -> str | None:
    """Return why this one has to read the copy."""
    alone = reads_first_alone(reader, copy)
    if not can(reader, Fusion.IMAGE) or not alone or reader.prologue is not None:
        return f"{reader.op} {reader.name} reads it too"
    geometry = conv_geometry(graph, reader)
    if geometry.groups != 1 or geometry.kernel[1] > WIDEST_ROW:
        return f"{reader.name} has groups of channels or a row of {geometry.kernel[1]} taps"
    out = graph.operand(reader.output).extents
    if is_depthwise(graph, reader) or suits_gemv(out):
        return f"{reader.name} makes few vectors, or each channel of one"
    if RowPlan.from_image(given, geometry, out, 1) is None:
        return f"pixels of {copy} do not lie beside each other"
    return None


def _reading(reader: Node, node: Node, image: _Image) -> Node:
    """Return the convolution on what the map is made of."""
    if node.body is not None and not isinstance(node.body.value, tvm.ir.TensorLoad):
        return attach_prologue(reader, node, image.name)
    inputs = tuple(image.name if name == node.output else name for name in reader.inputs)
    return replace(reader, inputs=inputs)


def _clocks(graph: Graph, convs: Sequence[Node], costs: CostModel) -> float:
    """Return clocks of convolutions, each as one kernel."""
    works = (conv_work(graph, conv, conv_geometry(graph, conv), costs.options) for conv in convs)
    return sum(least_clocks(work, costs.limits, costs.machine) for work in works)
