"""How well estimates choose: regret, and whether they order schedules as the times do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adrenoc.lab.tune.refit.kernels import FittedKernel
from adrenoc.target.cost.cost import Cost


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
    """Spearman's rank correlation; 1 where one of the two has nothing to order."""
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) - 1) / 2
    spread = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    both = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return both / spread if spread else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in the order, those of equal values shared."""
    order = sorted(values)
    return [(2 * order.index(v) + order.count(v) - 1) / 2 for v in values]


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0
