"""What the cost model decides, decided by a test: joined kernels, and schedules."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.schedule import TunedSchedules
from adrenoc.passes.fuse import split_winograd
from adrenoc.passes.fuse.fuse_depthwise import PairForm
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Performance


def set_joins(patch: pytest.MonkeyPatch, **values: float) -> None:
    """Have everything compiled with other values of `[joins]`."""
    known = Machine.from_performance

    def change(*facts: object) -> Machine:
        machine = known(*facts)
        cost = machine.cost
        return replace(machine, cost=replace(cost, joins=replace(cost.joins, **values)))

    patch.setattr(Machine, "from_performance", change)


def force_winograd(patch: pytest.MonkeyPatch) -> None:
    """Have Winograd's algorithm in three kernels, which no model would choose for small images."""
    patch.setattr(split_winograd, "LAUNCHES", -1e9)
    known = Machine.from_performance
    patch.setattr(
        Machine, "from_performance", lambda *of: replace(known(*of), winograd_least_pixels=1)
    )
    set_joins(patch, winograd_least_launches=0)


def slow_host(patch: pytest.MonkeyPatch, launch_us: float) -> None:
    """Have everything compiled for a host that takes so long for a launch."""
    known = Machine.from_performance

    def change(performance: Performance, cost: Cost) -> Machine:
        return known(replace(performance, host_launch_us=launch_us), cost)

    patch.setattr(Machine, "from_performance", change)


def estimate_pairs(
    patch: pytest.MonkeyPatch, changes: Mapping[str, Callable[[float], float]]
) -> None:
    """Change the least estimate of pairs of convolutions, by the operator that they become."""
    known = PairForm.clocks

    def clocks(form: PairForm, *of) -> float:
        least = known(form, *of)
        return changes[form.op](least) if form.op in changes else least

    patch.setattr(PairForm, "clocks", clocks)


def choose_by_chance(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Give each kernel one of the schedules that its family offers, whatever they cost."""
    choose = TunedSchedules.choose

    def draw(schedules: TunedSchedules, family: str, node: str, *of):
        choose(schedules, family, node, *of)
        choice = schedules.of_node[node]
        drawn = random.Random(f"{seed}/{choice.digest}").choice(choice.candidates)
        schedules.chosen[choice.digest] = schedules.of_node[node] = replace(choice, tile=drawn)
        return drawn

    patch.setattr(TunedSchedules, "choose", draw)
