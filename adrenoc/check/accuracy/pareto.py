"""Which tensors are worth float32: the error that is left against what it costs.

Errors of rounding are small and independent, so that their squares add up: what one part of the
network contributes is measured by rounding that part alone.  Groups are measured first; those
that matter are taken apart into their units.  What a part costs is seen by planning the model with
it pinned: a pin moves bytes, and it may break a fusion, which costs more.  Parts are then pinned in
the order of error saved for its cost, and each point on this way is a policy: of two, none
has both the larger error and the longer time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from adrenoc.check.accuracy.deviation import Deviation
from adrenoc.check.accuracy.effort import Effort
from adrenoc.check.accuracy.groups import Group, Unit
from adrenoc.check.accuracy.ideal import Stored
from adrenoc.check.accuracy.samples import Judge

_PRICED = 0.999
"""Parts that together make this share of the error are planned; others cost what their bytes do."""
_LEAST = 1e-3
"""What a pin costs at least: it may save time, where what reads the tensor is in float32, too."""
_SHARE_OF_PRICES = 0.5
"""Of the effort, by when the last part is priced."""
_SHARE_OF_FIRST = 0.7
"""Of the effort, by when a second point may begin to be pruned."""
_MATTERS = 0.95
"""Groups that together make this share of the error are looked into."""
_STEP = 0.8
"""Points of the list lie so far apart: each has at most this much of the error before it."""
_MOST_POINTS = 10
_HEADROOM = 0.9
"""Of the tolerance: what a point may reach by simulation, so that the device's noise fits, too."""
_SEARCHED_ON = 1
"""Sets of inputs that contributions are measured on; points are judged by all."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A group, or a unit of one, with the mean square that rounding it alone gives."""

    group: str
    units: tuple[Unit, ...]
    mean_square: float

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that pinning it pins."""
        return tuple(name for unit in self.units for name in unit.tensors)

    @property
    def bytes_more(self) -> int:
        """What a run moves more with it in float32."""
        return sum(unit.bytes_more for unit in self.units)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The model with some pins, before its kernels are built: its time and what it holds in half.

    `cost` is in microseconds, or, where the target gives no rates, in kilobytes that a run moves.
    """

    cost: float
    stored: Stored


Planner = Callable[[tuple[str, ...]], Planned]
"""From pinned tensors, by the graph's names, to the plan that keeps them in float32."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A policy on the way: what is pinned, the error that rounding the rest gives, and its cost."""

    units: tuple[Unit, ...]
    groups: tuple[str, ...]
    error: float
    cost: float = 0.0

    @property
    def tensors(self) -> tuple[str, ...]:
        """The pinned tensors, by the graph's names."""
        return tuple(name for unit in self.units for name in unit.tensors)


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The way from no tensor in float32 to all; `contributions` are the parts, worst first."""

    contributions: tuple[Part, ...]
    points: tuple[Candidate, ...]
    runs: int

    def first_within(self, tolerance: float) -> int | None:
        """The number of the first point whose error leaves some room within a tolerance."""
        for number, point in enumerate(self.points):
            if point.error <= _HEADROOM * tolerance:
                return number
        return None


class FrontierSearch:
    """Finds the frontier of one plan; begins no measurement once its effort is spent."""

    def __init__(
        self,
        judge: Judge,
        planned: Planner,
        groups: Sequence[Group],
        *,
        effort: Effort,
        note: Callable[[str], None],
    ) -> None:
        self._judge, self._groups = judge, groups
        self._planned = functools.cache(self._plan_counted)
        self._plan = planned
        self._effort, self._note = effort, note
        self._runs = 0

    def run(self) -> Frontier:
        """Measure the parts, order them, and walk from no pin to all of them."""
        parts = self._taken_apart(
            [self._measure_part(group.name, group.units) for group in self._groups]
        )
        costs = self._costs(parts)
        ordered = sorted(parts, key=lambda part: -part.mean_square / costs[part.tensors])
        points = _drop_dominated(self._points(ordered))
        self._walked = points
        worst = sorted(parts, key=lambda part: -part.mean_square)
        return Frontier(contributions=tuple(worst), points=tuple(points), runs=self._runs)

    def prune(self, point: Candidate, tolerance: float) -> Candidate:
        """The point without those units, the costliest first, that the tolerance does not need.

        What is left out makes the whole no slower: a pin between two others may save a conversion.
        """
        limit = _HEADROOM * tolerance
        units = sorted(point.units, key=lambda unit: -unit.bytes_more)
        for number, unit in enumerate(units):
            if self._effort.is_spent():
                self._effort.leave("pinned units to leave out", len(units) - number)
                break
            held = self._planned(point.tensors).stored
            if self._judge_rounding(held.together(unit.stored)).counted > limit:
                continue  # a plan costs more than a run
            rest = self._candidate(tuple(u for u in point.units if u is not unit), point.groups)
            if rest.error <= limit and not _is_slower(rest, point):
                point = rest
        return point

    def cheapest(self, tolerance: float) -> Candidate | None:
        """The candidate of least time that leaves some room within a tolerance, None without one.

        Of those on the way, the first two that do are pruned, the second if effort is left: which
        one ends as the cheaper depends on the fusions that their pins break.
        """
        within = [p for p in self._walked if p.error <= _HEADROOM * tolerance]
        if not within:
            return None
        pruned = [self.prune(within[0], tolerance)]
        if len(within) > 1 and self._effort.is_spent(_SHARE_OF_FIRST):
            self._effort.leave("policy beside the first to make cheaper", 1)
        elif len(within) > 1:
            pruned.append(self.prune(within[1], tolerance))
        return min((*pruned, *within), key=_cost_order)

    def _measure_part(self, group: str, units: tuple[Unit, ...]) -> Part:
        alone = Stored(
            tensors=frozenset().union(*(unit.stored.tensors for unit in units)),
            constants=frozenset().union(*(unit.stored.constants for unit in units)),
        )
        rms = self._judge_rounding(alone, _SEARCHED_ON).rms
        return Part(group=group, units=units, mean_square=rms**2)

    def _costs(self, parts: Sequence[Part]) -> dict[tuple[str, ...], float]:
        """What a run costs more with each part pinned alone."""
        found = {part.tensors: float(part.bytes_more) for part in parts}
        base = self._planned(()).cost
        total, seen = _sum(part.mean_square for part in parts), 0.0
        priced: dict[tuple[str, ...], float] = {}
        for number, part in enumerate(sorted(parts, key=lambda part: -part.mean_square)):
            if self._effort.is_spent(_SHARE_OF_PRICES):
                self._effort.leave("parts to price by their plans", len(parts) - number)
                break
            if math.isfinite(total) and seen > _PRICED * total:
                break
            seen += part.mean_square
            priced[part.tensors] = max(_LEAST, self._planned(part.tensors).cost - base)
        self._note(f"{len(priced)} of {len(parts)} parts priced by their plans")
        moved = sum(found[tensors] for tensors in priced)
        rate = sum(priced.values()) / moved if moved else 1.0
        return {**{tensors: count * rate for tensors, count in found.items()}, **priced}

    def _taken_apart(self, groups: list[Part]) -> list[Part]:
        """The groups, with those that matter as their units."""
        self._note(f"{len(groups)} groups measured")
        total = _sum(part.mean_square for part in groups)
        parts, seen = [], 0.0
        for part in sorted(groups, key=lambda part: -part.mean_square):
            matters = math.isinf(total) or seen < _MATTERS * total
            seen += part.mean_square
            if not matters or len(part.units) == 1:
                parts.append(part)
                continue
            for number, unit in enumerate(part.units):
                if self._effort.is_spent():
                    self._effort.leave("units to measure alone", len(part.units) - number)
                    break
                parts.append(self._measure_part(part.group, (unit,)))
            known = {id(unit) for other in parts for unit in other.units}
            rest = tuple(unit for unit in part.units if id(unit) not in known)
            if rest:
                parts.append(Part(group=part.group, units=rest, mean_square=part.mean_square))
        self._note(f"{len(parts)} parts measured")
        return parts

    def _points(self, ordered: Sequence[Part]) -> list[Candidate]:
        """Points of the way, from none to all; each has less error than the one before it."""
        left = _sum(part.mean_square for part in ordered)
        taken: list[Part] = []
        points = [self._point(taken)]
        last = left
        for number, part in enumerate(ordered):
            taken.append(part)
            left = _sum(other.mean_square for other in ordered[number + 1 :])
            done = number + 1 == len(ordered)
            if not done and not left < _STEP**2 * last:
                continue
            if not done and (len(points) > _MOST_POINTS or self._effort.is_spent()):
                continue
            point = self._point(taken)
            if point.error < points[-1].error:
                points.append(point)
                last = left
        return points

    def _point(self, taken: Sequence[Part]) -> Candidate:
        units = tuple(unit for part in taken for unit in part.units)
        return self._candidate(units, tuple(dict.fromkeys(part.group for part in taken)))

    def _candidate(self, units: tuple[Unit, ...], groups: tuple[str, ...]) -> Candidate:
        """With the error of rounding all that the plan with these pins holds in half."""
        planned = self._planned(tuple(name for unit in units for name in unit.tensors))
        error = self._judge_rounding(planned.stored).counted
        return Candidate(units=units, groups=groups, error=error, cost=planned.cost)

    def _plan_counted(self, tensors: tuple[str, ...]) -> Planned:
        self._effort.plan()
        return self._plan(tensors)

    def _judge_rounding(self, stored: Stored, samples: int | None = None) -> Deviation:
        self._runs += 1
        self._effort.run(self._judge.samples if samples is None else samples)
        return self._judge.judge_rounding(stored, samples)


def _is_slower(one: Candidate, other: Candidate) -> bool:
    return one.cost > other.cost


def _cost_order(point: Candidate) -> tuple[float, int]:
    bytes_more = sum(unit.bytes_more for unit in point.units)
    return (point.cost, bytes_more)


def _drop_dominated(points: Sequence[Candidate]) -> list[Candidate]:
    """The points, the first one and those that no later one makes useless: it is no slower."""
    kept: list[Candidate] = []
    for number, point in enumerate(points):
        later = points[number + 1 :]
        if number and any(not _is_slower(other, point) for other in later):
            continue
        kept.append(point)
    return kept


def _sum(squares: Iterable[float]) -> float:
    values = list(squares)
    return math.inf if any(map(math.isinf, values)) else math.fsum(values)
