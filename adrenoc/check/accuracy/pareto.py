"""Which tensors are worth float32: the error that is left against what it costs.

Errors of rounding are small and independent, so that their squares add up: what one part of the
network contributes is measured by rounding that part alone.  Groups are measured first; those
that matter are taken apart into their units.  Parts are then pinned in the order of error saved
for each byte moved more, and each point on this way is a policy.  All of it is done by
`Judge.rounded`, which compiles nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from adrenoc.check.accuracy.groups import Group, Unit
from adrenoc.check.accuracy.ideal import Stored
from adrenoc.check.accuracy.samples import Judge

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
    def bytes_more(self) -> int:
        """What a run moves more with it in float32."""
        return sum(unit.bytes_more for unit in self.units)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A policy on the way: what is pinned, the error that rounding the rest gives."""

    units: tuple[Unit, ...]
    groups: tuple[str, ...]
    error: float

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
    """Finds the frontier of one plan; begins no measurement after the deadline."""

    def __init__(
        self,
        judge: Judge,
        stored: Stored,
        groups: Sequence[Group],
        *,
        deadline: float,
        note: Callable[[str], None],
    ) -> None:
        self._judge, self._stored, self._groups = judge, stored, groups
        self._deadline, self._note = deadline, note
        self._runs = 0

    def run(self) -> Frontier:
        """Measure the parts, order them, and walk."""
        parts = self._taken_apart(
            [self._measured(group.name, group.units) for group in self._groups]
        )
        ordered = sorted(parts, key=lambda part: -part.mean_square / part.bytes_more)
        points = self._points(ordered)
        worst = sorted(parts, key=lambda part: -part.mean_square)
        return Frontier(contributions=tuple(worst), points=tuple(points), runs=self._runs)

    def pruned(self, point: Candidate, tolerance: float) -> Candidate:
        """The point without those units, the costliest first, that the tolerance does not need."""
        limit = _HEADROOM * tolerance
        for unit in sorted(point.units, key=lambda unit: -unit.bytes_more):
            if self._out_of_time():
                break
            rest = tuple(u for u in point.units if u is not unit)
            error = self._error_without(rest)
            if error <= limit:
                point = Candidate(units=rest, groups=point.groups, error=error)
        return point

    def _measured(self, group: str, units: tuple[Unit, ...]) -> Part:
        alone = Stored(
            tensors=frozenset().union(*(unit.stored.tensors for unit in units)),
            constants=frozenset().union(*(unit.stored.constants for unit in units)),
        )
        self._runs += 1
        rms = self._judge.rounded(alone, _SEARCHED_ON).rms
        return Part(group=group, units=units, mean_square=rms**2)

    def _taken_apart(self, groups: list[Part]) -> list[Part]:
        """The groups, with those that matter as their units."""
        self._note(f"{len(groups)} groups measured")
        total = _sum(part.mean_square for part in groups)
        parts, seen = [], 0.0
        for part in sorted(groups, key=lambda part: -part.mean_square):
            matters = math.isinf(total) or seen < _MATTERS * total
            seen += part.mean_square
            if not matters or len(part.units) == 1 or self._out_of_time():
                parts.append(part)
                continue
            for unit in part.units:
                if self._out_of_time():
                    break
                parts.append(self._measured(part.group, (unit,)))
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
            if not done and (len(points) > _MOST_POINTS or self._out_of_time()):
                continue
            point = self._point(taken)
            if point.error < points[-1].error:
                points.append(point)
                last = left
        return points

    def _point(self, taken: Sequence[Part]) -> Candidate:
        units = tuple(unit for part in taken for unit in part.units)
        groups = tuple(dict.fromkeys(part.group for part in taken))
        return Candidate(units=units, groups=groups, error=self._error_without(units))

    def _error_without(self, pinned: Iterable[Unit]) -> float:
        """The error of rounding all but what these units keep from it."""
        left = self._stored
        for unit in pinned:
            left = left.without(unit.stored)
        self._runs += 1
        return self._judge.rounded(left).largest

    def _out_of_time(self) -> bool:
        return time.perf_counter() > self._deadline


def _sum(squares: Iterable[float]) -> float:
    values = list(squares)
    return math.inf if any(map(math.isinf, values)) else math.fsum(values)
