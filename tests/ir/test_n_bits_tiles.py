"""Which tiles the products by weights of few bits take."""

import pytest

from adrenoc.kernels.families.n_bits.n_bits import (
    NBitsTile,
    NBitsWork,
    candidates,
    estimate_clocks,
)
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.target.target import load_target


def _work(tokens: int) -> NBitsWork:
    return NBitsWork(
        tokens=tokens, steps=256, word_inputs=8, out_blocks=512, storage_bytes=2, zeros=False
    )


@pytest.mark.parametrize("gpu", ["660", "750"])
@pytest.mark.parametrize("tokens", [4, 8])
def test_teams_that_fold_many_sums_are_small(gpu, tokens):
    """Each member more takes every sum through local memory once more: it would be waited for."""
    target = load_target(f"adreno:{gpu}")
    machine = Machine.from_performance(target.performance, target.cost)
    work = _work(tokens)

    def clocks(tile: NBitsTile) -> float:
        return estimate_clocks(work, tile, machine)

    tiles = list(candidates(work, target.limits, target.cost))
    best = min(tiles, key=clocks)
    widest = [tile for tile in tiles if tile.splits == 64]
    assert best.splits < 64
    assert clocks(best) < 0.99 * min(map(clocks, widest))
