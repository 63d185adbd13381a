"""What a convolution, and a map before or after it, would take as kernels of their own, in clocks.

Passes of the phase `choose` hold a joined kernel against these two figures.
"""

from __future__ import annotations

import math

from adrenoc.base.tvmapi import bits_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.body_cost import body_instructions
from adrenoc.kernels.families.conv.conv_tile import estimate_clocks, least_clocks, score_tiles
from adrenoc.kernels.families.shared.conv_geometry import conv_geometry
from adrenoc.kernels.families.shared.conv_work import conv_work, pointwise_work
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.machine import Machine


def conv_clocks(graph: Graph, conv: Node, source: str, costs: CostModel) -> float:
    """Clocks of a convolution in one kernel that reads `source`."""
    work = conv_work(graph, conv, conv_geometry(graph, conv), costs.options)
    sizes = (_bytes(graph.operand(name)) for name in (source, conv.output))
    moved = costs.machine.memory_clocks(*sizes)
    return max(least_clocks(work, costs.limits, costs.machine), moved)


def product_clocks(graph: Graph, product: Node, costs: CostModel) -> tuple[float, float]:
    """Clocks of the product of many tokens by a constant matrix, with a norm that it takes in.

    The first if a wide read of local memory takes longer than a narrow one, the second if not.
    """
    work, machine = pointwise_work(graph, product, costs.options), costs.machine
    tile = next(iter(score_tiles(work, costs.limits, machine).rank()), None)
    if tile is None:
        return math.inf, math.inf
    sizes = (_bytes(graph.operand(name)) for name in (product.inputs[0], product.output))
    moved = machine.memory_clocks(*sizes)
    by_width, whatever = (
        max(estimate_clocks(work, tile, sure), moved) for sure in machine.end_doubt()
    )
    return by_width, whatever


def _bytes(spec: OperandSpec) -> int:
    return math.prod(spec.alone.physical) * bits_of(spec.dtype) // 8


def map_clocks(graph: Graph, node: Node, source: str, machine: Machine) -> float:
    """Clocks of an element-wise kernel, its launch included."""
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
    return machine.launch_clocks + max(
        computed, machine.memory_clocks(*(_bytes(spec) for spec in specs))
    )
