"""The schedules of one piece of work with their estimates, found once for all who ask.

Passes weigh a node's best estimate against another way to compute it, and the rule of the node then
picks among the same candidates: a search of thousands, several times over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from adrenoc.kernels.families.shared.tile_columns import Column, TileTable, TileTables

T = TypeVar("T")

MOST_KNOWN = 128
"""Searches that are remembered by family: a network has that many distinct layers at most."""


class Scored(Generic[T]):
    """Candidates in order, as an iterable, and the estimate of each, as a function.

    Nothing is searched before somebody asks; any unit, less is better.  Of tables of tiles the
    estimate is asked once for all, and a tile is made for who looks at it.
    """

    def __init__(self, candidates: Callable[[], Iterable[T]], estimate: Callable[[T], Column]):
        self._candidates, self._estimate = candidates, estimate

    @cached_property
    def _searched(self) -> tuple[Sequence[T], np.ndarray]:
        """The candidates, and the estimate of each; made when somebody first asks."""
        found = self._candidates()
        if isinstance(found, (TileTable, TileTables)):
            return found, found.estimate(self._estimate)
        tiles = list(found)
        return tiles, np.array([self._estimate(tile) for tile in tiles], dtype=np.float64)

    @cached_property
    def _estimates(self) -> dict[T, float]:
        tiles, estimates = self._searched
        return dict(zip(tiles, estimates.tolist(), strict=True))

    def alone(self, tile: T) -> float:
        """Return the estimate of one tile, without those of others."""
        return float(self._estimate(tile))

    @property
    def least(self) -> float:
        """The least estimate; infinite where there is no candidate."""
        estimates = self._searched[1]
        return float(estimates.min()) if len(estimates) else math.inf

    def rank(self) -> Iterator[T]:
        """Return the candidates, the best first; of equals those that come first."""
        tiles, estimates = self._searched
        return (tiles[place] for place in np.argsort(estimates, kind="stable").tolist())

    def __iter__(self) -> Iterator[T]:
        return iter(self._searched[0])

    def __len__(self) -> int:
        return len(self._searched[0])

    def __call__(self, tile: T) -> float:
        """The estimate of a candidate, or of another tile of the family."""
        known = self._estimates.get(tile)
        return self.alone(tile) if known is None else known
