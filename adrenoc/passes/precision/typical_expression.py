"""What the expression of a body comes to, in numbers, where those that it reads are known.

A tensor is known by an array with an axis for several trials, then its own axes, each of which is
whole or of one element: along the latter all elements are taken to be alike.  An expression is
evaluated over the axes that matter to it, and in the middle of the others, where padding is far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.kernels.families.shared.typical import NotKnownError
from adrenoc.passes.analyse.numeric import COMPARISONS
from adrenoc.passes.analyse.numeric import evaluate as evaluate_expression
from adrenoc.passes.analyse.scalar_body import parts_of_kind

_MOST_PLACES = 1 << 17
"""At which an expression is evaluated: beyond it, axes are looked at in the middle alone."""

Known = Callable[[str], np.ndarray]
"""From a tensor's name to its numbers."""


def evaluate(
    body: Body, shape: Sequence[int], known: Known, more: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the numbers of what a body makes, of this shape; `more` are known, too.

    Raises:
        NotKnownError: it has a part that is not looked into.
    """

    def lookup(name: str) -> np.ndarray:
        return more[name] if name in more else known(name)

    axes = [*zip(body.axes, map(int, shape), strict=True), *body.reduced]
    combine = type(body.value) if body.reduced else None
    if combine not in (None, tirx.Add, tirx.Max, tirx.Min):
        raise NotKnownError
    grid = _Grid(body, body.term, axes, lookup)
    value = grid.evaluate(body.term)
    value = np.broadcast_to(value, (value.shape[0], *grid.extents))
    if combine is None:
        return value
    over = tuple(range(1 + len(body.axes), value.ndim))
    unseen = math.prod(e for _, e in body.reduced) / math.prod(value.shape[a] for a in over)
    if combine is tirx.Add:
        return np.asarray(value.sum(axis=over) * unseen)
    return np.asarray((np.max if combine is tirx.Max else np.min)(value, axis=over))


class _Grid:
    """The places at which an expression is evaluated."""

    def __init__(self, body: Body, value: Any, axes: list[tuple[Any, int]], known: Known) -> None:
        self._axes = axes
        self._arrays = [(buffer, known(name)) for buffer, name in body.sources.items()]
        whole: set[int] = set()
        for wanted in self._sort_groups(self._axes_of_loads(value)):
            if self._places_of(whole | wanted) <= _MOST_PLACES:
                whole |= wanted
            elif any(axis >= len(body.axes) for axis in wanted):
                raise NotKnownError  # a sum is not so many times its middle term
        for wanted in self._sort_groups(map(self._axes_of, parts_of_kind(value, COMPARISONS))):
            if self._places_of(whole | wanted) <= _MOST_PLACES:
                whole |= wanted
        self.extents = [extent if a in whole else 1 for a, (_, extent) in enumerate(axes)]
        self._places = [
            self._spread_along(a, np.arange(extent) if a in whole else np.array([extent // 2]))
            for a, (_, extent) in enumerate(axes)
        ]

    def evaluate(self, value: Any) -> np.ndarray:
        """Return the numbers of a part."""
        made = evaluate_expression(value, self._leaf)
        return made if made.ndim else made.reshape([1] * (1 + len(self._axes)))

    # Steps

    def _spread_along(self, axis: int, places: np.ndarray) -> np.ndarray:
        return places.reshape([1] + [-1 if a == axis else 1 for a in range(len(self._axes))])

    def _places_of(self, axes: Iterable[int]) -> int:
        return math.prod(self._axes[axis][1] for axis in axes)

    def _sort_groups(self, groups: Iterable[set[int]]) -> list[set[int]]:
        """Return the shorter ones first."""
        long = [{axis for axis in group if self._axes[axis][1] > 1} for group in groups]
        return sorted(long, key=self._places_of)

    def _axes_of_loads(self, value: Any) -> Iterator[set[int]]:
        """Yield the axes by which elements differ that are read, an index after the other."""
        for load in parts_of_kind(value, tvm.ir.TensorLoad):
            extents = self._array(load).shape[1:]
            for index, extent in zip(load.indices, extents, strict=True):
                if extent > 1:
                    yield self._axes_of(index)

    def _axes_of(self, index: Any) -> set[int]:
        return {
            a
            for var in parts_of_kind(index, tirx.Var)
            for a, (axis, _) in enumerate(self._axes)
            if axis.same_as(var)
        }

    def _array(self, load: Any) -> np.ndarray:
        found = next((a for buffer, a in self._arrays if buffer.same_as(load.source)), None)
        if found is None or found.ndim != len(load.indices) + 1:
            raise NotKnownError
        return found

    def _leaf(self, part: Any) -> np.ndarray:
        if isinstance(part, tvm.ir.TensorLoad):
            return self._load(part)
        for (axis, _), places in zip(self._axes, self._places, strict=True):
            if axis.same_as(part):
                return places
        raise NotKnownError

    def _load(self, load: Any) -> np.ndarray:
        array = self._array(load)
        trial = np.arange(array.shape[0]).reshape([-1] + [1] * len(self._axes))
        places = []
        for index, extent in zip(load.indices, array.shape[1:], strict=True):
            place = self.evaluate(index) if extent > 1 else np.zeros_like(trial)
            places.append(np.clip(place.astype(np.int64), 0, extent - 1))
        return np.asarray(array[tuple([trial, *places])])
