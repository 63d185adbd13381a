"""From the frontier of a plan to policies with the model's own names and their costs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from adrenoc.base.errors import OptionError
from adrenoc.base.reporter import Reporter
from adrenoc.check.accuracy.bench import Bench, plan_of
from adrenoc.check.accuracy.effort import Effort
from adrenoc.check.accuracy.groups import groups_of
from adrenoc.check.accuracy.ideal import stored_in_half
from adrenoc.check.accuracy.pareto import Candidate, Frontier, FrontierSearch, Planned
from adrenoc.check.accuracy.result import Contribution, PolicyPoint
from adrenoc.check.accuracy.samples import Judge
from adrenoc.check.accuracy.variant import Plan
from adrenoc.compile.pipeline import program_of


class Policies:
    """Policies for one preset of one model, found by simulation and tried on the device."""

    def __init__(
        self, bench: Bench, judge: Judge, preset: str, *, effort: Effort, reporter: Reporter
    ) -> None:
        self._bench, self._judge, self._preset = bench, judge, preset
        self._effort, self._reporter = effort, reporter
        self._started = time.perf_counter()
        self.trials = 0
        self._tried: dict[tuple[str, ...], PolicyPoint] = {}
        self.stored = bench.find_halves(preset)
        self._search = FrontierSearch(
            judge,
            self._plan,
            groups_of(bench.fuse(preset), self.stored),
            effort=effort,
            note=self._note,
        )
        self._frontier: Frontier | None = None

    @property
    def frontier(self) -> Frontier:
        """The frontier, which is searched for when it is first asked for."""
        if self._frontier is None:
            self._frontier = self._search.run()
            self._note(f"{len(self._frontier.points)} policies in {self._frontier.runs} runs")
        return self._frontier

    def meeting(self, tolerance: float) -> tuple[PolicyPoint | None, PolicyPoint]:
        """A policy that meets a tolerance on the device, if there is one, and the best that is.

        Where the device is worse than the simulation, as half arithmetic is, policies further on
        are tried, in longer and longer steps.
        """
        points = self.frontier.points
        first = self.frontier.first_within(tolerance)
        candidates: list[Candidate] = []
        if first is not None:
            cheapest = self._search.cheapest(tolerance)
            candidates += [] if cheapest is None else [cheapest]
            step = 0
            while first + step < len(points) - 1:
                candidates.append(points[first + step])
                step = 2 * step + 1
        candidates.append(points[-1])
        best: PolicyPoint | None = None
        for candidate in candidates:
            tried = self.try_candidate(candidate)
            error = tried.device_error
            if error is not None and error <= tolerance:
                return tried, tried
            if best is None or _error(tried) < _error(best):
                best = tried
        if best is None:
            raise ValueError("the list of policies ends with one that keeps all in float32")
        return None, best

    def try_candidate(self, candidate: Candidate) -> PolicyPoint:
        """Run the compiled kernels of a candidate: the candidate with their error."""
        started = time.perf_counter()
        variant = self._bench.whole(self._preset, candidate.tensors)
        error = self._judge.judge_compiled(variant).counted
        self._effort.plan()
        self._effort.run(self._judge.samples)
        self.trials += 1
        point = self.price(candidate, variant.plan)
        took_ms = (time.perf_counter() - started) * 1000
        count = len(point.float32_tensors)
        self._reporter.stage(
            f"{self._preset} trial {self.trials}",
            took_ms,
            f"{count} tensors in float32: error {error:.1e}",
        )
        self._tried[candidate.tensors] = replace(point, device_error=error)
        return self._tried[candidate.tensors]

    def price(self, candidate: Candidate, plan: Plan | None = None) -> PolicyPoint:
        """Price a candidate: the model's own names, with the figures of its plan if effort is
        left."""
        point = PolicyPoint(
            float32_tensors=self._model_names(candidate.tensors),
            groups=candidate.groups if candidate.units else (),
            error=candidate.error,
            graph_tensors=candidate.tensors,
        )
        if plan is None:
            if self._effort.is_spent():
                return point
            self._effort.plan()
            plan = self._bench.plan(self._preset, candidate.tensors)
        return replace(
            point,
            time_us=plan.time_us,
            moved_bytes=plan.moved_bytes,
            memory_bytes=plan.memory_bytes,
        )

    def find_point(self, number: int) -> Candidate:
        """A point of the list.

        Raises:
            OptionError: there is none of that number.
        """
        points = self.frontier.points
        if number >= len(points):
            raise OptionError(
                f"there is no policy {number} in {self._preset}: the list has 0 to "
                f"{len(points) - 1}",
                hint="adrenoc check-accuracy MODEL --preset PRESET shows the list",
            )
        return points[number]

    def list_points(self) -> tuple[PolicyPoint, ...]:
        """List the points with their costs; those that were tried have the device's error, too."""
        found = []
        for candidate in self.frontier.points:
            known = self._tried.get(candidate.tensors)
            found.append(known if known is not None else self.price(candidate))
        return tuple(found)

    def contributions(self) -> tuple[Contribution, ...]:
        """What the parts of the network contribute, the worst first; parts of one kind as one."""
        squares: dict[str, float] = {}
        counts: dict[str, int] = {}
        for part in self.frontier.contributions:
            squares[part.group] = squares.get(part.group, 0.0) + part.mean_square
            counts[part.group] = counts.get(part.group, 0) + len(part.units)
        found = [
            Contribution(group=group, tensors=counts[group], rms=square**0.5)
            for group, square in squares.items()
        ]
        return tuple(sorted(found, key=lambda part: -part.rms))

    def _plan(self, tensors: tuple[str, ...]) -> Planned:
        state = self._bench.run_planning(self._preset, tensors)
        plan = plan_of(state)
        cost = plan.moved_bytes / 1000 if plan.time_us is None else plan.time_us
        return Planned(cost=cost, stored=stored_in_half(program_of(state)))

    def _model_names(self, tensors: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._bench.name_of(name) for name in tensors))

    def _note(self, text: str) -> None:
        now = time.perf_counter()
        self._reporter.stage(f"{self._preset} search", (now - self._started) * 1000, text)
        self._started = now


def _error(point: PolicyPoint) -> float:
    return float("inf") if point.device_error is None else point.device_error
