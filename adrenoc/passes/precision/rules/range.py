"""What may leave the range of half by its own formula.

A half ends at 65504, and at 6e-8 towards zero, or at 6.1e-5 where a device flushes what is smaller
(`half-denormals` of `adrenoc/target/avoid.py`).  The exponential of 11.1 is beyond that, so is one
over a distance that is kept from zero by 1e-8, and so is the 1e-8 itself.  Within a kernel all are
floats; what is stored in between, and the sums of it, is kept, up to where one is divided by
another or a function brings them back.

Before -> after (mixed):
    %w = map 1 / (%d + 1e-8)            the same, and w and s stay in float32
    %s = sum(%w)
    %y = map %w / %s
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from adrenoc.families.operators import gives, terms_of
from adrenoc.families.shared.operator import Numbers
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.tvmapi import tirx

_MANY = 64
"""Terms of a sum: of a thousand each they are beyond half."""


def formulas(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """Powers, exponentials, reciprocals of nearly zero, their sums, and sums of many numbers."""
    graph = analysis.graph
    for node in graph.nodes:
        if not graph.tensors[node.output].is_float:
            continue
        known = analysis[node.output]
        if known.ends:
            yield node.output, f"{known.ends.why}: half ends at {HALF_MAX:.0f}"
        elif known.floor is not None and known.floor < analysis.least_half:
            yield node.output, f"{known.floor:.0e} keeps it from zero, and is zero in half"
        elif (terms := _terms(graph, node)) >= _MANY:
            yield node.output, f"{terms} numbers of {HALF_MAX / terms:.0f} fill half"


def _terms(graph: Graph, node: Node) -> int:
    """How many numbers each result of a sum adds up, running sums too; 0 of others."""
    if node.body is not None and node.body.reduced and node.epilogue is None:
        adds = isinstance(node.body.value, tirx.Add) and len(node.body.sources) == 1
        return math.prod(extent for _, extent in node.body.reduced) if adds else 0
    return terms_of(graph, node) if gives(node, Numbers.SUMMED) else 0
