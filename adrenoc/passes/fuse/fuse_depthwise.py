"""Join depthwise convolutions with the 1x1 convolution before or after them, where it is faster.

A depthwise convolution waits for memory, so what surrounds it is worth computing in its kernel:
the 1x1 convolution that reads it (`fuse_separable`), or the one that it reads (`fuse_expansion`).
A convolution joins one other at most: of each chain of them, those pairs join that save the most
time together.

Before -> after:
    e = conv2d(x, w1); d = conv2d[depthwise](e, w2); y = conv2d(d, w3)
    d = expand_depthwise_conv2d(x, w1, w2); y = conv2d(d, w3), or
    e = conv2d(x, w1); y = separable_conv2d(e, w2, w3)

Why no kernel computes all three.  One was written, on the parts of `families/expansion/`: chunk by
chunk of wide blocks, a work-group keeps the wide pixels and what the depthwise convolution makes of
them in local memory, and the last sums in registers.  In machine code, blocks of MobileNetV2 in
halves, estimated ms of the three kernels / of a pair and the third / of one kernel, the best of
three to twenty tiles:

    block              Adreno 660               Adreno 750
    16-96-24@112 s2    0.188 / 0.107 / 0.198    0.123 / 0.050 / 0.069
    24-144-24@56       0.135 / 0.081 / 0.150    0.076 / 0.042 / 0.061
    24-144-32@56 s2    0.081 / 0.051 / 0.101    0.048 / 0.025 / 0.046
    32-192-32@28                                0.026 / 0.015 / 0.052
    64-384-64@14                                0.020 / 0.019 / 0.155

The launch that it saves, 0.012 ms, does not make up for that; in floats it is further behind.  A
work-group has to make all channels of its rectangle, or others would repeat the first two thirds
of the work: 28 to 64 work-groups remain at 56 x 56, eight or so at 28 x 28, and each is a chain of
20,000 instructions and more.  The last sums and coordinates take registers while the wide pixels
are made, so that two to four waves run beside each other where an expansion keeps six to ten.
What is saved, the memory's time of the tensor between the pair and the third, was hidden anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.depthwise_pairs import Pair, PairEstimates, find_pair
from adrenoc.passes.fuse.fuse_expansion import EXPANSION_PAIR
from adrenoc.passes.fuse.fuse_separable import SEPARABLE_PAIR
from adrenoc.passes.precision.widen_sums import widen_sums


def fuse_depthwise(graph: Graph, context: Context) -> Graph:
    """Join each pair that gains by it, in the place of its second convolution."""
    costs, log = context.costs, context.log
    model = PairEstimates(costs=costs, widened=widen_sums(graph, context.silent))
    forms = [f for f in (SEPARABLE_PAIR, EXPANSION_PAIR) if not context.avoids(f"operator:{f.op}")]
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
    gone = {pair.first.output for pair in joined.values()}
    changed = {pair.second.output: pair.joined for pair in joined.values()}
    return graph.replace_nodes(
        changed.get(n.output, n) for n in graph.nodes if n.output not in gone
    )


def _best(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the pairs that save the most together, where a convolution is in one pair at most.

    `pairs` are in the order of their first convolutions; such that share a convolution form chains.
    """
    before = {pair.second.output: pair for pair in pairs}
    nothing: tuple[float, tuple[Pair, ...]] = (0.0, ())
    best: dict[str, tuple[float, tuple[Pair, ...]]] = {}
    """Of the chain up to a convolution."""
    for pair in pairs:
        last = before.get(pair.first.output)
        saved, chosen = best.get(last.first.output, nothing) if last is not None else nothing
        joining = (saved + pair.saved_clocks, (*chosen, pair))
        apart = best.get(pair.first.output, nothing)
        best[pair.second.output] = max(joining, apart, key=lambda found: found[0])
    goes_on = {pair.first.output for pair in pairs}
    ends = [found for name, found in best.items() if name not in goes_on]
    return tuple(pair for _, chosen in ends for pair in chosen)


def _refuse(log: DecisionLog, pair: Pair, reason: str) -> None:
    log.add(pair.first.name, f"a kernel before {pair.second.name}", reason)
