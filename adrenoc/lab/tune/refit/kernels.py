"""Kernels that were measured, and what the cost model says of them under other constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.program import Work
from adrenoc.ir.tuning_log import kernel_digest
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.kernels.families.shared.schedule import Schedules
from adrenoc.kernels.families.shared.scored import Scored
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
