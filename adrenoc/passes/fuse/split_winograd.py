"""Compute 3x3 convolutions by Winograd's algorithm, where the cost model says that it wins.

Before -> after:
    y = conv2d[conv2d add relu](x, w)
    y.tiles = winograd_tiles(x); y.planes = winograd_multiply(y.tiles, w);
    y = winograd_pixels[conv2d add relu](y.planes)
or, of tiles of 2 x 2 outputs:
    y = winograd_conv[conv2d add relu](x, w)

Where halves are stored, each such convolution adds roundings to those that the network has anyway,
as it stores what it transforms: one for each tensor in halves and one for each product's weights.
Roundings are independent and their squares add up.  Those convolutions are taken that save most
time for what they add, as far as the network stays within `MOST` of the error that its own
roundings give.  Where sums are in halves, too, they add more than that, and speed is what was asked
for.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph, Node, Placement, Tensor
from adrenoc.ir.half import explain_not_half
from adrenoc.ir.layout import LANES, Layout, Memory
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.conv_rules import least_clocks
from adrenoc.kernels.families.operators import can, is_product
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, conv_geometry, conv_work
from adrenoc.kernels.families.shared.machine import CostModel
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.kernels.families.winograd import winograd_conv_rule as winograd_conv
from adrenoc.kernels.families.winograd.winograd import (
    TAPS,
    Tiling,
    multiply_work,
    score_multiply_tiles,
    transform_clocks,
    winograd,
)
from adrenoc.kernels.families.winograd.winograd_conv import OUTPUTS as WHOLE_OUTPUTS
from adrenoc.kernels.families.winograd.winograd_conv_rule import MULTIPLY, PIXELS, TILES, WHOLE
from adrenoc.passes.context import Context
from adrenoc.target.cost import JoinCost

OUTPUTS = {"float32": (2, 3, 4), "float16": (2,)}
"""Outputs a tile and axis, by what is stored: larger tiles lose more digits than a half has
(of 256 channels F(2) loses 1e-3 of the range in halves, F(4) 6e-3)."""
LAUNCHES = 2
"""The launches that the algorithm takes in three kernels beyond that of a convolution as it is."""
_PLANES = Layout("CHW")


@dataclass(frozen=True, kw_only=True)
class WinogradWay:
    """One way to run a convolution by the algorithm."""

    geometry: ConvGeometry
    clocks: float
    direct: float
    """Clocks of the convolution as it is."""
    tiling: Tiling
    whole: bool
    """In one kernel."""

    @property
    def added(self) -> float:
        """Return the roundings that it adds."""
        return ADDED if self.whole else ADDED_BY_PLANES

    def beats(self, clocks: float, joins: JoinCost) -> bool:
        """Return whether it wins against another way by as much as it has to."""
        return self.clocks * (joins.winograd if self.whole else joins.winograd_three) < clocks


def split_winograd(graph: Graph, context: Context) -> Graph:
    """Split each convolution that gains by it into transform, multiplication, transform back."""
    costs, log = context.costs, context.log
    if not costs.options.winograd:
        return graph
    ways = ((node.output, _best(graph, node, costs, log)) for node in graph.nodes)
    found = {name: way for name, way in ways if way is not None}
    taken = choose_within_budget(graph, found, costs.options, log)
    return _split(graph, {name: found[name] for name in taken}, log)


def _split(graph: Graph, ways: Mapping[str, WinogradWay], log: DecisionLog) -> Graph:
    """Return the graph with what makes these tensors computed so."""
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    placements = dict(graph.placements)
    for node in graph.nodes:
        if node.output not in ways:
            nodes.append(node)
            continue
        way = ways[node.output]
        outputs = way.tiling.transform.outputs
        log.add(
            node.name,
            f"Winograd F({outputs} x {outputs}, 3 x 3) in {'one kernel' if way.whole else 'three'}",
            f"estimated {way.clocks:.0f} clocks, {way.direct:.0f} without",
        )
        attrs = {**node.attrs, "geometry": way.geometry, "tiling": way.tiling}
        if way.whole:
            nodes.append(replace(node, op=WHOLE, attrs=attrs))
            continue
        for part, tensor, placement in _parts(graph, replace(node, attrs=attrs), way.tiling):
            nodes.append(part)
            if tensor is not None and placement is not None:
                tensors[tensor.name] = tensor
                placements[tensor.name] = placement
    placed = replace(graph, tensors={**graph.tensors, **tensors}, placements=placements)
    return placed.replace_nodes(nodes)


def winograd_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return clocks of a convolution by the algorithm, infinite where it would not be chosen."""
    best = _best(graph, node, costs, DecisionLog()) if costs.options.winograd else None
    return math.inf if best is None else best.clocks


def _geometry(
    graph: Graph, node: Node, options: CompileOptions, log: DecisionLog
) -> ConvGeometry | None:
    """Return the geometry of a convolution that the algorithm can do."""
    if not can(node, Fusion.WINOGRAD) or graph.precision(node.output).is_special:
        return None
    if graph.precision(node.inputs[0]).float32:  # its planes would be stored in half
        return None
    is_plain = graph.operand(node.inputs[0]).memory is Memory.PLAIN
    if is_plain or node.prologue is not None:  # each input is read, or computed, several times
        return None
    geometry = conv_geometry(graph, node)
    plain = geometry.strides == (1, 1) and geometry.groups == 1
    if not plain or geometry.kernel != (TAPS, TAPS):
        return None
    # Halves may hold the weights, and not what they are transformed to.
    growth = max(winograd(outputs).weight_growth for outputs in OUTPUTS["float16"])
    value = graph.tensors[node.inputs[1]].value
    in_half = options.storage_dtype == "float16"
    if in_half and value is not None and (beyond := explain_not_half(value, growth)):
        why = f"transformed weights are up to {growth:.3g} times as large; {beyond}"
        log.add(node.name, "not by Winograd's algorithm", why)
        return None
    return geometry


def _best(graph: Graph, node: Node, costs: CostModel, log: DecisionLog) -> WinogradWay | None:
    """Return the way that wins; None if the convolution as it is does, or must."""
    options, limits, machine = costs.options, costs.limits, costs.machine
    geometry = _geometry(graph, node, options, log)
    if geometry is None:
        return None
    joins = machine.cost.joins
    work = conv_work(graph, node, geometry, options)
    source, result = (
        math.prod(graph.operand(name).alone.physical) * work.storage_bytes
        for name in (node.inputs[0], node.output)
    )
    weights = work.out.blocks * work.in_blocks * LANES * LANES * work.storage_bytes
    direct = max(
        least_clocks(work, limits, machine),
        machine.memory_clocks(source, weights * TAPS * TAPS, result),
    )
    if direct < joins.winograd_least_launches * machine.gap_clocks:
        return None
    make = partial(WinogradWay, geometry=geometry, direct=direct)
    found: list[WinogradWay] = []
    for outputs in OUTPUTS[options.storage_dtype]:
        tiling = Tiling.cover(winograd(outputs), work.out, geometry.dilation)
        if outputs == WHOLE_OUTPUTS and geometry.dilation == (1, 1):
            scored = winograd_conv.score_tiles(work, tiling, limits, machine, options.textures)
            found.append(make(clocks=scored.least, tiling=tiling, whole=True))
        if work.out.h * work.out.w < machine.winograd_least_pixels:
            continue
        if options.textures and (
            tiling.tiles > limits.image2d_max_width_texels
            or max(work.in_blocks, work.out.blocks) > limits.image_max_array_layers
        ):
            log.add(
                node.name,
                f"no F({outputs} x {outputs}, 3 x 3)",
                f"{tiling.tiles} tiles beside each other, at most "
                f"{limits.image2d_max_width_texels} texels wide",
            )
            continue
        product = multiply_work(work, tiling)
        tiles, planes = (
            blocks * LANES * tiling.planes * tiling.tiles * work.storage_bytes
            for blocks in (work.in_blocks, work.out.blocks)
        )
        clocks = (
            LAUNCHES * machine.gap_clocks
            + max(
                transform_clocks(work, tiling, machine, back=False),
                machine.memory_clocks(source, tiles),
            )
            + score_multiply_tiles(product, limits, machine).least  # with its memory
            + max(
                transform_clocks(work, tiling, machine, back=True),
                machine.memory_clocks(planes, result),
            )
        )
        found.append(make(clocks=clocks, tiling=tiling, whole=False))
    # One kernel where it wins, three where they win against that too.
    best: WinogradWay | None = None
    for way in sorted(found, key=lambda way: (not way.whole, way.clocks)):
        if way.beats(min(direct, best.clocks) if best is not None else direct, joins):
            best = way
    return best


def _parts(
    graph: Graph, node: Node, tiling: Tiling
) -> Iterator[tuple[Node, Tensor | None, Placement | None]]:
    """Yield the three nodes, with the tensors between them."""
    x, out, attrs = graph.operand(node.inputs[0]), graph.operand(node.output), node.attrs
    memory = Memory.TEXTURE if Memory.TEXTURE in (x.memory, out.memory) else Memory.BLOCKED
    placement = Placement(memory=memory, layout=_PLANES, dtype=x.dtype)

    def make_tensor(name: str, channels: int) -> Tensor:
        shape = (channels, tiling.planes, tiling.tiles)
        return Tensor(name=f"{node.output}.{name}", shape=shape, dtype="float32")

    tiles, planes = make_tensor("tiles", x.extents.c), make_tensor("planes", out.extents.c)
    first = Node(
        name=f"{node.name}.tiles", op=TILES, inputs=node.inputs[:1], output=tiles.name, attrs=attrs
    )
    yield first, tiles, placement
    second = Node(
        name=f"{node.name}.planes",
        op=MULTIPLY,
        inputs=(tiles.name, node.inputs[1]),
        output=planes.name,
        attrs=attrs,
    )
    yield second, planes, placement
    others = () if node.epilogue is None else tuple(node.epilogue.sources.values())
    read = dict.fromkeys(name for name in others if name != Node.RESULT)
    yield replace(node, op=PIXELS, inputs=(planes.name, *read)), None, None


MOST = 1.2
"""The largest share of the error of rounding alone, which `check-accuracy` calls the floor, that
the algorithm may add."""
SHALLOW = 20
"""Roundings that a network is granted: one of fewer is far from any tolerance with them, too."""
ADDED, ADDED_BY_PLANES = 3.0, 5.0
"""Roundings that one convolution adds, in one kernel and in three, which store the products too.

Of independent numbers they would be 4.6 and 7.3 (a transformed tile has four times the variance of
what it is made of, its noise reaches nine products); in a U-Net of 17 such convolutions it is 2.8.
"""


def choose_within_budget(
    graph: Graph, ways: Mapping[str, WinogradWay], options: CompileOptions, log: DecisionLog
) -> frozenset[str]:
    """Return the convolutions, by what they make, that are to go by the algorithm."""
    if (options.storage_dtype, options.compute_dtype) != ("float16", "float32"):
        return frozenset(ways)
    # Its own roundings: of each tensor computed and stored in halves, of weights of products.
    count = 0
    for node in graph.nodes:
        if graph.operand(node.output).dtype == "float16" and not node.moves_alone:
            count += 1
        if is_product(node) and not graph.precision(node.output).float32:
            # A product of a tensor with itself has one input.
            count += any(graph.tensors[name].value is not None for name in node.inputs[1:2])
    own = max(SHALLOW, count)
    taken: set[str] = set()
    added = 0.0
    saved = {name: way.direct - way.clocks for name, way in ways.items()}
    for name in sorted(ways, key=lambda name: -saved[name] / ways[name].added):
        way = ways[name]
        ratio = math.sqrt(1 + (added + way.added) / own)
        if ratio <= MOST:
            taken.add(name)
            added += way.added
            continue
        log.add(
            name,
            "not by Winograd's algorithm",
            f"it would save {saved[name]:.0f} of {way.direct:.0f} clocks, and the network's "
            f"rounding would be {ratio:.2f} times what its own {own} roundings give, beyond "
            f"{MOST}; {len(taken)} others save more for the same",
        )
    return frozenset(taken)
