"""The float parts of networks that are quantised throughout.

Where converters leave an operator in floats (the first convolution, a norm, a softmax), what comes
out of it is rounded to whole numbers next.  Half moves one number in some dozens to the next one
there, an error of a whole quantum, which the layers behind carry on.  Such parts are small, so
that float32 costs little; networks of which most is in floats are left as they are.

Before -> after (mixed):
    q = round(conv2d(image, w) / s)       image and w stay in float32
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from adrenoc.ir.graph import Graph
from adrenoc.passes.precision.dynamic_quanta import is_data, led_by
from adrenoc.passes.precision.known import Interval

MOST_MORE = 0.25
"""The largest share of all bytes that a run moves that float32 may add before roundings. No GPU
decides it: a network of which half is quantised is at three times that, one of which a layer is not
at a tenth."""


def find_static_sources(
    graph: Graph,
    rounded: Collection[str],
    ranges: Mapping[str, Interval],
    known: Collection[str],
) -> tuple[frozenset[str], float]:
    """Return what halves would change and roundings are computed of, beside `known`; its share of
    bytes.

    The share is of what float32 adds to what a run of the network moves in halves and bytes.
    """
    starts = [name for output in rounded for name in graph.producers[output].inputs]
    found = led_by(graph, starts, rounded, ranges) - {*known}
    more = sum(2 * _times_moved(graph, name) for name in found)
    whole = sum(
        (1 if name in ranges and not is_data(graph, name, ranges) else 2)
        * _times_moved(graph, name)
        for name in graph.tensors
        if graph.tensors[name].is_float
    )
    return found, more / max(1, whole)


def _times_moved(graph: Graph, name: str) -> int:
    """Elements that are written, and read by each reader; of constants those that are read."""
    tensor = graph.tensors[name]
    readers = 1 if tensor.value is not None else 1 + len(graph.consumers[name])
    return readers * math.prod(tensor.shape)
