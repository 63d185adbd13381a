"""Join depthwise convolutions with the 1x1 convolution before or after them, where it is faster.

A depthwise convolution waits for memory, so what surrounds it is worth computing in its kernel:
the 1x1 convolution that reads it, or the one that it reads.  What lies between them need not exist
then: the largest tensor of an inverted residual block, or one as large as what was read.
A convolution joins one other at most: of each chain of them, those pairs join that save the most
time together.

Before -> after:
    e = conv2d(x, w1); d = conv2d[depthwise](e, w2); y = conv2d(d, w3)
    d = expand_depthwise_conv2d(x, w1, w2); y = conv2d(d, w3), or
    e = conv2d(x, w1); y = separable_conv2d(e, w2, w3)

Why no kernel computes all three: `docs/measurements/machine-code.md`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Memory, agree
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.families import depthwise, separable
from adrenoc.kernels.families.conv.conv_rules import least_clocks
from adrenoc.kernels.families.expansion import expansion_rule
from adrenoc.kernels.families.expansion.expansion_rule import EXPANSION, expansion_work
from adrenoc.kernels.families.matmul.gemv import suits_gemv
from adrenoc.kernels.families.operators import can
from adrenoc.kernels.families.separable import SEPARABLE, join_products, separable_work
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    conv_geometry,
    conv_work,
    is_depthwise,
)
from adrenoc.kernels.families.shared.machine import CostModel, Machine, Scored
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.passes.analyse.reads import (
    first_obstacle,
    image_clash,
    mentions,
    other_use,
    reads_first_alone,
)
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_maps import MAX_INPUTS
from adrenoc.passes.fuse.fuse_prologues import finite_at_zero
from adrenoc.passes.precision.pin_precision import widen_sums
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class PairEstimates:
    """What a pair is estimated with."""

    costs: CostModel
    widened: Graph
    """The cost model with the float sums of the first convolutions of a deep network."""

    def choose_costs(self, pointwise: Node) -> CostModel:
        """Return the cost model with the precision that a 1x1 convolution will have."""
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
    def estimates(self) -> str:
        """Return both ways, for the log."""
        no_tile = math.isinf(self.together)
        together = "no schedule fits" if no_tile else f"{self.together:.0f} clocks"
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
    work: Callable[[Graph, Node, CompileOptions], Any]
    """The work of the node that both become."""
    score: Callable[[Any, Limits, Machine], Scored[Any]]
    """The schedules of that work, with their estimates."""

    def clocks(self, graph: Graph, joined: Node, costs: CostModel) -> float:
        """Return the least estimate of the node that both become."""
        work = self.work(graph, joined, costs.options)
        return self.score(work, costs.limits, costs.machine).least

    @property
    def suits(self) -> tuple[Suits, Suits]:
        """Return what the first and the second have to be."""
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
    """Return one node of operator `op` for a convolution and the one that reads it.  It has the
    attributes of the depthwise one, and `pointwise_layout`, the order of the other's weights, and
    `between`, the tensor between the two.  Of one channel both may be either."""
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
    return first_obstacle(obstacles)


def _alike(graph: Graph, node: Node, reader: Node) -> bool:
    """Return whether one kernel is as exact as both ask for: it has the precision of its result.
    In float32 it reads halves, too, for kernels convert where they load."""
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
    return not any(
        mentions(load.indices, moving)
        for load in loads_of(body.value)
        if body.source_of(load.source) != Node.RESULT
    )


def apart_clocks(
    graph: Graph, depthwise_node: Node, pointwise: Node, model: PairEstimates
) -> float:
    """Return clocks of two kernels, the launch of one of them included."""
    costs = model.choose_costs(pointwise)
    limits, machine = costs.limits, costs.machine
    first, second = (
        conv_work(graph, node, conv_geometry(graph, node), costs.options)
        for node in (depthwise_node, pointwise)
    )
    alone = depthwise.score_tiles(first, limits, machine).least
    return machine.launch_clocks + alone + least_clocks(second, limits, machine)


FORMS = (
    PairForm(
        op=SEPARABLE,
        pointwise_first=False,
        apart="a kernel before its 1x1 convolution",
        few="{name} makes few vectors, each thread of which reads all",
        work=separable_work,
        score=separable.score_tiles,
    ),
    PairForm(
        op=EXPANSION,
        pointwise_first=True,
        apart="a kernel before its depthwise convolution",
        few="it makes few vectors",
        work=expansion_work,
        score=expansion_rule.score_tiles,
    ),
)
"""The 1x1 convolution after a depthwise one, and before it."""


def fuse_depthwise(graph: Graph, context: Context) -> Graph:
    """Join each pair that gains by it, in the place of its second convolution."""
    costs, log = context.costs, context.log
    model = PairEstimates(costs=costs, widened=widen_sums(graph, context.silent))
    forms = [f for f in FORMS if not context.avoids(f"operator:{f.op}")]
    pairs = [
        pair
        for node in graph.nodes
        for form in forms
        if (pair := find_pair(graph, node, form, model, log)) is not None
    ]
    # Estimates err, and where no schedule fits they are infinite.
    factor = costs.machine.cost.joins.pair
    winning = [pair for pair in pairs if factor * pair.together < pair.apart]
    joined = {c.output: pair for pair in _best(winning) for c in (pair.first, pair.second)}
    for pair in pairs:
        other = joined.get(pair.first.output, joined.get(pair.second.output))
        if pair is other:
            log.add(pair.second.name, f"computes {pair.first.name} too", pair.estimates)
        elif pair not in winning or other is None:
            _refuse(log, pair, pair.estimates)
        else:
            _refuse(log, pair, f"{other.first.name} with {other.second.name} saves more")
    if not joined:
        return graph
    pairs = list(joined.values())
    return graph.exchange((pair.joined for pair in pairs), (pair.first for pair in pairs))


def _best(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the pairs that save the most together, where a convolution is in one pair at most.
    `pairs` are in the order of their first convolutions; such that share a convolution form
    chains."""
    before = {pair.second.output: pair for pair in pairs}
    nothing: tuple[float, tuple[Pair, ...]] = (0.0, ())
    best: dict[str, tuple[float, tuple[Pair, ...]]] = {}
    """Of the chain up to a convolution."""
    for pair in pairs:
        last = before.get(pair.first.output)
        saved, chosen = best.get(last.first.output, nothing) if last is not None else nothing
        joining = (saved + pair.apart - pair.together, (*chosen, pair))
        apart = best.get(pair.first.output, nothing)
        best[pair.second.output] = max(joining, apart, key=lambda found: found[0])
    goes_on = {pair.first.output for pair in pairs}
    ends = [found for name, found in best.items() if name not in goes_on]
    return tuple(pair for _, chosen in ends for pair in chosen)


def _refuse(log: DecisionLog, pair: Pair, reason: str) -> None:
    log.add(pair.first.name, f"a kernel before {pair.second.name}", reason)
