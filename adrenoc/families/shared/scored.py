"""The schedules of one piece of work with their estimates, found once for all who ask.

Passes weigh a node's best estimate against another way to compute it, and the rule of the node then
picks among the same candidates: a search of thousands, several times over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_KNOWN = 128
"""Searches that are remembered by family: a network has that many distinct layers at most."""


class Scored(Generic[T]):
    """Candidates in order, as an iterable, and the estimate of each, as a function.

    Nothing is searched before somebody asks; any unit, less is better.
    """

    def __init__(self, candidates: Callable[[], Iterable[T]], estimate: Callable[[T], float]):
        self._candidates, self._estimate = candidates, estimate

    @cached_property
    def estimates(self) -> dict[T, float]:
        """The estimate of each candidate; made when it is first asked for, which is the search."""
        return {tile: self._estimate(tile) for tile in self._candidates()}

    def alone(self, tile: T) -> float:
        """The estimate of one tile, without those of others."""
        return self._estimate(tile)

    @property
    def least(self) -> float:
        """The least estimate; infinite where there is no candidate."""
        return min(self.estimates.values(), default=float("inf"))

    def __iter__(self) -> Iterator[T]:
        return iter(self.estimates)

    def __call__(self, tile: T) -> float:
        """The estimate of a candidate, or of another tile of the family."""
        known = self.estimates.get(tile)
        return self._estimate(tile) if known is None else known
