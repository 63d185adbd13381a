"""Compute maps where convolutions read them, where the cost model says that it wins.

A map that several nodes need, or whose input they need, cannot be an epilogue: batch norm and
ReLU before the convolutions of a DenseNet, the scale of a squeeze-and-excite block.  A convolution
can compute it for each texel that it reads.  That repeats it for every group of output blocks, and
saves a launch and a tensor that is written and read.  Zero padding would have to come after the
map, so only convolutions without padding do it.  A map that reads other rows and columns, as one
that pads by a mirror or enlarges, is such a map too; where the convolution has padding, it reads
outside of the image there.

Before -> after:
    r = map[multiply add relu](x, scale, shift); y = conv2d(r, w)
    y = conv2d[multiply add relu conv2d](x, w, scale, shift), prologue max(x * scale + shift, 0)

A model's inputs are row-major, and convolutions read texels, so an image is copied into texels
first: as many bytes again as the image has, and a launch.  Where that wins, `read_images` has
kernels read images as they lie, and normalise their pixels there.

Before -> after:
    x_NCHW = map[layout](x); y = conv2d[conv2d add clip](x_NCHW, w)
    y = conv2d[conv2d add clip](x, w)
or:
    s = map[multiply add](x); y = conv2d[conv2d add clip](s, w)
    y = conv2d[multiply add conv2d add clip](x, w), prologue x * 2 + -1
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adrenoc.base.tvmapi import Call, bits_of, tirx, tvm
from adrenoc.ir.graph import PROLOGUE_SHAPE, Body, Graph, Node
from adrenoc.ir.layout import LANES, Layout, Memory, OperandSpec, TexelOrder, agree
from adrenoc.kernels.body_cost import body_instructions, loads_of, parts_of_kind
from adrenoc.kernels.families.conv.conv_rules import estimate_clocks, least_clocks, score_tiles
from adrenoc.kernels.families.conv.local_conv import WIDEST_ROW
from adrenoc.kernels.families.matmul.gemv import suits_gemv
from adrenoc.kernels.families.operators import can
from adrenoc.kernels.families.shared.conv_geometry import (
    RowPlan,
    conv_geometry,
    conv_work,
    is_depthwise,
    pointwise_work,
)
from adrenoc.kernels.families.shared.machine import CostModel, Machine
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.passes.analyse.reads import (
    find_moved_source,
    first_obstacle,
    image_clash,
    mentions,
    other_use,
    reads_elementwise,
    reads_first_alone,
    zero_outside,
)
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_maps import MAX_INPUTS
from adrenoc.passes.fuse.split_winograd import winograd_clocks


def conv_clocks(graph: Graph, conv: Node, source: str, costs: CostModel) -> float:
    """Return clocks of a convolution in one kernel that reads `source`."""
    work = conv_work(graph, conv, conv_geometry(graph, conv), costs.options)
    sizes = (stored_bytes(graph.operand(name)) for name in (source, conv.output))
    moved = costs.machine.memory_clocks(*sizes)
    return max(least_clocks(work, costs.limits, costs.machine), moved)


def product_clocks(graph: Graph, product: Node, costs: CostModel) -> tuple[float, float]:
    """Clocks of the product of many tokens by a constant matrix, with a norm that it takes in.  The
    first if a wide read of local memory takes longer than a narrow one, the second if not."""
    work, machine = pointwise_work(graph, product, costs.options), costs.machine
    tile = next(iter(score_tiles(work, costs.limits, machine).rank()), None)
    if tile is None:
        return math.inf, math.inf
    sizes = (stored_bytes(graph.operand(name)) for name in (product.inputs[0], product.output))
    moved = machine.memory_clocks(*sizes)
    by_width, whatever = (
        max(estimate_clocks(work, tile, sure), moved) for sure in machine.end_doubt()
    )
    return by_width, whatever


def stored_bytes(spec: OperandSpec) -> int:
    """Return bytes of a tensor alone."""
    return math.prod(spec.alone.physical) * bits_of(spec.dtype) // 8


def map_clocks(graph: Graph, node: Node, source: str, machine: Machine) -> float:
    """Return clocks of an element-wise kernel, its launch included."""
    specs = (graph.operand(source), graph.operand(node.output))
    texels = math.prod(specs[1].alone.physical) // LANES
    work = 0 if node.body is None else LANES * body_instructions(node.body)
    cost, rates = machine.cost.map, machine.cost.pipes
    busiest = machine.wave * max(
        (work + cost.texel_instructions) / machine.lanes,
        2 / machine.texels_of(bits_of(specs[1].dtype) // 8),
    )
    serial = machine.slots_a_wave * (work + cost.texel_instructions) + rates.texture_latency_clocks
    resident = machine.resident_waves(LANES)
    computed = machine.clocks(math.ceil(texels / machine.wave), busiest, serial, resident)
    moved = machine.memory_clocks(*map(stored_bytes, specs))
    return machine.launch_clocks + max(computed, moved)


def source_of(graph: Graph, node: Node) -> str | None:
    """Return the tensor that a map changes element by element, or reads at other rows and columns.
    What else it reads is of its channels."""
    return find_moved_source(graph, node) or _find_changed_source(graph, node)


def attach_prologue(reader: Node, node: Node, source: str) -> Node:
    """Return the convolution on what a map changes element by element, computing that itself."""
    others = [n for n in node.inputs if n != source]
    rest = [n for n in reader.inputs if n != node.output]
    return replace(
        reader,
        inputs=tuple(dict.fromkeys((source, *rest, *others))),
        prologue=node.body,
        fused=(*node.fused, *reader.fused),
    )


def _find_changed_source(graph: Graph, node: Node) -> str | None:
    if not node.is_map or node.body is None or node.epilogue is not None or node.body.reduced:
        return None
    if isinstance(node.body.value, tvm.ir.TensorLoad) or node.output in graph.output_names:
        return None
    shape = graph.tensors[node.output].shape
    alike = [n for n in node.inputs if graph.tensors[n].shape == shape]
    computed = [n for n in alike if graph.tensors[n].value is None]
    if len(alike) != 1 or not computed or not reads_elementwise(node.body, alike[0], graph):
        return None
    layout = graph.placements[node.output].layout
    channel = None if layout is None else layout.axis("C")
    if layout is None or channel is None:
        return None
    body, loads = node.body, loads_of(node.body.value)
    others = [load for load in loads if body.source_of(load.source) != alike[0]]
    moving = [axis for axis, role in zip(body.axes, layout.roles, strict=True) if role in "HW"]
    return None if any(mentions(load.indices, moving) for load in others) else alike[0]


_FINITE_CALLS = {"tirx.sigmoid", "tirx.tanh", "tirx.exp"}


def fuse_prologues(graph: Graph, context: Context) -> Graph:
    """Move maps into the convolutions that read them where that takes less time."""
    costs, log = context.costs, context.log
    gone: set[str] = set()
    changed: dict[str, Node] = {}
    for node in graph.nodes:
        source = source_of(graph, node)
        if source is None:
            continue
        readers = [changed.get(n.output, n) for n in graph.consumers[node.output]]
        convs = [n for n in readers if can(n, Fusion.PROLOGUE)]
        if not convs:
            continue
        reason = _refusal(graph, node, source, readers)
        if reason is None:
            fused = [_fuse_map(graph, n, node, source) for n in readers]
            clocks = (
                map_clocks(graph, node, source, costs.machine)
                + sum(
                    min(conv_clocks(graph, n, source, costs), winograd_clocks(graph, n, costs))
                    for n in readers
                ),
                sum(conv_clocks(graph, n, source, costs) for n in fused),
            )
            if costs.machine.cost.joins.prologue * clocks[1] < clocks[0]:
                changed.update((n.output, n) for n in fused)
                gone.add(node.output)
                continue
            reason = (
                f"estimated {clocks[1]:.0f} clocks where it is read, {clocks[0]:.0f} as a kernel"
            )
        log.add(node.name, "a kernel before its convolution", reason)
    return graph.exchange(changed.values(), gone) if gone else graph


def _refusal(graph: Graph, node: Node, source: str, readers: Iterable[Node]) -> str | None:
    """Return why no convolution can compute a map where it reads it."""
    used = other_use(graph, node)
    if used is not None:
        return used
    mine, theirs = graph.operand(node.output), graph.operand(source)
    blocked = (Memory.TEXTURE, Memory.BLOCKED)
    if theirs.memory not in blocked or mine.roles.order is not theirs.roles.order:
        return f"{source} lies in {theirs.memory.value}, {theirs.layout}"
    if not agree(mine.roles, theirs.roles, mine.shape):
        return f"{source} has the layout {theirs.layout}, its result {mine.layout}"
    moved = find_moved_source(graph, node) is not None
    uneven = mine.extents.c % LANES and not moved
    if uneven and node.body is not None and not finite_at_zero(node.body):
        return "beyond the last channel it might not be a number"
    bordered = moved and theirs.memory is Memory.TEXTURE and theirs.roles.order is TexelOrder.PLANES
    for reader in readers:
        reason = _refusal_of_reader(graph, node, reader, bordered=bordered)
        reason = reason or image_clash(graph, attach_prologue(reader, node, source))
        if reason is not None:
            return reason
    return None


def _refusal_of_reader(graph: Graph, node: Node, reader: Node, *, bordered: bool) -> str | None:
    """Return why this one cannot; `bordered`: it can read zeros beyond the map's edges."""
    if not can(reader, Fusion.PROLOGUE) or reader.inputs.count(node.output) != 1:
        return f"{reader.op} {reader.name} reads it too"
    if reader.inputs[0] != node.output or reader.prologue is not None:
        return f"{reader.name} reads it beside its own input"
    out, groups = graph.operand(reader.output).extents, conv_geometry(graph, reader).groups
    obstacles = {
        "one of them is kept in float32": any(
            graph.precision(name).is_special for name in (node.output, reader.output)
        ),
        f"{reader.name} has padding, which comes after it": any(reader.attrs["padding"])
        and not bordered,
        f"{reader.name} has groups of channels": groups > 1 or is_depthwise(graph, reader),
        f"{reader.name} makes few vectors, each thread of which reads all": suits_gemv(out),
        f"{reader.name} would read more than {MAX_INPUTS} tensors": len(
            {*reader.inputs, *node.inputs}
        )
        > MAX_INPUTS,
    }
    return first_obstacle(obstacles)


def finite_at_zero(body: Body) -> bool:
    """Return whether zeros, as the lanes beyond the last channel hold, surely give numbers."""

    def is_sure(part: Any) -> bool:
        if isinstance(part, Call):
            return part.op.name in _FINITE_CALLS
        if isinstance(part, tirx.Div):
            return isinstance(part.b, tirx.FloatImm) and float(part.b.value) != 0.0
        return not isinstance(part, tirx.Mod | tirx.FloorDiv | tirx.FloorMod)

    return all(map(is_sure, parts_of_kind(body.value, tvm.ir.Expr)))


def _fuse_map(graph: Graph, reader: Node, node: Node, source: str) -> Node:
    """Return the convolution with the map as its prologue."""
    fused, made = attach_prologue(reader, node, source), graph.operand(node.output)
    if node.body is None or find_moved_source(graph, node) is None:
        return fused
    body = node.body
    if any(reader.attrs["padding"]):
        body = zero_outside(body, made.roles, made.shape)
    return replace(fused, prologue=body, attrs={**fused.attrs, PROLOGUE_SHAPE: made.shape})


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
        reason = _copy_is_needed(graph, node, readers, image)
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
    """Return what a map puts into texels, element by element; None if it does something else.  A
    copy may permute the axes: it then gives those of the image their roles."""
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


def _copy_is_needed(graph: Graph, node: Node, readers: Sequence[Node], image: _Image) -> str | None:
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
    reasons = (_reader_needs_copy(graph, node.output, given, reader) for reader in readers)
    return next((reason for reason in reasons if reason is not None), None)


def _reader_needs_copy(graph: Graph, copy: str, given: OperandSpec, reader: Node) -> str | None:
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
