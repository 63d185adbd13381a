"""What `scripts/bench_kernels --why` says of kernels that keep few threads in flight."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fitting" / "more_threads.py"


@pytest.fixture(scope="module")
def more() -> ModuleType:
    spec = importlib.util.spec_from_file_location("more_threads", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Tile:
    pixels: int
    out_blocks: int
    unroll: int = 1


def fewer(more: ModuleType, *others: tuple[int, int, float]) -> Any:
    made = [
        more.Other(actions=f"n={n}", threads_in_flight=threads, scratch_bytes=scratch, est_ms=ms)
        for n, (threads, scratch, ms) in enumerate(others)
    ]
    return more.Fewer(goal=512, because="latency is the bound", est_ms=0.1, others=tuple(made))


def test_the_best_that_keeps_enough_is_named(more: ModuleType) -> None:
    found = fewer(more, (256, 0, 0.08), (512, 0, 0.13), (768, 0, 0.12))
    assert not found.is_mistaken
    assert str(found).endswith("the best that keeps 512: 0.1200 ms with 768 (n=2)")


def test_a_faster_one_is_a_mistake_of_the_cost_model(more: ModuleType) -> None:
    found = fewer(more, (512, 0, 0.09))
    assert found.is_mistaken
    assert "FASTER" in str(found)
    assert not fewer(more, (512, 0, 0.0999)).is_mistaken, "as fast within a hundredth"


def test_what_spills_does_not_count(more: ModuleType) -> None:
    found = fewer(more, (512, 64, 0.01))
    assert found.best is None
    assert str(found) == "latency is the bound; of 1 others none keeps 512"


def test_tiles_that_hold_less_are_tried_one_of_each(more: ModuleType) -> None:
    tiles = [Tile(4, 4), Tile(4, 2), Tile(2, 4), Tile(2, 2, unroll=2), Tile(2, 2)]
    chosen = Tile(4, 2, unroll=2)
    assert more.held(Tile(4, 2)) == more.held(Tile(2, 4)) < more.held(chosen)
    assert more._leaner(chosen, tiles) == [Tile(4, 2), Tile(2, 2, unroll=2), Tile(2, 2)]
