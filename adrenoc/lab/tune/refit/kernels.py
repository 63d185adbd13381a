"""Kernels that were measured, and what the cost model says of them under other constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.program import Work
from adrenoc.ir.tuning_log import kernel_digest
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.kernels.families.shared.schedule import Schedules, WorkGroup
from adrenoc.kernels.families.shared.scored import Scored
from adrenoc.lab.tune.refit.measurements import Measurement
from adrenoc.lab.tune.tasks import Task, TunePlan
from adrenoc.passes.lower.lower import kernel_of
from adrenoc.target.cost.cost import Cost

CLOCKS_A_MS = 1e3
"""Clocks a millisecond of a clock of one MHz."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedKernel:
    """One kernel of a planned layer: schedules of it, and their times."""

    plan: TunePlan
    task: Task
    layer: str
    tiles: tuple[Any, ...]
    times_ms: tuple[float, ...]

    def estimates_ms(self, cost: Cost) -> tuple[float, ...]:
        """Return the time of each schedule by a cost model of these constants."""
        estimate = self._estimate(cost)
        clock = self.plan.target.performance.clock_mhz or cost.unstated.clock_mhz
        return tuple(estimate(tile) / (clock * CLOCKS_A_MS) for tile in self.tiles)

    def _estimate(self, cost: Cost) -> Callable[[Any], float]:
        """The rule is asked itself: it runs up to its choice."""
        plan, target = self.plan, self.plan.target
        context = RuleContext(
            graph=plan.graph,
            options=plan.options,
            limits=target.limits,
            performance=target.performance,
            cost=cost,
            log=DecisionLog(),
        )
        context.schedules = _Asking(
            limits=target.limits, cost=cost.work_groups, log=DecisionLog(), digest=self.task.digest
        )
        try:
            kernel_of(context, self.task.node)
        except _Asked as asked:
            estimate = asked.estimate
            return estimate.alone if isinstance(estimate, Scored) else estimate
        raise ValueError(f"{self.task.title} chose no schedule")


def collect_kernels(
    plans: Iterable[tuple[str, TunePlan]], rows: Iterable[Measurement]
) -> tuple[FittedKernel, ...]:
    """Return the kernels of planned layers that a table has at least two schedules of.

    `plans` are those of the table's layers, each with the layer's name.  A schedule that the family
    no longer offers, and a time that is there twice, are left out; so are kernels that choose
    nothing but their work-group, whose estimate is no time.
    """
    by_kernel: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        by_kernel.setdefault((row.device, row.digest), []).append(row)
    found = []
    for layer, plan in plans:
        for task in plan.tasks:
            if isinstance(task.candidates[0], WorkGroup):
                continue
            times: dict[int, float] = {}
            for row in by_kernel.pop((plan.target.name, task.digest), []):
                position = task.position(row.actions)
                if position is not None:
                    times.setdefault(position, row.time_ms)
            if len(times) > 1:
                found.append(
                    FittedKernel(
                        plan=plan,
                        task=task,
                        layer=layer,
                        tiles=tuple(task.candidates[number] for number in times),
                        times_ms=tuple(times.values()),
                    )
                )
    return tuple(found)


class _Asked(Exception):  # noqa: N818
    """A rule has come to its choice."""

    def __init__(self, estimate: Callable[[Any], float]) -> None:
        super().__init__()
        self.estimate = estimate


@dataclass(kw_only=True)
class _Asking(Schedules):
    """Ends the rule where it would choose the schedule of one kernel."""

    digest: str

    def choose(
        self,
        family: str,
        node: str,
        work: Work,
        candidates: Iterable[Any],
        estimate: Callable[[Any], float],
    ) -> Any:
        if kernel_digest(family, work) == self.digest:
            raise _Asked(estimate)
        return super().choose(family, node, work, candidates, estimate)


def replace_values(cost: Cost, values: dict[tuple[str, str], float]) -> Cost:
    """Return the constants with others in the place of some, by (family, key)."""
    tables: dict[str, dict[str, float]] = {}
    for (family, key), value in values.items():
        tables.setdefault(family, {})[key] = value
    return replace(
        cost, **{name: replace(getattr(cost, name), **own) for name, own in tables.items()}
    )
