"""How many waves of a kernel a GPU keeps beside each other."""

from __future__ import annotations

import pytest

from adrenoc.families.shared.machine import Machine
from adrenoc.target.target import load_target


def _machine(gpu: str) -> Machine:
    target = load_target(f"adreno:{gpu}")
    return Machine.of(target.performance, target.cost)


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
