"""Keep in float32 what is small: halves of it would save next to nothing.

A network's output is off by its tensors' roundings, each about as much as any other whatever its
size, and those of what is small do most: a weight, a gate or a mean is off by the same at every
place of a picture, so that no later sum evens it out.  So the smallest tensors and constants stay
exact, as far as they take `SHARE` of the numbers that halves would hold.

Before -> after (mixed):
    %gate = conv2d(%mean, %w) of 1 x 1       gate, mean and the weights that are small: float32
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from adrenoc.ir.graph import Graph
from adrenoc.ir.half import changes_in_half

SHARE = 0.01
"""Of the numbers that lie in half."""


def find_small(graph: Graph, refused: frozenset[str]) -> list[str]:
    """Find the smallest tensors and constants that halves round, beside those that are refused."""
    sizes = dict(_sizes_in_half(graph, refused))
    left = SHARE * sum(sizes.values())
    found = []
    for name in sorted(sizes, key=lambda name: sizes[name]):
        left -= sizes[name]
        if left < 0:
            break
        value = graph.tensors[name].value
        if value is None or changes_in_half(value):
            found.append(name)
    return found


def _sizes_in_half(graph: Graph, refused: frozenset[str]) -> Iterator[tuple[str, int]]:
    """The elements of each tensor and constant that a kernel makes or reads in half."""
    for node in graph.nodes:
        if not node.has_kernel:
            continue
        for name in (node.output, *node.inputs):
            tensor = graph.tensors[name]
            held = name in refused or name in graph.state_names or graph.precision(name).rounded
            made = name == node.output or tensor.value is not None
            if made and tensor.is_float and not held:
                yield name, math.prod(tensor.shape)
