"""A plan as nodes and edges, in the form that Model Explorer draws, as plain data.

No part of that tool is loaded: `main` is imported by it, and needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.check.verdict import NodeVerdict, Verdict

_INPUT = "input"
PLACE_COLOURS = {"texture": "#0f766e", "buffer": "#d97706", "cpu": "#b91c1c", "clml": "#6d28d9"}


@dataclass(frozen=True, kw_only=True)
class PlannedNode:
    """One launch, or an input of the model. `id` is the tensor that it writes, `reads` the ids of
    those before it, `colour` that of where the tensor lies ("" for an input). `facts` are rows of
    (name, value) for the panel beside the graph, `output` those of the edge that leaves it."""

    id: str
    label: str
    colour: str
    reads: tuple[str, ...]
    facts: tuple[tuple[str, str], ...] = ()
    output: tuple[tuple[str, str], ...] = ()


def list_planned_nodes(verdict: Verdict) -> tuple[PlannedNode, ...]:
    """Return the nodes of a plan in order, after the inputs that they read."""
    made = {node.tensor for node in verdict.nodes}
    read = [name for node in verdict.nodes for name in node.reads]
    inputs = dict.fromkeys(name for name in read if name not in made)
    first = tuple(PlannedNode(id=name, label=_INPUT, colour="", reads=()) for name in inputs)
    return (*first, *(_planned(node) for node in verdict.nodes))


def _planned(node: NodeVerdict) -> PlannedNode:
    shape = " x ".join(map(str, node.shape))
    facts = {
        "node": node.node,
        "operators": ", ".join(node.operators),
        "kernel": node.kernel,
        "kind": node.kind,
        "place": node.place,
        "why not in a texture": node.reason,
        "layout": node.layout,
        "multiply-adds": str(node.macs),
        "bytes read": str(node.bytes_read),
        "bytes written": str(node.bytes_written),
        "bytes of weights": str(node.weight_bytes),
        "least time, us": "" if node.time_us is None else f"{node.time_us:.3f}",
        "bound": node.bound,
    }
    return PlannedNode(
        id=node.tensor,
        label=" + ".join(node.operators) or node.kind,
        colour=PLACE_COLOURS[node.place],
        reads=node.reads,
        facts=tuple((name, value) for name, value in facts.items() if value),
        output=(("tensor_name", node.tensor), ("shape", shape), ("dtype", node.dtype)),
    )
