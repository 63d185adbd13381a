"""The search for policies, on contributions that are known: no device, no kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from adrenoc.check.accuracy.deviation import Deviation
from adrenoc.check.accuracy.groups import Group, Unit
from adrenoc.check.accuracy.ideal import Stored
from adrenoc.check.accuracy.pareto import Frontier, FrontierSearch


class _Judge:
    """Independent errors of known size, one a tensor."""

    def __init__(self, errors: Mapping[str, float]) -> None:
        self._errors, self.runs = errors, 0

    def rounded(self, stored: Stored, samples: int | None = None) -> Deviation:
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
    whole = Stored(tensors=frozenset(errors), constants=frozenset())
    deadline = more.get("deadline", time.perf_counter() + 60)
    judge: Any = _Judge(errors)
    search = FrontierSearch(judge, whole, groups, deadline=deadline, note=lambda _: None)
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
    chosen = search.pruned(frontier.points[number], 0.025)
    assert set(chosen.tensors) == {"h1", "l2"}
    assert chosen.error <= 0.9 * 0.025


def test_what_overflows_is_taken_first() -> None:
    errors = {**ERRORS, "l3": math.inf}
    _, frontier = _search(errors, COSTS)
    assert math.isinf(frontier.points[0].error)
    assert all("l3" in point.tensors for point in frontier.points[1:])


def test_out_of_time_it_still_ends_with_everything() -> None:
    _, frontier = _search(ERRORS, COSTS, deadline=0.0)
    assert frontier.points[-1].error == 0.0
    assert len(frontier.points[-1].tensors) == 5
