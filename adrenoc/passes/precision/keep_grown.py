"""Keep in float32 the tensors that weights bring beyond half.

A factor is seen in an expression (`keep_sizes`), weights are not: of each layer they are small, and
still a sum of a thousand terms of one sign is a thousand times larger than its terms, a bias may be
as large as half's end, and the scale of a norm lies in the weights that it was folded into.

Before -> after (mixed):
    %y = conv2d(%x, %w), all of %w .05          the same, and y, z stay in float32
    %z = conv2d(%y, %w)
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph
from adrenoc.ir.half import HALF_MAX
from adrenoc.passes.context import Context
from adrenoc.passes.precision.typical import typical_sizes

_ROOM = 4.0
"""How much larger than one the inputs may be, and numbers than those of the middle."""


def keep_grown(graph: Graph, context: Context) -> Graph:
    """Mark the float tensors that are beyond half on data of about one."""
    log = context.log
    sizes = typical_sizes(graph)
    grown = {
        name: size
        for name, size in sizes.items()
        if size * _ROOM > HALF_MAX
        and graph.tensors[name].is_float
        and not graph.precision(name).is_special
    }
    for name, size in grown.items():
        reason = f"weights make it about {size:.1g} of data of one: half ends at {HALF_MAX:.0f}"
        log.add(name, "float32", reason)
    return graph.with_precision(grown, float32=True)
