"""The kernels of a decoder by the layers of the model: which of them error enters by."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.text.result_table import ResultTable
from adrenoc.check.accuracy.result import LayerAccuracy
from adrenoc.ir.graph import Node
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind

_NUMBER = re.compile(r"(?<!\w)(\d+)(?=[./])")
"""A part of a tensor's name that is a number, as in `/model/layers.3/mlp` or `present.3.key`."""
_BEFORE, _AFTER = "embedding", "head"


def number_of_layer(name: str) -> str:
    """The layer that a tensor's name says; empty where it says none."""
    found = _NUMBER.search(name)
    return "" if found is None else found[1]


def number_layers(nodes: Sequence[Node], name_of: Callable[[str], str]) -> dict[str, str]:
    """Tensor -> the layer of the model that its node belongs to, by the exporter's names.

    A product belongs to the layer that made what it multiplies: the sum behind it may have the name
    of the layer that comes next.
    """
    found: dict[str, str] = {}
    place = _BEFORE
    for node in nodes:
        read = node.inputs[:1] if is_kind(node, Kind.PRODUCT) else ()
        numbers = [number_of_layer(name_of(name)) for name in (*read, node.output)]
        known = [number for number in numbers if number]
        place = known[0] if known else place if place == _BEFORE else _AFTER
        found[node.output] = place
    return found


@dataclass(frozen=True, kw_only=True)
class DecoderLayer:
    """A layer of the model, by its number, or what lies before or behind all of them.

    The largest error that a kernel of it adds by its weights, by its activations and by the
    caches, and what the network up to its last kernel has come to.
    """

    name: str
    weights: float
    activations: float
    cache: float
    total_error: float


def list_decoder_layers(layers: Sequence[LayerAccuracy]) -> ResultTable:
    """List what enters by each layer of a decoder; no rows of another model."""
    columns = ("decoder layer", "by weights", "by activations", "by the cache", "error so far")
    return ResultTable(
        columns=columns,
        rows=tuple(
            (one.name, *map(show_error, (one.weights, one.activations, one.cache, one.total_error)))
            for one in group_layers(layers)
        ),
        figures=columns[1:],
    )


def show_error(error: float) -> str:
    """Show an error over a range."""
    return f"{error:.1e}" if math.isfinite(error) else "not finite"


def group_layers(layers: Sequence[LayerAccuracy]) -> tuple[DecoderLayer, ...]:
    """The layers of a decoder in order; none of another model, whose kernels have no parts."""
    groups: dict[str, list[LayerAccuracy]] = {}
    for layer in layers:
        if layer.parts is not None:
            groups.setdefault(layer.part_of, []).append(layer)
    return tuple(
        DecoderLayer(
            name=name,
            weights=max(x.parts.weights for x in members if x.parts),
            activations=max(x.parts.activations for x in members if x.parts),
            cache=max(x.parts.cache for x in members if x.parts),
            total_error=members[-1].total_error,
        )
        for name, members in groups.items()
    )
