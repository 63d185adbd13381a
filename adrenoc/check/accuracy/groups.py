"""The parts of a network whose rounding is of one kind: what a search for precision tries as one.

A unit is what one pin keeps in float32: a tensor with what only moves it, and the constants that
it is computed of.  Units are grouped by what they are to the network: the head, a residual stream,
what exponentials read, the first layers, and the layers between, by the size of their images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from adrenoc.base.text.amounts import dims
from adrenoc.check.accuracy.ideal import Stored
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.analyse.network_parts import head_of, product_depths, streams_of
from adrenoc.passes.analyse.powers import EXPONENTIALS, calls
from adrenoc.passes.precision.pin_precision import moves

_EXPONENTIAL = (Kind.SOFTMAX, Kind.ATTENTION)
_FIRST = 2
"""Products from the input on that are first layers: all others inherit their rounding."""
_LARGEST = 12
"""Units of one group between the others; longer runs of layers are cut."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Tensors that are pinned together, by the graph's names, and what that keeps from half.

    `bytes_more` is what a run then moves more: each tensor is written once and read by each
    reader, each constant is read once.
    """

    tensors: tuple[str, ...]
    stored: Stored
    bytes_more: int


@dataclass(frozen=True, kw_only=True)
class Group:
    """Units of one kind, in execution order; `name` is for people."""

    name: str
    units: tuple[Unit, ...]


def groups_of(graph: Graph, stored: Stored) -> tuple[Group, ...]:
    """The groups of a fused graph, of a plan that stores this in half; empty ones are left out."""
    units = _units(graph, stored)
    kinds = _kinds(graph)
    found: dict[str, list[Unit]] = {}
    run, last = 0, ""
    for unit in units:
        kind = next((kinds[n] for n in unit.tensors if n in kinds), "")
        if not kind:
            size = _image(graph, unit.tensors[0])
            full = len(found.get(f"layers {last} ({run})", ())) >= _LARGEST
            run, last = run + (size != last or full), size
            kind = f"layers {last} ({run})"
        found.setdefault(kind, []).append(unit)
    return tuple(Group(name=name, units=tuple(members)) for name, members in found.items())


def _units(graph: Graph, stored: Stored) -> list[Unit]:
    """What can be pinned and is stored in half, in execution order."""
    leader: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for name in graph.inputs:
        members[name] = [name]
        leader[name] = name
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs and moves(node) else node.output
        first = leader.get(source, node.output)
        leader[node.output] = first
        members.setdefault(first, []).append(node.output)
    found = []
    for names in members.values():
        nodes = [graph.producers[n] for n in names if n in graph.producers]
        constants = {c for n in nodes for c in n.inputs if graph.tensors[c].value is not None}
        tensors = {t for t in stored.tensors if t in names or _is_copy(t, names)}
        kept = Stored(tensors=frozenset(tensors), constants=stored.constants & constants)
        if kept.count:
            found.append(
                Unit(tensors=tuple(names), stored=kept, bytes_more=_bytes_more(graph, kept))
            )
    return found


def _is_copy(tensor: str, names: Iterable[str]) -> bool:
    """Whether a stored tensor is a copy of one of these in another layout."""
    head, _, roles = tensor.rpartition("_")
    return head in names and roles.isupper()


def _bytes_more(graph: Graph, kept: Stored) -> int:
    elements = 0
    for name in kept.tensors:
        if name in graph.tensors:
            readers = len(graph.consumers[name])
            elements += math.prod(graph.tensors[name].shape) * (1 + readers)
    for name in kept.constants:
        elements += math.prod(graph.tensors[name].shape)
    return max(1, 2 * elements)  # two bytes more each


def _kinds(graph: Graph) -> dict[str, str]:
    """Tensor -> its group, for those that are more than one layer of many."""
    found: dict[str, str] = {}
    for kind in (_head(graph), _streams(graph), _find_exponents(graph), _first(graph)):
        for name, text in kind.items():
            found.setdefault(name, text)
    return found


def _head(graph: Graph) -> dict[str, str]:
    return dict.fromkeys(head_of(graph, graph.outputs), "head")


def _streams(graph: Graph) -> dict[str, str]:
    return {
        name: f"residual stream {number}"
        for number, names in enumerate(streams_of(graph), 1)
        for name in names
    }


def _find_exponents(graph: Graph) -> dict[str, str]:
    """What softmax, sigmoid and their like read: an error there is multiplied by its size."""
    found = {}
    for node in graph.nodes:
        # What an epilogue reads is in registers, and was never rounded.
        if is_kind(node, *_EXPONENTIAL) or (node.is_map and _is_curved(node)):
            for name in node.inputs:
                if graph.tensors[name].value is None and graph.tensors[name].is_float:
                    found[name] = "read by exponentials"
    return found


def _is_curved(node: Node) -> bool:
    return any(calls(body, (*EXPONENTIALS, "tirx.sigmoid", "tirx.tanh")) for body in node.bodies)


def _first(graph: Graph) -> dict[str, str]:
    depth = product_depths(graph)
    return {n: "first layers" for n, count in depth.items() if count <= _FIRST}


def _image(graph: Graph, name: str) -> str:
    """The size of a tensor's images, as text."""
    shape = graph.tensors[name].shape
    return dims(shape[2:] if len(shape) == 4 else shape[1:])
