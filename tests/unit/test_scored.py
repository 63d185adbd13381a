import math
from collections.abc import Iterator

from adrenoc.kernels.families.shared.machine import Scored


def test_candidates_are_searched_once_and_not_before_somebody_asks() -> None:
    searched: list[int] = []
    estimated: list[int] = []

    def candidates() -> Iterator[int]:
        searched.append(1)
        yield from (3, 1, 2)

    def estimate(tile: int) -> float:
        estimated.append(tile)
        return float(tile)

    tiles = Scored(candidates, estimate)
    assert not searched
    assert list(tiles) == [3, 1, 2]
    assert tiles.least == 1.0
    assert min(tiles, key=tiles) == 1
    assert (searched, estimated) == ([1], [3, 1, 2])
    assert tiles(7) == 7.0  # no candidate, as one that a log of another version names


def test_without_candidates_nothing_is_least() -> None:
    assert Scored(lambda: (), float).least == math.inf
