"""Pairs of a depthwise convolution and a 1x1 convolution, one of which reads the other alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, agree
from adrenoc.ir.operand import Memory
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.families.conv.conv_tile import least_clocks
from adrenoc.kernels.families.depthwise import depthwise_rule as depthwise
from adrenoc.kernels.families.matmul.gemv_rule import suits_gemv
from adrenoc.kernels.families.operators import can
from adrenoc.kernels.families.separable.joined import join_products
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, conv_geometry, is_depthwise
from adrenoc.kernels.families.shared.conv_work import conv_work
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.passes.analyse.image_clash import image_clash
from adrenoc.passes.analyse.moved_reads import mentions
from adrenoc.passes.analyse.other_uses import other_use, reads_first_alone
from adrenoc.passes.fuse.fuse_maps import MAX_INPUTS
from adrenoc.passes.fuse.fuse_prologues import finite_at_zero


@dataclass(frozen=True, kw_only=True)
class PairEstimates:
    """What a pair is estimated with."""

    costs: CostModel
    widened: Graph
    """The cost model with the sums in float that the first convolutions of a deep network will
    have."""

    def choose_costs(self, pointwise: Node) -> CostModel:
        """Return the cost model with the arithmetic that a 1x1 convolution will have, and what it
        stores."""
        if self.widened.precision(pointwise.output).float32:
            return self.costs.in_float32
        wide = self.widened.precision(pointwise.output).wide_sums
        return self.costs.float_model if wide else self.costs


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two convolutions that one kernel can compute, and what it costs, in clocks."""

    first: Node
    second: Node
    joined: Node
    together: float
    apart: float

    @property
    def saved_clocks(self) -> float:
        """Clocks that one kernel saves."""
        return self.apart - self.together

    @property
    def estimates(self) -> str:
        """Both ways, for the log."""
        together = (
            "no schedule fits" if math.isinf(self.together) else f"{self.together:.0f} clocks"
        )
        return f"estimated {together}, {self.apart:.0f} as two kernels"


Suits = Callable[[Graph, Node], bool]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairForm:
    """Which two convolutions a kernel computes: one that is depthwise, and a 1x1 one."""

    op: str
    """The operator that both become."""
    pointwise_first: bool
    """Whether the depthwise one reads the other."""
    apart: str
    """What the first is where they do not join."""
    few: str
    """Why they do not where the 1x1 convolution, which is {name}, makes few vectors."""
    clocks: Callable[[Graph, Node, CostModel], float]
    """The least estimate of the node that both become."""

    @property
    def suits(self) -> tuple[Suits, Suits]:
        """What the first and the second have to be."""
        found = is_pointwise, is_depthwise_conv
        return found if self.pointwise_first else (found[1], found[0])


def find_pair(
    graph: Graph, node: Node, form: PairForm, model: PairEstimates, log: DecisionLog
) -> Pair | None:
    """Return a convolution with the one that reads it, as one kernel; None if they cannot join."""
    readers, (is_first, is_second) = graph.consumers[node.output], form.suits
    if not is_first(graph, node) or not any(is_second(graph, r) for r in readers):
        return None
    reader = readers[0]
    pointwise, depthwise_node = (node, reader) if form.pointwise_first else (reader, node)
    reason = _refusal(graph, node, readers, is_second)
    if reason is None and suits_gemv(graph.operand(pointwise.output).extents):
        reason = form.few.format(name=pointwise.name)
    if reason is None:
        joined = _join(graph, form.op, node, reader, pointwise=pointwise)
        reason = image_clash(graph, joined)
    if reason is not None:
        log.add(node.name, form.apart, reason)
        return None
    return Pair(
        first=node,
        second=reader,
        joined=joined,
        together=form.clocks(graph, joined, model.choose_costs(pointwise)),
        apart=apart_clocks(graph, depthwise_node, pointwise, model),
    )


def _join(graph: Graph, op: str, node: Node, reader: Node, *, pointwise: Node) -> Node:
    """One node of operator `op` for a convolution and the one that reads it.

    It has the attributes of the depthwise one, and `pointwise_layout`, the order of the other's
    weights, and `between`, the tensor between the two.  Of one channel both may be either.
    """
    depthwise_node = reader if pointwise is node else node
    attrs = {
        **depthwise_node.attrs,
        "pointwise_layout": pointwise.attrs["kernel_layout"],
        "between": graph.operand(node.output),
    }
    return join_products(node, reader, op, attrs)


def is_pointwise(graph: Graph, node: Node) -> bool:
    """Return whether a convolution mixes the channels of each pixel and does nothing else."""
    return can(node, Fusion.PAIR) and conv_geometry(graph, node) == ConvGeometry(kernel=(1, 1))


def is_depthwise_conv(graph: Graph, node: Node) -> bool:
    """Return whether a node convolves each channel by itself."""
    return can(node, Fusion.PAIR) and is_depthwise(graph, node)


def _refusal(graph: Graph, node: Node, readers: tuple[Node, ...], suits: Suits) -> str | None:
    """Return why a convolution cannot be computed where it is read, by a node that `suits`."""
    name, source = node.output, graph.operand(node.inputs[0])
    mine, reader = graph.operand(name), readers[0]
    if len(readers) > 1 or not suits(graph, reader):
        other = next(n for n in readers if not suits(graph, n) or n is not reader)
        return f"{other.op} {other.name} reads it too"
    out = graph.operand(reader.output)
    blocks = (Memory.TEXTURE, Memory.BLOCKED)
    used = other_use(graph, node)
    obstacles = {
        used or "": used is not None,
        f"{reader.name} reads it beside its own input": not reads_first_alone(reader, name),
        "a prologue": node.prologue is not None or reader.prologue is not None,
        "one of them is kept in float32, or is whole numbers": not _alike(graph, node, reader)
        or out.memory is Memory.BYTES,
        "not in blocks of four channels": source.memory not in blocks or mine.memory not in blocks,
        f"other axes than {reader.name}": not agree(mine.roles, out.roles, (2,) * len(mine.shape)),
        f"more than {MAX_INPUTS} tensors": len({*node.inputs, *reader.inputs} - {name})
        > MAX_INPUTS,
        "what follows it is not of its channels alone": not _reads_channels_only(graph, node),
        "beyond the last channel it might not be a number": mine.extents.c % LANES > 0
        and node.epilogue is not None
        and not finite_at_zero(node.epilogue),
    }
    return next((reason for reason, found in obstacles.items() if found), None)


def _alike(graph: Graph, node: Node, reader: Node) -> bool:
    """Return whether one kernel is as exact as both ask for: it has the precision of its result.

    In float32 it reads halves, too, for kernels convert where they load.
    """
    asked = [graph.precision(n) for n in (node.inputs[0], node.output, reader.output)]
    if any(one.rounded for one in asked):
        return False
    return asked[-1].float32 or not any(one.float32 for one in asked)


def _reads_channels_only(graph: Graph, node: Node) -> bool:
    """Return whether the epilogue reads no more than the result, and numbers of each channel."""
    if node.epilogue is None:
        return True
    body, roles = node.epilogue, graph.operand(node.output).roles
    moving = [axis for axis, role in zip(body.axes, roles.roles, strict=True) if role in "HW"]
    results = [b for b, name in body.sources.items() if name == Node.RESULT]
    others = [
        load for load in loads_of(body.value) if not any(b.same_as(load.source) for b in results)
    ]
    return not any(mentions(load.indices, moving) for load in others)


def apart_clocks(
    graph: Graph, depthwise_node: Node, pointwise: Node, model: PairEstimates
) -> float:
    """Clocks of two kernels, the launch of one of them included."""
    costs = model.choose_costs(pointwise)
    limits, machine = costs.limits, costs.machine
    first, second = (
        conv_work(graph, node, conv_geometry(graph, node), costs.options)
        for node in (depthwise_node, pointwise)
    )
    alone = depthwise.score_tiles(first, limits, machine).least
    return machine.launch_clocks + alone + least_clocks(second, limits, machine)
