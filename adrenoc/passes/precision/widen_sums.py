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

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.channel_sums import ChannelSums
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.passes.analyse.deep_sums import channel_sums_of, is_deep
from adrenoc.passes.context import Context

SHARE = 0.04
"""The share of the estimated time of all convolutions that a deep network spends on float sums."""


def widen_sums(graph: Graph, context: Context) -> Graph:
    """Mark the first convolutions of a deep network, which compute in float32."""
    costs, log = context.costs, context.log
    options = costs.options
    if options.compute_dtype != "float16" or not is_deep(graph):
        return graph
    works = [found for found in _works(graph, options) if found[2].half]
    budget = SHARE * sum(sums.clocks(node, work, costs) for node, sums, work in works)
    left, wide = budget, []
    for node, sums, work in works:
        in_float = sums.clocks(node, replace(work, half=False), costs)
        left -= max(0.0, in_float - sums.clocks(node, work, costs))
        if left < 0 or not sums.in_float:
            break
        wide.append(node.output)
    if wide:
        log.add(
            f"{wide[0]} to {wide[-1]}",
            "float32 arithmetic",
            f"the first {len(wide)} of {len(works)} convolutions in half: all later ones hand on "
            f"their errors; at most {SHARE:.0%} of the convolutions' estimated time",
        )
    return graph.change_precision(wide, wide_sums=True)


def _works(graph: Graph, options: CompileOptions) -> Iterator[tuple[Node, ChannelSums, ConvWork]]:
    """Yield the convolutions over channels, in order."""
    for node in graph.nodes:
        sums = channel_sums_of(node)
        if sums is None or graph.precision(node.output).is_special:
            continue
        work = sums.work(graph, node, options)
        if work is not None:
            yield node, sums, work
