"""How many convolutions go by Winograd's algorithm where halves are stored.

It stores what it transforms, so that each convolution adds roundings to those that the network has
anyway: one for each tensor in halves and one for each product's weights.  Roundings are independent
and their squares add up.  Those convolutions are taken that save most time for what they add, as
far as the network stays within `MOST` of the error that its own roundings give.

Where sums are in halves, too, they add more than that, and speed is what was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.operators import is_product
from adrenoc.passes.precision.pin_precision import moves

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


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What one convolution gains by the algorithm, in clocks, and the roundings that it adds."""

    clocks: float
    direct: float
    added: float

    @property
    def saved(self) -> float:
        """Clocks."""
        return self.direct - self.clocks


def choose_within_budget(
    graph: Graph, savings: Mapping[str, Saving], options: CompileOptions, log: DecisionLog
) -> frozenset[str]:
    """Return the convolutions, by what they make, that are to go by the algorithm."""
    if (options.storage_dtype, options.compute_dtype) != ("float16", "float32"):
        return frozenset(savings)
    own = _roundings(graph)
    taken: set[str] = set()
    added = 0.0
    for name, saving in sorted(savings.items(), key=lambda item: -_worth(item[1])):
        ratio = math.sqrt(1 + (added + saving.added) / own)
        if ratio <= MOST:
            taken.add(name)
            added += saving.added
            continue
        log.add(
            name,
            "not by Winograd's algorithm",
            f"it would save {saving.saved:.0f} of {saving.direct:.0f} clocks, and the network's "
            f"rounding would be {ratio:.2f} times what its own {own} roundings give, beyond "
            f"{MOST}; {len(taken)} others save more for the same",
        )
    return frozenset(taken)


def _worth(saving: Saving) -> float:
    return saving.saved / saving.added


def _roundings(graph: Graph) -> int:
    """Tensors that are computed and stored in halves, and weights of products in halves."""
    count = 0
    for node in graph.nodes:
        if graph.operand(node.output).dtype == "float16" and not moves(node):
            count += 1
        if is_product(node) and not graph.precision(node.output).float32:
            # A product of a tensor with itself has one input.
            count += any(graph.tensors[name].value is not None for name in node.inputs[1:2])
    return max(SHALLOW, count)
