"""Find what maps by place are computed of, where a network narrows a picture and widens it again.

Masks, edges and heat maps as fine as the picture are read place by place: one of some 10^5 at a
steep edge is wrong where a label or a box, to which all places add, is right.  Roundings of the
first layers count most, as all later ones hand them on, and those are the largest tensors, so that
no part of such a network is both cheap and enough: all that a map is computed of lies in float32.

Before -> after (mixed):
    %a = conv2d(%x); ... %m = conv2d_transpose(%z)     the same, a to z, m and weights in float32
"""

from __future__ import annotations

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.operators import OPERATORS, is_kind
from adrenoc.kernels.families.shared.operator import Kind

WIDENED = 64
"""How many times more places a map has than there are where it is narrowest: a detector's levels
differ by 16."""
PICTURE = 100 * 100
"""How many places a map has at least: those of networks that take noise away have 96 by 96."""
STEM = 4
"""How many times fewer places a network's first layer has than the picture, at most."""


def find_fine_maps(graph: Graph) -> list[str]:
    """Find the maps of a network that are as fine as any, and computed of far fewer places."""
    places: dict[str, float] = {}
    finest: dict[str, float] = {}
    narrowest: dict[str, tuple[float, float]] = {}  # its places, and those of the finest before it
    widened = []
    for node in graph.nodes:
        known = [name for name in node.inputs if name in places]
        least, most = min((narrowest[name] for name in known), default=(math.inf, 0.0))
        fine = max((finest[name] for name in known), default=0.0)
        if _convolves(node):
            here: float = _count_places(graph, node)
            # What has one place is a gate or a mean of its network, and narrows nothing.
            if 1 < here < least:
                least, most = here, fine
        elif known:
            here = _resize(graph, node, max(known, key=lambda name: places[name]), places)
        else:
            continue
        name = node.output
        places[name], finest[name], narrowest[name] = here, max(fine, here), (least, most)
        if here >= max(WIDENED * least, PICTURE) and STEM * most >= here:
            widened.append(name)
    most_places = max(places.values(), default=0.0)
    return [name for name in widened if places[name] >= most_places]


def _resize(graph: Graph, node: Node, name: str, places: dict[str, float]) -> float:
    """Find how many places a result has: maps may repeat those that they read, pools join them."""
    read, made = graph.tensors[name].shape, graph.tensors[node.output].shape
    grown = math.prod(made) / max(math.prod(read), 1)
    if is_kind(node, Kind.POOL):
        return places[name] * grown
    repeats = node.is_map and not node.is_concat and len(read) == len(made) and places[name] > 1
    return places[name] * (max(1.0, grown) if repeats else 1.0)


def _convolves(node: Node) -> bool:
    return is_kind(node, Kind.CONVOLUTION) and OPERATORS[node.op].channel_weights is not None


def _count_places(graph: Graph, node: Node) -> int:
    """Count the places at which a convolution makes its channels."""
    operator, shape = OPERATORS[node.op], graph.tensors[node.output].shape
    assert operator.channel_weights is not None
    channels = shape[operator.channel_weights(graph, node).axis]
    return math.prod(shape[1:]) // channels
