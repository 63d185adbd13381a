"""Estimates of time, and what they are fitted by."""

import itertools
import json
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitting import loop_trips as trips
from fitting.board import print_board

from adrenoc.kernels.builder import pick_work_group
from adrenoc.kernels.families.shared import machine
from adrenoc.kernels.families.shared.machine import Machine, Scored, TileTable, TileTables
from adrenoc.target.gpu import Performance, Roofline, Work
from adrenoc.target.target import load_target
from tests.commands import run_program

GPU = Performance(
    fp32_fma_lanes=1000, fp16_rate=2.0, clock_mhz=500, texels_per_clock=10.0, dram_gb_per_s=40.0
)


def test_rates_follow_from_the_figures():
    roofline = Roofline.from_performance(GPU)
    assert roofline.flops_per_us == 1e6  # 1000 lanes * 2 * 500 MHz = 1 TFLOPS
    assert roofline.half_flops_per_us == 2e6
    assert roofline.texels_per_us == 5e3
    assert roofline.bytes_per_us == 40e3
    assert roofline.missing == ()


@pytest.mark.parametrize(
    ("work", "bound", "time_us"),
    [
        (Work(flops=5_000_000, texels=10_000, bytes_read=40_000), "alu", 5.0),
        (Work(flops=5_000_000, half=True, texels=15_000), "texture", 3.0),
        (Work(flops=1000, texels=10, bytes_read=60_000, bytes_written=20_000), "dram", 2.0),
    ],
)
def test_busiest_pipe_bounds_the_time(work, bound, time_us):
    estimate = Roofline.from_performance(GPU).estimate(work)
    assert estimate.bound == bound
    assert estimate.time_us == pytest.approx(time_us)


def test_unknown_rates_leave_their_bound_out():
    roofline = Roofline.from_performance(Performance(dram_gb_per_s=1.0, fp32_fma_lanes=1000))
    assert roofline.missing == (
        "performance.fp16_rate",
        "performance.clock_mhz",
        "performance.texels_per_clock",
    )
    estimate = roofline.estimate(Work(flops=10**12, texels=10**9, bytes_read=2000))
    assert (estimate.bound, estimate.time_us) == ("dram", 2.0)
    assert estimate.alu_us is None
    assert estimate.texture_us is None


def test_gpu_without_figures_has_no_time():
    estimate = Roofline.from_performance(load_target("adreno").performance).estimate(Work(flops=10))
    assert estimate.time_us is None
    assert estimate.bound == ""


def test_candidates_are_searched_once_and_not_before_somebody_asks():
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


def test_without_candidates_nothing_is_least():
    assert Scored(lambda: (), float).least == math.inf


def _machine(gpu: str) -> Machine:
    target = load_target(f"adreno:{gpu}")
    return Machine.from_performance(target.performance, target.cost)


@pytest.mark.parametrize(
    ("gpu", "registers", "waves"),
    [
        ("a660", 8, 8),
        ("a660", 10, 6),
        ("a660", 10.5, 4),  # a thread gets eleven
        ("a660", 16, 4),
        ("a660", 16.25, 2),
        ("a660", 40, 1),
        ("a750", 9, 10),
        ("a750", 9.5, 8),
        ("a750", 24, 4),
    ],
)
def test_threads_get_whole_registers(gpu, registers, waves):
    assert _machine(gpu).resident_waves(registers) == waves


@pytest.mark.parametrize(
    ("threads", "shared_bytes", "waves"),
    [
        (128, 8192, 8),  # a work-group of one wave counts as two
        (256, 8192, 8),
        (257, 8192, 16),
        (256, 8193, 6),  # memory is given in pieces of a kilobyte
        (256, 16384, 4),
        (256, 0, 16),
        (128, 40000, 0),
    ],
)
def test_work_groups_share_local_memory(threads, shared_bytes, waves):
    assert _machine("a660").waves_of_groups(threads, shared_bytes, 32768) == waves


def test_work_groups_of_half_waves_share_local_memory():
    machine = _machine("a660")
    assert machine.waves_of_groups(64, 16384, 32768, wave=64) == 4
    assert machine.waves_of_groups(256, 16384, 32768, wave=64) == 8


def test_a_gpu_that_launches_single_waves():
    machine = _machine("a610")
    assert machine.waves_together == 1
    assert machine.waves_of_groups(128, 16384, 32768) == 2


@pytest.mark.parametrize(("host_us", "launch_us"), [(None, 2.0), (1.0, 2.0), (5.0, 5.0)])
def test_a_launch_takes_what_the_slower_of_both_takes(host_us, launch_us):
    target = load_target("adreno:750")
    performance = replace(target.performance, launch_us=2.0, host_launch_us=host_us, clock_mhz=100)
    machine = Machine.from_performance(performance, target.cost)
    assert (machine.launch_clocks, machine.gap_clocks) == (100 * launch_us, 200)


def _with_pipes(**values: float) -> Machine:
    target = load_target("adreno:750")
    pipes = replace(target.cost.pipes, **values)
    return Machine.from_performance(target.performance, replace(target.cost, pipes=pipes))


def _clocks(machine: Machine, busiest: float, vector_bytes: int) -> float:
    return machine.hedge(busiest, 10.0, vector_bytes, lambda busy: busy + 100.0)


@pytest.mark.parametrize(
    ("sure", "vector_bytes", "clocks"),
    [
        (1.0, 16, 420.0),  # 10 reads of 128 threads at 64 bytes a clock
        (1.0, 8, 260.0),
        (1.0, 2, 180.0),  # no read is faster than the narrowest
        (1e-9, 16, 180.0),
        (0.5, 16, math.sqrt(180.0 * 420.0)),
        (7.0, 16, 420.0),
    ],
)
def test_local_memory_by_width(sure, vector_bytes, clocks):
    machine = _with_pipes(local_read_clocks=8.0, local_bytes_per_clock=64.0, local_by_width=sure)
    assert _clocks(machine, 0.0, vector_bytes) == pytest.approx(clocks)


def test_what_another_pipe_hides_costs_nothing():
    machine = _with_pipes(local_bytes_per_clock=64.0, local_by_width=0.5)
    assert _clocks(machine, 1000.0, 16) == 1100.0


def test_where_nobody_knows_the_least_estimate_has_the_least_regret():
    """Reads of one schedule are few and wide, those of another one many and narrow."""
    machine, last = _with_pipes(local_bytes_per_clock=64.0, local_by_width=0.5), 20.0
    tiles = [(4.0, 16), (6.0, 8), (9.0, 4), (2.0, 16), (3.0, 8)]

    def clocks(of: Machine, tile: tuple[float, int]) -> float:
        return of.hedge(1.0, *tile, lambda busy: busy + last)

    def regret(tile: tuple[float, int]) -> float:
        known = {"local_bytes_per_clock": 64.0}
        sure = [_with_pipes(**known, local_by_width=value) for value in (1e-12, 1.0)]
        return math.prod(clocks(of, tile) / min(clocks(of, t) for t in tiles) for of in sure)

    assert min(tiles, key=lambda tile: clocks(machine, tile)) == min(tiles, key=regret)


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


def _estimate(tile):
    long = machine.choose(tile.rolled, 0.3, 0.1) * math.prod(tile.work_group)
    return machine.larger(long / 3, machine.look_up(tile.pixels, math.sqrt))


def test_a_table_makes_the_tiles_that_its_columns_say():
    table = _table(7)
    assert table[3] == _Tile(pixels=3, work_group=(4, 1, 6), rolled=True)
    assert list(table) == [table[place] for place in range(7)] == table[:]
    assert len({*table}) == 7  # of Python's own numbers, as a tuning log stores them
    assert all(type(n) is int for tile in table for n in (tile.pixels, *tile.work_group))
    assert all(type(tile.rolled) is bool for tile in table)
    with pytest.raises(IndexError):
        table[7]


def test_a_table_keeps_what_suits_in_order():
    kept = _table(9).where(lambda tiles: tiles.pixels > 2)
    assert [tile.work_group[0] for tile in kept] == [4, 5, 9]
    assert not list(_table(9).where(lambda tiles: tiles.pixels > 9))
    assert list(_table(2).where(lambda _: True)) == list(_table(2))


def test_estimates_of_tables_have_the_bits_of_those_of_tiles():
    tables = TileTables(_table(40), _table(3, route="texture"), _table(0))
    assert [tile.route for tile in tables[38:]] == ["local"] * 2 + ["texture"] * 3
    together = tables.estimate(_estimate).tolist()
    assert together == [_estimate(tile) for tile in tables]
    scored = Scored(lambda: tables, _estimate)
    assert scored.least == min(together)
    assert list(scored.rank()) == sorted(tables, key=_estimate)
    assert len(scored) == 43


@pytest.mark.parametrize("seed", range(20))
def test_words_of_estimates_mean_the_same_of_numbers_and_arrays(seed):
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


def test_actions_that_are_no_numbers_are_told_apart_by_what_they_are():
    routes = np.array(["local", "texture", "local"], dtype=object)
    assert machine.is_one(routes, "local").tolist() == [True, False, True]
    assert machine.is_one("local", "local") is True


EXTENTS = [(1, 1, 1), (7, 1, 1), (100, 1, 1), (1, 1, 130), (9, 13, 2), (16, 16, 16), (1, 3, 40)]


def test_whatever_is_banned_another_is_found():
    for extents in EXTENTS:
        limits = load_target("adreno:750").limits
        seen = []
        for _ in range(12):
            group = pick_work_group(extents, limits)
            assert math.prod(group) <= limits.max_work_group_size
            if group == (1, 1, 1):
                break
            assert group not in seen
            seen.append(group)
            limits = replace(limits, banned_work_groups=tuple(seen))


def test_no_side_is_longer_than_its_limit():
    for extents, sides in itertools.product(EXTENTS, ((1024, 1024, 64), (16, 4, 1), (7, 64, 3))):
        limits = replace(load_target("adreno:750").limits, max_work_item_sizes=sides)
        group = pick_work_group(extents, limits)
        assert all(side <= most for side, most in zip(group, sides, strict=True))


def test_few_threads():
    for extents, most in itertools.product(EXTENTS, (16, 32, 64)):
        limits = replace(load_target("adreno:750").limits, max_work_group_size=most)
        assert math.prod(pick_work_group(extents, limits)) <= most


def estimate(model: str, gpu: str, *kernels: tuple[int, float, float]) -> dict[str, object]:
    """An estimate of kernels: launches, ms by width, ms if width costs nothing."""
    return {
        "model": model,
        "gpu": gpu,
        "preset": "fp16",
        "launch_us": 5.0,
        "counts": [count for count, _, _ in kernels],
        "kernels": [{"est_ms": wide, "narrow_ms": narrow} for _, wide, narrow in kernels],
    }


def test_estimates_stand_beside_published_times(tmp_path, capsys):
    file = tmp_path / "estimates.json"
    rows = [
        estimate("resnet18", "a830", (2, 0.5, 0.25), (18, 0.1, 0.1)),
        estimate("resnet18", "a750", (1, 4.0, 4.0)),
        estimate("vit_b16", "a830", (1, 1.0, 1.0)),
    ]
    file.write_text(json.dumps(rows))
    print_board([file])
    said = capsys.readouterr().out
    table = [line for line in said.splitlines() if line.startswith("| ")]
    assert len({line.split(" | ")[0] for line in table[1:]}) == 21
    width = table[0].count(" | ")
    assert all(line.count(" |") == width + 1 for line in table)
    start = "| resnet18 | 3.465 | 3.364 to 4.077 | 23"
    # 2 * .5 + 18 * .1 and 20 launches of 5 us, over 3.465 measured.
    assert f"{start} | 830 | fp16 | 20 | 2.90 | 2.40 | 0.84 / 0.69 |" in table
    assert f"{start} | 750 | fp16 | 1 | 4.00 | 4.00 |  |" in table
    # What ran on the CPU for the most part is no yardstick.
    assert "fp16, by width: 0.84 of LiteRT's, geometric mean of 1" in said


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fitting" / "published_times.py"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return run_program([sys.executable, str(SCRIPT)], check=True).stdout.splitlines()


def _fitted(lines: list[str], name: str) -> tuple[float, float, float]:
    """The best figure and its range."""
    words = next(line.split() for line in lines if line.split()[:1] == [name])
    return float(words[1]), float(words[3]), float(words[5])


def test_the_target_of_the_830_states_what_was_fitted(lines):
    performance = load_target("adreno:830").performance
    assert performance.launch_us == _fitted(lines, "launch_us")[0]
    reads, least, most = _fitted(lines, "reads")
    assert performance.texels_per_clock == reads * 12
    assert least <= reads <= most < 8
    assert performance.dram_gb_per_s is not None
    assert performance.dram_gb_per_s <= _fitted(lines, "gb_per_s")[1]


def test_no_network_is_told_worse_than_the_page_says(lines):
    page = (SCRIPT.parents[2] / "docs" / "measurements" / "adreno-830.md").read_text()
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == 10
    assert all(row in page for row in rows)


def _instruction(kind: str, op: str = "", arguments: str = "", repeats: int = 1) -> dict[str, Any]:
    return {"c": kind, "op": op, "args": arguments, "n": repeats}


def test_machine_work_is_kept_by_the_loops_around_it():
    body = [
        _instruction("tex"),
        _instruction("mad16", repeats=4),
        _instruction("lds", "stl.u32", "l[r0.x], r1.x, 4"),
        _instruction("lds", "ldl.u32", "r1.x, l[r0.x], 4"),
        _instruction("mad32"),
    ]
    found = trips.machine_work(body, [{"a": 0, "b": 3}, {"a": 1, "b": 1}])
    assert found == {
        (0,): trips.ThreadWork(texels=1, local_bytes=16),
        (0, 1): trips.ThreadWork(multiplies=4),
        (): trips.ThreadWork(multiplies=1),
    }


def test_loops_that_were_merged_run_the_product_of_their_extents():
    wanted = trips.ThreadWork(multiplies=3 * 16 * 64, texels=3 * 16 * 8)
    machine = {(0,): trips.ThreadWork(multiplies=64, texels=8)}
    assert trips.find_trips(wanted, [3, 16], machine) == trips.Trips(counts=(48,), off=0.0)


def test_loops_that_were_unrolled_do_not_count():
    wanted = trips.ThreadWork(multiplies=3 * 16 * 64)
    machine = {(0,): trips.ThreadWork(multiplies=3 * 64)}
    assert trips.find_trips(wanted, [3, 16], machine).counts == (16,)


def test_texels_and_local_memory_decide_where_nothing_is_multiplied():
    wanted = trips.ThreadWork(multiplies=5 * 4, texels=7, local_bytes=2 * 8)
    machine = {
        (0,): trips.ThreadWork(texels=1),
        (1,): trips.ThreadWork(local_bytes=8),
        (2,): trips.ThreadWork(multiplies=4),
    }
    assert trips.find_trips(wanted, [2, 5, 7], machine).counts == (7, 2, 5)


def test_code_that_fits_nowhere_is_told_by_its_distance():
    wanted = trips.ThreadWork(multiplies=100)
    found = trips.find_trips(wanted, [2], {(0,): trips.ThreadWork(multiplies=25)})
    assert found == trips.Trips(counts=(2,), off=0.5)


def test_code_without_loops_needs_no_trips():
    found = trips.find_trips(
        trips.ThreadWork(multiplies=9), [3], {(): trips.ThreadWork(multiplies=8)}
    )
    assert found.counts == ()
    assert found.off == pytest.approx(1 / 9)


def test_loops_of_the_tir_in_their_order_come_before_any_search():
    """Of five loops a search takes too long; four of them and one turn are as much work here."""
    stated = (9, 2, 3, 2, 4)
    machine = {
        (0, 1, 2): trips.ThreadWork(multiplies=64, texels=4),
        (0, 3): trips.ThreadWork(multiplies=72, local_bytes=16),
        (0, 4): trips.ThreadWork(multiplies=96),
    }
    wanted = trips.ThreadWork(
        multiplies=9 * (6 * 64 + 2 * 72 + 4 * 96), texels=9 * 6 * 4, local_bytes=9 * 2 * 16
    )
    found = trips.find_trips(wanted, [9, 2, 7, 3, 2, 4], machine)
    assert found == trips.Trips(counts=stated, off=0.0)
