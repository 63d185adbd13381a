"""The search for policies, on contributions that are known: no device, no kernels."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from typing import Any

import pytest

from adrenoc.check.accuracy.deviation import Deviation
from adrenoc.check.accuracy.effort import NODES, Effort
from adrenoc.check.accuracy.groups import Group, Unit
from adrenoc.check.accuracy.ideal import Stored
from adrenoc.check.accuracy.pareto import Frontier, FrontierSearch, Planned


class _Judge:
    """Independent errors of known size, one a tensor."""

    def __init__(self, errors: Mapping[str, float]) -> None:
        self._errors, self.runs, self.samples = errors, 0, 1

    def judge_rounding(self, stored: Stored, samples: int | None = None) -> Deviation:
        self.runs += 1
        rms = math.sqrt(sum(self._errors[name] ** 2 for name in stored.tensors))
        return Deviation(largest=4 * rms, rms=rms)


def _unit(name: str, bytes_more: int) -> Unit:
    stored = Stored(tensors=frozenset({name}), constants=frozenset())
    return Unit(tensors=(name,), stored=stored, bytes_more=bytes_more)


def _search(errors: dict[str, float], costs: dict[str, int], **more: Any) -> tuple[Any, Frontier]:
    units = {name: _unit(name, costs[name]) for name in errors}
    groups = [
        Group(name="head", units=tuple(u for n, u in units.items() if n[0] == "h")),
        Group(name="layers", units=tuple(u for n, u in units.items() if n[0] == "l")),
    ]
    times: dict[str, float] | None = more.get("times")

    def planned(pins: tuple[str, ...]) -> Planned:
        cost = 100.0 + sum((costs if times is None else times)[name] for name in pins)
        stored = Stored(tensors=frozenset(errors) - set(pins), constants=frozenset())
        return Planned(cost=cost, stored=stored)

    effort = more.get("effort") or Effort(nodes=len(errors))
    judge: Any = _Judge(errors)
    search = FrontierSearch(judge, planned, groups, effort=effort, note=lambda _: None)
    return search, search.run()


ERRORS = {"h1": 1e-2, "h2": 1e-5, "l1": 5e-3, "l2": 5e-3, "l3": 1e-5}
COSTS = {"h1": 100, "h2": 1, "l1": 10_000, "l2": 100, "l3": 1_000_000}


def test_points_fall_in_error_and_end_with_everything() -> None:
    _, frontier = _search(ERRORS, COSTS)
    errors = [point.error for point in frontier.points]
    assert errors == sorted(errors, reverse=True) and errors[-1] == 0.0
    assert frontier.points[0].tensors == () and len(frontier.points[-1].tensors) == 5
    assert frontier.contributions[0].units[0].tensors == ("h1",)


def test_what_saves_most_for_its_cost_comes_first() -> None:
    _, frontier = _search(ERRORS, COSTS)
    assert set(frontier.points[1].tensors) == {"h1"}
    two = next(point for point in frontier.points if "l2" in point.tensors)
    assert "l1" not in two.tensors


def test_a_tolerance_is_met_with_room_and_without_what_it_does_not_need() -> None:
    search, frontier = _search(ERRORS, COSTS)
    number = frontier.first_within(0.025)
    assert number is not None
    chosen = search.prune(frontier.points[number], 0.025)
    assert set(chosen.tensors) == {"h1", "l2"}
    assert chosen.error <= 0.9 * 0.025


def test_what_overflows_is_taken_first() -> None:
    errors = {**ERRORS, "l3": math.inf}
    _, frontier = _search(errors, COSTS)
    assert math.isinf(frontier.points[0].error)
    assert all("l3" in point.tensors for point in frontier.points[1:])


def test_out_of_effort_it_still_ends_with_everything_and_says_what_is_left() -> None:
    effort = Effort(nodes=5, share=0.0)
    times = dict.fromkeys(ERRORS, 1.0)
    search, frontier = _search(ERRORS, COSTS, effort=effort, times=times)
    assert frontier.points[-1].error == 0.0
    assert len(frontier.points[-1].tensors) == 5
    assert set(effort.left) == {"2 parts to price by their plans", "5 units to measure alone"}
    assert search.cheapest(0.025) is not None
    assert "5 pinned units to leave out" in effort.left


def test_a_search_ends_by_its_work_and_not_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy for a day between two measurements changes nothing."""
    found = []
    for step_s in (0.0, 86_400.0):
        clock = itertools.count(0.0, step_s) if step_s else itertools.repeat(0.0)
        for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
            monkeypatch.setattr(time, name, lambda clock=clock: next(clock))
        effort = Effort(nodes=5, share=5 * 12 / NODES)
        search, frontier = _search(ERRORS, COSTS, effort=effort, times=dict.fromkeys(ERRORS, 1.0))
        found.append((frontier, search.cheapest(0.025), effort.plans, effort.runs, effort.left))
    assert found[0] == found[1] and found[0][-1]


def test_a_pin_that_breaks_a_fusion_costs_what_its_plan_does() -> None:
    """`l2` moves few bytes, and the plan with it is fifty times as slow for it as with `l1`."""
    times = {"h1": 0.1, "h2": 0.1, "l1": 1.0, "l2": 50.0, "l3": 9.0}
    search, frontier = _search(ERRORS, COSTS, times=times)
    one = next(point for point in frontier.points if "l1" in point.tensors)
    assert "l2" not in one.tensors
    found = search.cheapest(0.025)
    assert found is not None
    assert set(found.tensors) == {"h1", "l1"} and found.cost == 101.1


def test_no_point_is_slower_and_less_exact_than_another() -> None:
    """Everything in float32 needs no conversions: it is faster than all but one of them."""
    times = {"h1": 5.0, "h2": -30.0, "l1": 40.0, "l2": 20.0, "l3": -30.0}
    _, frontier = _search(ERRORS, COSTS, times=times)
    known = [(point.cost, point.error) for point in frontier.points[1:]]
    assert len(known) >= 1
    for number, (time_us, error) in enumerate(known):
        others = known[:number] + known[number + 1 :]
        assert not any(t <= time_us and e <= error for t, e in others)
