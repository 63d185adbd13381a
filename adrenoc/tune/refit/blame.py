"""Which constant would have to change for estimates to be nearer to the times of some kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adrenoc.target.cost.cost import Cost
from adrenoc.tune.refit.fit import Key, loss_of, value_of
from adrenoc.tune.refit.kernels import Measured, replace_values
from adrenoc.tune.refit.quality import quality_of

FACTORS = (1 / 8, 1 / 4, 1 / 2, 2.0, 4.0, 8.0)
WORTH_TELLING = 0.9
"""Of the loss as it is: what brings it no further down is not to blame."""


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


def blame(kernels: Sequence[Measured], cost: Cost, keys: Iterable[Key]) -> Blame | None:
    """The constant whose change alone helps most; None where none does."""
    least = WORTH_TELLING * _loss(kernels, cost)
    found: tuple[Key, float] | None = None
    for key in keys:
        for factor in FACTORS:
            value = value_of(cost, key) * factor
            loss = _loss(kernels, replace_values(cost, {key: value}))
            if loss < least:
                least, found = loss, (key, value)
    if found is None:
        return None
    key, value = found
    regret = quality_of(kernels, replace_values(cost, {key: value})).regret
    return Blame(key=key, before=value_of(cost, key), after=value, regret=regret)


def _loss(kernels: Sequence[Measured], cost: Cost) -> float:
    return sum(loss_of(kernel.estimates_ms(cost), kernel.times_ms) for kernel in kernels)
