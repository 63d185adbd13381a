"""How many threads share a part of a cache: no more than a cache that fills gives work."""

import pytest

from adrenoc.kernels.families.cache.operator import (
    CachedWork,
    count_splits,
    estimate_step_clocks,
    step_candidates,
)
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.target.target import load_target

ROWS, QUARTER = 4096, 1024
HEADS = {"qwen3": (8, 2, 128), "llama-3.2-1b": (8, 4, 64), "smollm2-135m": (3, 3, 64)}
"""Heads of keys, query heads for each, numbers of a head."""


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("gpu", ["adreno:660", "adreno:750"])
def test_no_thread_is_idle_in_a_cache_that_is_filled_by_a_quarter(gpu, heads):
    """With 256 threads half of them had no row: 1,000 tokens took twice as long on a 750."""
    kept, group, head = HEADS[heads]
    target = load_target(gpu)
    machine = Machine.from_performance(target.performance, target.cost)
    splits = count_splits(kept, ROWS, machine)
    work = CachedWork(
        kept=kept, group=group, blocks=head // 4, rows=ROWS, splits=splits, element_bytes=2.0
    )
    tile = min(
        step_candidates(work, target.limits, machine.cost),
        key=lambda tile: estimate_step_clocks(work, tile, machine, target.limits),
    )
    assert tile.threads <= QUARTER // splits


@pytest.mark.parametrize("gpu", ["adreno:750", "adreno:830"])
def test_queries_of_wide_heads_stay_in_registers(gpu):
    """Four heads of 256, as Gemma 3 has them, took four times as long, for they were spilled."""
    target = load_target(gpu)
    machine = Machine.from_performance(target.performance, target.cost)
    work = CachedWork(
        kept=1,
        group=4,
        blocks=64,
        rows=ROWS,
        splits=count_splits(1, ROWS, machine),
        element_bytes=2.0,
    )
    tile = min(
        step_candidates(work, target.limits, machine.cost),
        key=lambda tile: estimate_step_clocks(work, tile, machine, target.limits),
    )
    assert 4 * 64 // tile.lanes <= machine.registers / 2
