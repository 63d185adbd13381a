"""Fit constants of the cost model to measured times, and take those that choose better.

What is made small, over all schedules i of all kernels:

    mean of w_i (log(e_i / t_i) - m)^2  +  OF_SCALE m^2  +  PRIOR sum of log(c / c0)^2

with estimates e, times t, constants c that were c0, and m the mean of log(e / t) within a kernel.
The first term is what choices depend on; w is larger for faster schedules, among which one is
chosen.  The last keeps a constant where it was if the table tells nothing about it.  Estimates have
edges (waves that fit, the busiest pipe), so no gradient is used: each constant in turn is tried
larger and smaller, by steps that shrink.

A schedule is chosen by the least estimate alone.  On times that scatter, or that the model has no
term for, what was fitted may follow times better and yet choose worse: whoever asked for the fit
has the device confirm it.

Estimates choose well where regret is low and they order schedules as the times do.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adrenoc.ir.program import Work
from adrenoc.ir.tuning_log import kernel_digest
from adrenoc.kernels.families.shared.machine import Scored
from adrenoc.kernels.families.shared.schedule import TunedSchedules
from adrenoc.lab.tune.tasks import TunePlan, TuneTask
from adrenoc.passes.lower.lower import kernel_of
from adrenoc.target.cost import NO_COSTS, Cost, families

CLOCKS_A_MS = 1e3
"""Clocks a millisecond of a clock of one MHz."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedKernel:
    """One kernel of a planned layer: schedules of it, and their times."""

    plan: TunePlan
    task: TuneTask
    layer: str
    tiles: tuple[Any, ...]
    times_ms: tuple[float, ...]

    def estimates_ms(self, cost: Cost) -> tuple[float, ...]:
        """Return the time of each schedule by a cost model of these constants."""
        estimate = self._estimate(cost)
        clock = self.plan.target.performance.clock_mhz or cost.unstated.clock_mhz
        return tuple(estimate(tile) / (clock * CLOCKS_A_MS) for tile in self.tiles)

    def _estimate(self, cost: Cost) -> Callable[[Any], float]:
        """Return what the rule itself estimates by: it runs up to its choice."""
        limits, context = self.plan.target.limits, self.plan.context(cost, {})
        context.schedules = _Asking(
            limits=limits, cost=cost.work_groups, log=context.log, digest=self.task.digest
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
class _Asking(TunedSchedules):
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


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How well estimates choose among the schedules of some kernels."""

    kernels: int
    regret: float
    """Time of the schedule of the least estimate over that of the best: geometric mean."""
    worst: float
    """The largest regret of a kernel."""
    rank: float
    """Spearman's correlation of estimates and times, the mean over kernels."""
    scale: float
    """Estimate over time: the geometric mean."""

    def __str__(self) -> str:
        return (
            f"{self.kernels} kernels: regret {self.regret:.3f} (worst {self.worst:.2f}), "
            f"rank correlation {self.rank:.2f}, estimates are {self.scale:.2f} of the times"
        )


def quality_of(kernels: Iterable[FittedKernel], cost: Cost) -> Quality:
    """Return how well constants choose among the schedules that were measured."""
    regrets, ranks, scales = [], [], []
    for kernel in kernels:
        estimates = kernel.estimates_ms(cost)
        regrets.append(regret_of(estimates, kernel.times_ms))
        ranks.append(rank_correlation(estimates, kernel.times_ms))
        scales += [e / t for e, t in zip(estimates, kernel.times_ms, strict=True)]
    return Quality(
        kernels=len(regrets),
        regret=_geometric_mean(regrets),
        worst=max(regrets, default=1.0),
        rank=sum(ranks) / len(ranks) if ranks else 1.0,
        scale=_geometric_mean(scales),
    )


def regret_of(estimates: Sequence[float], times: Sequence[float]) -> float:
    """Return the time of the chosen schedule over the least time."""
    chosen = min(range(len(times)), key=lambda number: estimates[number])
    return times[chosen] / min(times)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation; 1 where one of the two has nothing to order."""
    orders = [(sorted(values), values) for values in (first, second)]
    # Equal values share their places.
    places = [[2 * order.index(v) + order.count(v) for v in values] for order, values in orders]
    has_order = all(len(set(own)) > 1 for own in places)
    return float(np.asarray(np.corrcoef(places))[0, 1]) if has_order else 1.0


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


Key = tuple[str, str]
"""Family and name of a constant."""

STEPS = (1.5, 1.25, 1.12, 1.06, 1.03)
"""The factors that constants are tried at, a round each, until a round changes nothing."""
MOST_ROUNDS = 4
"""The most rounds of each factor that a fit tries."""
OF_SCALE = 0.02
PRIOR = 2e-4
UNUSED = 1e-9
"""The relative change of an estimate up to which it is taken not to depend on a constant."""
NEVER = frozenset({"unstated"})
"""Figures of a GPU's own file, which no fit changes."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Constants that were fitted, with how well they choose."""

    cost: Cost
    changed: tuple[tuple[Key, float, float], ...]
    """The constants that were changed: before, after."""
    before: Quality
    after: Quality
    kept_before: Quality
    """The quality of the constants as they were, on kernels that the fit has not seen."""
    kept_after: Quality


def constants_to_fit() -> tuple[Key, ...]:
    """Return the constants that are costs: every float that is no bound."""
    keys = []
    for family, record in families().items():
        if family in NEVER:
            continue
        hints = typing.get_type_hints(record)
        keys += [
            (family, field.name)
            for field in dataclasses.fields(record)
            if hints[field.name] is float and not field.name.startswith(NO_COSTS)
        ]
    return tuple(keys)


def fit_cost(
    seen: Sequence[FittedKernel],
    kept: Sequence[FittedKernel],
    cost: Cost,
    keys: Sequence[Key] | None = None,
) -> Fitted:
    """Fit `keys` (all that are costs) to the kernels `seen`; those `kept` out say how well."""
    wanted = constants_to_fit() if keys is None else keys
    search = _Search(seen, cost, that_matter(seen, cost, wanted))
    for step in STEPS:
        for _ in range(MOST_ROUNDS):
            if not search.round(step):
                break
    fitted = replace_values(cost, search.values)
    return Fitted(
        cost=fitted,
        changed=tuple(
            (key, value_of(cost, key), value)
            for key, value in search.values.items()
            if value != value_of(cost, key)
        ),
        before=quality_of(seen, cost),
        after=quality_of(seen, fitted),
        kept_before=quality_of(kept, cost),
        kept_after=quality_of(kept, fitted),
    )


def value_of(cost: Cost, key: Key) -> float:
    """Return the value of a constant."""
    family, name = key
    return float(getattr(getattr(cost, family), name))


class _Search:
    """Constants and what is made small, as one after the other is moved. `depend` has the kernels
    whose estimates depend on each: those of others are known."""

    def __init__(
        self, kernels: Sequence[FittedKernel], cost: Cost, depend: Mapping[Key, Sequence[int]]
    ) -> None:
        self.keys = tuple(depend)
        self.values: dict[Key, float] = {key: value_of(cost, key) for key in depend}
        self._kernels, self._cost, self._depend = kernels, cost, depend
        self._losses = [loss_of(k.estimates_ms(cost), k.times_ms) for k in kernels]
        self.loss = self._total(self.values, self._losses)

    def round(self, step: float) -> int:
        """Try each constant larger and smaller; how many were moved."""
        moved = 0
        for key in self.keys:
            for factor in (step, 1 / step):
                tried = {**self.values, key: _round(self.values[key] * factor)}
                cost, losses = replace_values(self._cost, tried), list(self._losses)
                for number in self._depend[key]:
                    kernel = self._kernels[number]
                    losses[number] = loss_of(kernel.estimates_ms(cost), kernel.times_ms)
                loss = self._total(tried, losses)
                if loss < self.loss:
                    self.values, self._losses, self.loss = tried, losses, loss
                    moved += 1
                    break
        return moved

    def _total(self, values: dict[Key, float], losses: Sequence[float]) -> float:
        moved = (math.log(value / value_of(self._cost, key)) for key, value in values.items())
        return sum(losses) / max(len(losses), 1) + PRIOR * sum(log**2 for log in moved)


def loss_of(estimates: Sequence[float], times: Sequence[float]) -> float:
    """Return how far the estimates of one kernel are from its times."""
    if not all(map(math.isfinite, estimates)):
        return math.inf
    least = min(times)
    weights = [least / time for time in times]
    logs = [math.log(e / t) for e, t in zip(estimates, times, strict=True)]
    mean = sum(w * log for w, log in zip(weights, logs, strict=True)) / sum(weights)
    spread = sum(w * (log - mean) ** 2 for w, log in zip(weights, logs, strict=True))
    return spread / sum(weights) + OF_SCALE * mean**2


def that_matter(
    kernels: Sequence[FittedKernel], cost: Cost, keys: Iterable[Key]
) -> dict[Key, tuple[int, ...]]:
    """Return the constants that some estimate depends on, each with the kernels that may. Which
    constant counts depends on the others (the busiest pipe does), so a kernel that depends on one
    of a table may depend on all of that table."""
    usual = [kernel.estimates_ms(cost) for kernel in kernels]
    matter: list[Key] = []
    of_table: dict[str, set[int]] = {}
    for key in keys:
        tried = [replace_values(cost, {key: value_of(cost, key) * f}) for f in (3.0, 1 / 3.0)]
        depend = {
            number
            for number, kernel in enumerate(kernels)
            if any(
                abs(one / known - 1) > UNUSED
                for other in tried
                for one, known in zip(kernel.estimates_ms(other), usual[number], strict=True)
                if math.isfinite(one) and math.isfinite(known)
            )
        }
        if depend:
            matter.append(key)
            of_table.setdefault(key[0], set()).update(depend)
    return {key: tuple(sorted(of_table[key[0]])) for key in matter}


def _round(value: float) -> float:
    """Round to three digits: what people read, and no table tells more."""
    return float(f"{value:.3g}")


def tables_of(changed: Sequence[tuple[Key, float, float]]) -> str:
    """Return the tables that changed values are of, for people."""
    return ", ".join(dict.fromkeys(f"cost.{family}" for (family, _), _, _ in changed))


FACTORS = (1 / 8, 1 / 4, 1 / 2, 2.0, 4.0, 8.0)
WORTH_TELLING = 0.9
"""The share to which a constant has to bring the regret above 1 down to be told as its cause."""


@dataclass(frozen=True, kw_only=True)
class Blame:
    """One constant, another value of it, and the regret with that."""

    key: Key
    before: float
    after: float
    regret: float

    def __str__(self) -> str:
        return (
            f"{'.'.join(self.key)} {self.before:.3g} -> {self.after:.3g}: regret {self.regret:.2f}"
        )


def blame(kernels: Sequence[FittedKernel], cost: Cost, keys: Iterable[Key]) -> Blame | None:
    """Return the constant whose change alone chooses best, None where none makes it better. Of
    those with the same regret it is the one with which estimates are nearest to the times."""
    bound = 1.0 + WORTH_TELLING * (quality_of(kernels, cost).regret - 1.0)
    found: dict[tuple[float, float], Blame] = {}
    for key in keys:
        before = value_of(cost, key)
        for after in (before * factor for factor in FACTORS):
            changed = replace_values(cost, {key: after})
            regret = quality_of(kernels, changed).regret
            if regret < bound:
                told = Blame(key=key, before=before, after=after, regret=regret)
                found.setdefault((regret, _loss(kernels, changed)), told)
    return found[min(found)] if found else None


def _loss(kernels: Sequence[FittedKernel], cost: Cost) -> float:
    return sum(loss_of(kernel.estimates_ms(cost), kernel.times_ms) for kernel in kernels)
