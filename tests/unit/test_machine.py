"""How many waves of a kernel a GPU keeps beside each other."""

import math
from dataclasses import replace

import pytest

from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.target.target import load_target


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
def test_threads_get_whole_registers(gpu: str, registers: float, waves: int) -> None:
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
def test_work_groups_share_local_memory(threads: int, shared_bytes: int, waves: int) -> None:
    assert _machine("a660").waves_of_groups(threads, shared_bytes, 32768) == waves


def test_work_groups_of_half_waves_share_local_memory() -> None:
    machine = _machine("a660")
    assert machine.waves_of_groups(64, 16384, 32768, wave=64) == 4
    assert machine.waves_of_groups(256, 16384, 32768, wave=64) == 8


def test_a_gpu_that_launches_single_waves() -> None:
    machine = _machine("a610")
    assert machine.waves_together == 1
    assert machine.waves_of_groups(128, 16384, 32768) == 2


@pytest.mark.parametrize(("host_us", "launch_us"), [(None, 2.0), (1.0, 2.0), (5.0, 5.0)])
def test_a_launch_takes_what_the_slower_of_both_takes(
    host_us: float | None, launch_us: float
) -> None:
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
def test_local_memory_by_width(sure: float, vector_bytes: int, clocks: float) -> None:
    machine = _with_pipes(local_read_clocks=8.0, local_bytes_per_clock=64.0, local_by_width=sure)
    assert _clocks(machine, 0.0, vector_bytes) == pytest.approx(clocks)


def test_what_another_pipe_hides_costs_nothing() -> None:
    machine = _with_pipes(local_bytes_per_clock=64.0, local_by_width=0.5)
    assert _clocks(machine, 1000.0, 16) == 1100.0


def test_where_nobody_knows_the_least_estimate_has_the_least_regret() -> None:
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
