"""Tiles by the hundred: a tile whose actions are arrays stands for many tiles, an element each.

Cost models are written once for both, by the words of this file.  Of numbers they do what Python
does, of arrays the same for each element, in the same order: an estimate has the same bits whether
its tile was asked for alone or among thousands.

Before -> after:
    ConvTile(pixels=1, out_blocks=2), ConvTile(pixels=4, out_blocks=2)
    ConvTile(pixels=array([1, 4]), out_blocks=array([2, 2]))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, overload

import numpy as np

T = TypeVar("T")

Column = Any
"""A number of one tile, or the array of those of many."""


def larger(first: Column, second: Column) -> Column:
    """Return the larger of two numbers."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def smaller(first: Column, second: Column) -> Column:
    """Return the smaller of two numbers."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def choose(condition: Column, then: Column, other: Column) -> Column:
    """Return the first where the condition holds, else the other; both are made for every tile."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, other)
    return then if condition else other


def round_up(number: Column) -> Column:
    """Return the least whole number that is not below."""
    if isinstance(number, np.ndarray):
        return np.ceil(number).astype(np.int64)
    return math.ceil(number)


def round_down(number: Column) -> Column:
    """Return the whole part of a number that is not negative."""
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def look_up(numbers: Column, function: Callable[[int], Any]) -> Column:
    """Return what `function` says of a whole number; it is asked once for each that differs."""
    if not isinstance(numbers, np.ndarray):
        return function(numbers)
    # `np.unique` would load NumPy's masked arrays, as long a work as a hundred such tables.
    distinct = sorted(set(numbers.ravel().tolist()))
    places = np.searchsorted(distinct, numbers)
    return np.array([function(number) for number in distinct])[places]


def is_one(actions: Column, wanted: object) -> Column:
    """Return whether an action that is no number is this one."""
    if isinstance(actions, np.ndarray):
        return np.array([action is wanted for action in actions.tolist()], dtype=bool)
    return actions is wanted


def raise_to(numbers: Column, exponent: float) -> Column:
    """Numbers to a power.  NumPy's own differs in the last bit from one processor to another."""
    if isinstance(numbers, np.ndarray):
        return np.array([number**exponent for number in numbers.tolist()], dtype=np.float64)
    return numbers**exponent


class TileTable(Sequence[T]):
    """Tiles in order, as a tile of columns; each is made as it is asked for."""

    def __init__(self, kind: type[T], actions: Mapping[str, Any], count: int) -> None:
        """`count` tiles of these actions: an array each, or what all have in common."""
        self._kind, self._actions, self._count = kind, dict(actions), count

    @property
    def columns(self) -> T:
        """The tile that stands for all."""
        return self._kind(**self._actions)

    def estimate(self, estimate: Callable[[T], Column]) -> np.ndarray:
        """Return what `estimate` makes of each tile."""
        if not self._count:
            return np.empty(0)
        return np.broadcast_to(np.asarray(estimate(self.columns), dtype=np.float64), self._count)

    def where(self, condition: Callable[[T], Column]) -> TileTable[T]:
        """Those of which it holds, in the same order."""
        kept = np.broadcast_to(np.asarray(condition(self.columns), dtype=bool), self._count)
        actions = self._map_columns(lambda column: column[kept])
        return TileTable(self._kind, actions, int(np.count_nonzero(kept)))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        listed = self._map_columns(np.ndarray.tolist)
        for place in range(self._count):
            yield self._kind(**{name: _pick(value, place) for name, value in listed.items()})

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._count))]
        if not 0 <= place < self._count:
            raise IndexError(place)
        one = self._map_columns(lambda column: column[place : place + 1].tolist())
        return self._kind(**{name: _pick(value, 0) for name, value in one.items()})

    def _map_columns(self, change: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        """Return the actions, with what `change` makes of each array."""

        def change_all(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(change_all, value))
            return change(value) if isinstance(value, np.ndarray) else value

        return {name: change_all(value) for name, value in self._actions.items()}


class TileTables(Sequence[T]):
    """Tables one after the other."""

    def __init__(self, *tables: TileTable[T]) -> None:
        self._tables = tables

    def estimate(self, estimate: Callable[[T], Column]) -> np.ndarray:
        """Return what `estimate` makes of each tile, asked once a table."""
        return np.concatenate([np.empty(0), *(table.estimate(estimate) for table in self._tables)])

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._tables)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return list(self)[place]
        for table in self._tables:
            if place < len(table):
                return table[place]
            place -= len(table)
        raise IndexError(place)


def _pick(value: Any, place: int) -> Any:
    """Of one tile: an element of a list, or of each list of a work-group."""
    if isinstance(value, tuple):
        return tuple(_pick(side, place) for side in value)
    return value[place] if isinstance(value, list) else value
