"""Which constant would have to change for the estimates to choose better among some kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adrenoc.lab.tune.refit.fit import Key, loss_of, quality_of, value_of
from adrenoc.lab.tune.refit.kernels import FittedKernel, replace_values
from adrenoc.target.cost.cost import Cost

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
    """Return the constant whose change alone makes the best choices; None where none makes better
    ones.

    Of those with the same regret it is the one with which estimates are nearest to the times.
    """
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
