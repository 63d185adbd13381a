"""What factors bring beyond what halves hold, and what weights do.

Half ends at 65504, and below 2^-14 it has few digits or none left.  A factor of 1e-7 brings data
there, and so do two of 1e-4 with a kernel between them: what is multiplied by 1e7 later has lost
its digits by then.  Products of such a tensor are as small, up to where a factor brings them back,
or a norm or a function does.

A factor is seen in an expression, weights are not: of each layer they are small, and still a sum of
a thousand terms of one sign is a thousand times larger than its terms, a bias may be as large as
half's end, and the scale of a norm lies in the weights that it was folded into.

That size is an estimate, by data that are alike in all places.  Where it once ends beyond half, it
was short on the way there: maxima over places are larger than what is typical, and blocks that
multiply their data, as those of StarNet, take them along.  Then tensors stay in float32 from a
256th of half's end on.

Before -> after (mixed):
    %s = map %x * 1e-7                          the same, and s and p stay in float32
    %p = max_pool2d(%s)
    %y = map %p * 1e7
    %z = conv2d(%y, %w), all of %w .05          the same, and z stays in float32
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from adrenoc.ir.half import HALF_MAX
from adrenoc.passes.precision.analysis import Analysis

_ROOM = 4.0
"""How much larger than one the inputs may be, and numbers than those of the middle."""
_ROOM_WHERE_GROWN = 256.0
"""The same in a network that outgrows half: in StarNet the estimate was up to 380 times short.
Networks that stay within half have none above a thousandth of its end, and lose nothing."""


def factors(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The float tensors that factors make far larger or smaller than their data."""
    graph = analysis.graph
    for node in graph.nodes:
        size = analysis[node.output].size
        # What is rounded to integers are multiples of a quantum, which a factor has brought about.
        if size is None or graph.precision(node.output).rounded:
            continue
        if graph.tensors[node.output].is_float and (reason := size.beyond_half):
            yield node.output, reason


def weights(analysis: Analysis, kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The float tensors that are beyond half on data of about one, if no other rule keeps them."""
    graph = analysis.graph
    sizes = {
        name: size
        for name, size in analysis.typical.items()
        if graph.tensors[name].is_float and not (name in kept or graph.precision(name).rounded)
    }
    outgrown = any(size * _ROOM > HALF_MAX for size in sizes.values())
    room = _ROOM_WHERE_GROWN if outgrown else _ROOM
    for name, size in sizes.items():
        if size * room > HALF_MAX:
            about = f"weights make it about {size:.1g} of data of one"
            if size * _ROOM > HALF_MAX:
                yield name, f"{about}: half ends at {HALF_MAX:.0f}"
            else:
                yield name, f"{about}, which grow on: others end beyond half"
