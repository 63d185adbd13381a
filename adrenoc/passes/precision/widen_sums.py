"""In deep networks, let the first convolutions add up in float, as far as a little time goes.

Every layer hands on the errors of those before it, and a network without training data at hand
does not tell which of them it damps: MobileNetV2 at 224 x 224 makes ten times more of an error in
its first layers than in its last.  The first convolutions are also the cheapest to mend: they have
few channels, and wait for memory more than for arithmetic.  So a deep network spends `SHARE` of the
estimated time of its convolutions on float arithmetic, from its inputs on.

Before -> after (fp16, 40 convolutions or more):
    %c0 = conv2d(%x, %w0); ...     the same, and c0, ... have `wide_sums`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adrenoc.families.conv.conv_tile import scored
from adrenoc.families.expansion.expansion_rule import EXPANSION, pointwise_work
from adrenoc.families.separable.separable_rule import SEPARABLE
from adrenoc.families.shared.conv_geometry import ConvGeometry, conv_geometry, is_depthwise
from adrenoc.families.shared.conv_work import ConvWork, conv_work
from adrenoc.families.winograd import winograd_conv_rule as winograd_conv
from adrenoc.families.winograd.names import MULTIPLY, WHOLE
from adrenoc.ir.graph import Graph, Node
from adrenoc.options import CompileOptions
from adrenoc.passes.context import Context

DEEP = 40
"""Convolutions of a network whose errors add up to more than the bar of 1e-2 of the range."""
SHARE = 0.04
"""Of the time of all convolutions."""


def widen_sums(graph: Graph, context: Context) -> Graph:
    """Mark the first convolutions of a deep network, which compute in float32."""
    costs, log = context.costs, context.log
    options, limits, machine = costs.options, costs.limits, costs.machine
    if options.compute_dtype != "float16" or not is_deep(graph):
        return graph
    works = [(node, work) for node, work in _works(graph, options) if work.half]

    def clocks(node: Node, work: ConvWork) -> float:
        if node.op == WHOLE:
            tiling = node.attrs["tiling"]
            return winograd_conv.scored(work, tiling, limits, machine, options.textures).least
        return scored(work, limits, machine).least

    budget = SHARE * sum(clocks(node, work) for node, work in works)
    left, wide = budget, []
    for node, work in works:
        in_float = clocks(node, replace(work, half=False))
        left -= max(0.0, in_float - clocks(node, work))
        if left < 0 or node.op == MULTIPLY:
            break
        wide.append(node.output)
    if wide:
        log.add(
            f"{wide[0]} to {wide[-1]}",
            "float32 arithmetic",
            f"the first {len(wide)} of {len(works)} convolutions in half: all later ones hand on "
            f"their errors; at most {SHARE:.0%} of the convolutions' estimated time",
        )
    return graph.with_precision(wide, wide_sums=True)


def is_deep(graph: Graph) -> bool:
    """Whether so many convolutions follow each other that the errors of the first matter."""
    convolutions = {"conv2d": 1, MULTIPLY: 1, WHOLE: 1, SEPARABLE: 2, EXPANSION: 2}
    return sum(convolutions.get(node.op, 0) for node in graph.nodes) >= DEEP


def _works(graph: Graph, options: CompileOptions) -> Iterator[tuple[Node, ConvWork]]:
    """The convolutions over channels, in order."""
    for node in graph.nodes:
        if graph.precision(node.output).is_special:
            continue
        if node.op in (MULTIPLY, SEPARABLE):
            yield node, conv_work(graph, node, ConvGeometry(kernel=(1, 1)), options)
        elif node.op == EXPANSION:
            yield node, pointwise_work(graph, node, options)
        elif node.op == WHOLE:
            yield node, conv_work(graph, node, node.attrs["geometry"], options)
        elif node.op == "conv2d" and not is_depthwise(graph, node):
            yield node, conv_work(graph, node, conv_geometry(graph, node), options)
