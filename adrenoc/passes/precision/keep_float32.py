"""Keep in float32 the tensors that halves would not do for, by rules that are rows.

Each rule looks at what is known of the graph's numbers (`analysis.py`) and names tensors, each with
the reason, which becomes its Decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from adrenoc.ir.graph import Graph
from adrenoc.ir.half import HALF_NORMAL, HALF_TINY
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.rules.cancellations import cancellations
from adrenoc.passes.precision.rules.channels import channels
from adrenoc.passes.precision.rules.choices import choices
from adrenoc.passes.precision.rules.constants import constants
from adrenoc.passes.precision.rules.coordinates import coordinates
from adrenoc.passes.precision.rules.differences import differences
from adrenoc.passes.precision.rules.outputs import outputs
from adrenoc.passes.precision.rules.range import formulas
from adrenoc.passes.precision.rules.ratios import ratios
from adrenoc.passes.precision.rules.sizes import factors, weights
from adrenoc.target.avoid import HALF_DENORMALS

Finds = Callable[[Analysis, Collection[str]], Iterator[tuple[str, str]]]
"""(what is known, tensors kept so far) -> tensors, each with its reason, perhaps an empty one."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One reason why tensors stay in float32."""

    keeps: str
    finds: Finds


PRECISION_RULES = (
    Rule(keeps="what says where to read", finds=coordinates),
    Rule(keeps="what is compared for equality", finds=choices),
    Rule(keeps="means that are subtracted, where little is left", finds=differences),
    Rule(keeps="numbers that may be alike, under weights that cancel", finds=cancellations),
    Rule(keeps="powers, exponentials, reciprocals and long sums", finds=formulas),
    Rule(keeps="products of which ratios or roots alone are read", finds=ratios),
    Rule(keeps="constants that halves cannot hold, and what they scale", finds=constants),
    Rule(keeps="what factors make too large or too small", finds=factors),
    Rule(keeps="tiny channels that count later", finds=channels),
    Rule(keeps="what weights make too large", finds=weights),
    Rule(keeps="what outputs are moved copies of", finds=outputs),
)
"""The rules in order: of several reasons for one tensor the first is told."""


def keep_float32(graph: Graph, context: Context) -> Graph:
    """Mark the tensors that rules name; of several reasons for one the first is told."""
    least = HALF_NORMAL if context.avoids(HALF_DENORMALS) else HALF_TINY
    analysis = Analysis(graph, least_half=least)
    kept, told = set(graph.float32_names), set()
    for rule in PRECISION_RULES:
        for name, reason in list(rule.finds(analysis, kept)):
            if reason and name not in told:
                context.log.add(name, "float32", reason)
                told.add(name)
            kept.add(name)
    return graph.change_precision(kept, float32=True)
