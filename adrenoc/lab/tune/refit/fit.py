"""Fit constants of the cost model to measured times.

What is made small, over all schedules i of all kernels:

    mean of w_i (log(e_i / t_i) - m)^2  +  OF_SCALE m^2  +  PRIOR sum of log(c / c0)^2

with estimates e, times t, constants c that were c0, and m the mean of log(e / t) within a kernel.
The first term is what choices depend on; w is larger for faster schedules, among which one is
chosen.  The last keeps a constant where it was if the table tells nothing about it.  Estimates have
edges (waves that fit, the busiest pipe), so no gradient is used: each constant in turn is tried
larger and smaller, by steps that shrink.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from adrenoc.lab.tune.refit.kernels import FittedKernel, replace_values
from adrenoc.lab.tune.refit.quality import Quality, quality_of
from adrenoc.target.cost.cost import Cost
from adrenoc.target.cost.read import NO_COSTS, families

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


def constants_to_fit(tables: Iterable[str] | None = None) -> tuple[Key, ...]:
    """Return the constants that are costs, of all tables or of some: every float that is no
    bound."""
    keys = []
    for family, record in families().items():
        if family in NEVER or (tables is not None and family not in tables):
            continue
        hints = typing.get_type_hints(record)
        keys += [
            (family, field.name)
            for field in dataclasses.fields(record)
            if hints[field.name] is float and not field.name.startswith(NO_COSTS)
        ]
    return tuple(keys)


def fit_cost(
    kernels: Sequence[FittedKernel],
    cost: Cost,
    keys: Iterable[Key] | None = None,
    *,
    keep_out: Callable[[FittedKernel], bool] = lambda _: False,
    say: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Fit `keys` (all that are costs) to the kernels but those that are kept out.

    `say` is told of each round.
    """
    seen = [kernel for kernel in kernels if not keep_out(kernel)]
    kept = [kernel for kernel in kernels if keep_out(kernel)]
    wanted = tuple(constants_to_fit() if keys is None else keys)
    search = _Search(seen, cost, that_matter(seen, cost, wanted))
    for step in STEPS:
        for _ in range(MOST_ROUNDS):
            moved = search.round(step)
            say(f"steps of {step}: {moved} of {len(search.keys)} moved, {search.loss:.5f}")
            if not moved:
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
    """Constants and what is made small, as one after the other is moved.

    `depend` has the kernels whose estimates depend on each: those of others are known.
    """

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
                losses = self._compute_losses(tried, self._depend[key])
                loss = self._total(tried, losses)
                if loss < self.loss:
                    self.values, self._losses, self.loss = tried, losses, loss
                    moved += 1
                    break
        return moved

    def _compute_losses(self, values: dict[Key, float], numbers: Sequence[int]) -> list[float]:
        """Return what is made small of each kernel, where these have changed."""
        cost = replace_values(self._cost, values)
        losses = list(self._losses)
        for number in numbers:
            kernel = self._kernels[number]
            losses[number] = loss_of(kernel.estimates_ms(cost), kernel.times_ms)
        return losses

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
    """Return the constants that some estimate depends on, each with the numbers of kernels that
    may.

    Which constant counts depends on the others (the busiest pipe does), so a kernel that depends on
    one of a table may depend on all of that table.
    """
    usual = [kernel.estimates_ms(cost) for kernel in kernels]
    matter: list[Key] = []
    of_table: dict[str, set[int]] = {}
    for key in keys:
        tried = [replace_values(cost, {key: value_of(cost, key) * f}) for f in (3.0, 1 / 3.0)]
        depend = {
            number
            for number, kernel in enumerate(kernels)
            if any(_differ(usual[number], kernel.estimates_ms(other)) for other in tried)
        }
        if depend:
            matter.append(key)
            of_table.setdefault(key[0], set()).update(depend)
    return {key: tuple(sorted(of_table[key[0]])) for key in matter}


def _differ(first: Sequence[float], second: Sequence[float]) -> bool:
    return any(
        abs(one / other - 1) > UNUSED
        for one, other in zip(first, second, strict=True)
        if math.isfinite(one) and math.isfinite(other)
    )


def _round(value: float) -> float:
    """Three digits: what people read, and no table tells more."""
    return float(f"{value:.3g}")
