"""Tiles as columns: what is said of many is said of each, in the same bits."""

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from adrenoc.kernels.families.shared import machine
from adrenoc.kernels.families.shared.machine import Scored, TileTable, TileTables


@dataclass(frozen=True, kw_only=True)
class _Tile:
    pixels: int
    work_group: tuple[int, int, int] = (1, 1, 1)
    rolled: bool = False
    route: str = "local"


def _table(count: int, route: str = "local") -> TileTable[_Tile]:
    numbers = np.arange(count)
    group = (numbers + 1, np.ones(count, dtype=np.int64), 2 * numbers)
    actions = {"pixels": numbers % 5, "work_group": group, "rolled": numbers % 2 == 1}
    return TileTable(_Tile, actions | {"route": route}, count)


def _estimate(tile: Any) -> Any:
    long = machine.choose(tile.rolled, 0.3, 0.1) * math.prod(tile.work_group)
    return machine.larger(long / 3, machine.look_up(tile.pixels, math.sqrt))


def test_a_table_makes_the_tiles_that_its_columns_say() -> None:
    table = _table(7)
    assert table[3] == _Tile(pixels=3, work_group=(4, 1, 6), rolled=True)
    assert list(table) == [table[place] for place in range(7)] == table[:]
    assert len({*table}) == 7  # of Python's own numbers, as a tuning log stores them
    assert all(type(n) is int for tile in table for n in (tile.pixels, *tile.work_group))
    assert all(type(tile.rolled) is bool for tile in table)
    with pytest.raises(IndexError):
        table[7]


def test_a_table_keeps_what_suits_in_order() -> None:
    kept = _table(9).where(lambda tiles: tiles.pixels > 2)
    assert [tile.work_group[0] for tile in kept] == [4, 5, 9]
    assert not list(_table(9).where(lambda tiles: tiles.pixels > 9))
    assert list(_table(2).where(lambda _: True)) == list(_table(2))


def test_estimates_of_tables_have_the_bits_of_those_of_tiles() -> None:
    tables = TileTables(_table(40), _table(3, route="texture"), _table(0))
    assert [tile.route for tile in tables[38:]] == ["local"] * 2 + ["texture"] * 3
    together = tables.estimate(_estimate).tolist()
    assert together == [_estimate(tile) for tile in tables]
    scored = Scored(lambda: tables, _estimate)
    assert scored.least == min(together)
    assert list(scored.rank()) == sorted(tables, key=_estimate)
    assert len(scored) == 43


@pytest.mark.parametrize("seed", range(20))
def test_words_of_estimates_mean_the_same_of_numbers_and_arrays(seed: int) -> None:
    draw = random.Random(seed)
    usual = (0.0, 0.5, 7.25, 1e9)
    first, second = ([draw.choice((*usual, 99 * draw.random())) for _ in range(8)] for _ in "xy")
    x, y = np.array(first), np.array(second)
    pairs = list(zip(first, second, strict=True))
    both = (machine.larger, machine.smaller)
    for word in both:
        assert word(x, y).tolist() == [word(a, b) for a, b in pairs]
        assert word(x, 3).tolist() == [word(a, 3) for a in first]
        assert word(2.5, y).tolist() == [word(2.5, b) for b in second]
    for alone in (machine.round_up, machine.round_down):
        assert alone(x).tolist() == [alone(a) for a in first]
    exponent = draw.random()
    assert machine.raise_to(x, exponent).tolist() == [a**exponent for a in first]
    chosen = machine.choose(x > y, x, 1)
    assert chosen.tolist() == [machine.choose(a > b, a, 1) for a, b in pairs]


def test_actions_that_are_no_numbers_are_told_apart_by_what_they_are() -> None:
    routes = np.array(["local", "texture", "local"], dtype=object)
    assert machine.is_one(routes, "local").tolist() == [True, False, True]
    assert machine.is_one("local", "local") is True
