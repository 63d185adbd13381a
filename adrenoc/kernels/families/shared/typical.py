"""How large numbers become on data of about one: what operators' own functions of it share.

A tensor is known by an array with an axis for several trials, then its own axes, each of which is
whole or of one element: along the latter all elements are taken to be alike.  A record's `typical`
says what its operator makes of such an array.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.ir.graph import Graph, Node

TRIALS = np.array([1.0, -1.0])
"""The numbers that stand for the data of an input: one, and minus one."""
ROWS = 1024
"""Rows of a matrix that are looked at together."""
_BEYOND_CHANCE = 4.0
"""Sums of terms of both signs are about the root of the sum of their squares; of this many times
that, they are none by chance: the terms have one sign, nearly."""
_FEW = 24
"""Fewer weights may have one sign by chance."""
_PART = 1 << 18
"""Weights that are looked at together."""
_LOOKED_AT = 1 << 28
"""Elements of a convolution's or product's weights: beyond it, a look takes too long."""


class NotKnownError(Exception):
    """There is no saying what numbers come to."""


@dataclass(frozen=True, kw_only=True)
class TypicalRun:
    """A graph, and the numbers of its tensors as far as they are known."""

    graph: Graph
    numbers: Callable[[str], np.ndarray]


Typical = Callable[[TypicalRun, Node, np.ndarray], np.ndarray]
"""(run, node, numbers of its first input or of its prologue) -> numbers of the operator's result.

Raises NotKnownError where it cannot tell.
"""


def one_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of about one, alike along all axes."""
    return TRIALS.reshape([-1] + [1] * len(shape))


def weights_of(run: TypicalRun, node: Node) -> np.ndarray:
    """Return the constant weights of a node, its second input."""
    value = run.graph.tensors[node.inputs[1]].value
    if value is None or value.size > _LOOKED_AT or value.dtype.kind not in "fiu":
        raise NotKnownError
    return value


def middle(array: np.ndarray, *, keep: int, also: int = -1) -> np.ndarray:
    """Return the array, with one element alone of the axes other than those."""
    held = (0, keep + 1, also + 1) if also >= 0 else (0, keep + 1)
    return array[
        tuple(
            slice(None) if axis in held else slice(extent // 2, extent // 2 + 1)
            for axis, extent in enumerate(array.shape)
        )
    ]


def sums_over_taps(weights: np.ndarray, taps: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of the weights of each pair of channels, and of their squares.

    Part by part, without a second array of that size, and of halves in float32: their own squares
    end at their largest number and vanish below their least.
    """
    left = [a for a in range(weights.ndim) if a not in taps]
    lines = weights.transpose(*left, *taps)
    shape, count = lines.shape[: len(left)], math.prod(lines.shape[len(left) :])
    ones = np.ones(count, np.float32 if weights.dtype == np.float16 else np.float64)
    sums, squares = np.empty(shape, ones.dtype), np.empty(shape, ones.dtype)
    rows = max(1, _PART * len(lines) // max(1, weights.size))
    for part in (slice(first, first + rows) for first in range(0, len(lines), rows)):
        wide = lines[part].reshape(-1, count).astype(ones.dtype)
        sums[part] = (wide @ ones).reshape(-1, *shape[1:])
        squares[part] = (np.square(wide, out=wide) @ ones).reshape(-1, *shape[1:])
    return sums, squares


def sums_of_terms(sums: np.ndarray, squares: np.ndarray, *, alike: bool) -> np.ndarray:
    """Return sums of terms that are `alike`, or no larger than terms of both signs make them."""
    if alike:
        return sums
    by_chance = np.sqrt(squares)
    return np.where(
        np.abs(sums) > _BEYOND_CHANCE * by_chance, sums, np.clip(sums, -by_chance, by_chance)
    )


def have_one_sign(weights: np.ndarray) -> bool:
    """Return whether no weight has another sign than the others, which no chance brings about."""
    first = weights.reshape(-1)[:ROWS]
    if first.min() < 0 < first.max() or weights.size < _FEW:
        return False
    return bool(weights.min() >= 0 or weights.max() <= 0)
