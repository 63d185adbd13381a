"""Fitted constants that choose worse than those that were there are put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from adrenoc.lab.tune.refit import Key, fit_cost, keep_better, value_of
from adrenoc.target.cost.cost import Cost
from adrenoc.target.target import load_target

COST = load_target("adreno:750").cost
DEPTHWISE, GEMV = ("depthwise", "texel_slots"), ("gemv", "texel_slots")


@dataclass(frozen=True)
class Kernel:
    """Schedules whose estimates depend on one constant, as a multiple of what it was."""

    key: Key
    estimate: Callable[[float], Sequence[float]]
    times_ms: Sequence[float]

    def estimates_ms(self, cost: Cost) -> Sequence[float]:
        """By the constant's value."""
        return self.estimate(value_of(cost, self.key) / value_of(COST, self.key))


def misled(key: Key) -> Kernel:
    """Most times say that the constant should be twice as large; it chooses right as it is."""
    return Kernel(key, lambda c: [2.0, 2.2 / c, *[10.0 / c] * 20], [1.0, 2.0, *[2.5] * 20])


def told_right(key: Key) -> Kernel:
    """A constant twice as large follows the times, and chooses the best."""
    return Kernel(key, lambda c: [2.0, 3.0 / c, *[10.0 / c] * 20], [2.0, 1.5, *[5.0] * 20])


def keep(seen: Sequence[Any], kept: Sequence[Any] = ()) -> Any:
    """What is taken of a fit."""
    fitted = fit_cost(seen, kept, COST, [DEPTHWISE, GEMV])
    assert {key for key, _, _ in fitted.changed} == {kernel.key for kernel in seen}
    return keep_better(fitted, COST, seen, kept)


def test_what_chooses_better_is_taken() -> None:
    fitted, decisions = keep([told_right(DEPTHWISE)], [told_right(DEPTHWISE)])
    assert fitted.after.regret == fitted.kept_after.regret == 1.0 < fitted.before.regret
    assert fitted.changed
    assert not decisions


def test_what_chooses_worse_is_put_back() -> None:
    fitted, (decision,) = keep([misled(DEPTHWISE)])
    assert (fitted.cost, fitted.changed, fitted.after) == (COST, (), fitted.before)
    assert decision.subject == "cost.depthwise"
    assert decision.taken == "kept as it was"
    assert decision.reason == (
        "with the fitted values the regret of the layers fitted to is 2.000, without them 1.000"
    )


def test_tables_that_choose_better_stay_fitted() -> None:
    # Two that mislead outweigh the one that is told right.
    seen = [misled(DEPTHWISE), misled(DEPTHWISE), told_right(GEMV)]
    fitted, (decision,) = keep(seen, [told_right(GEMV)])
    assert {key for key, _, _ in fitted.changed} == {GEMV}
    assert fitted.after.regret == pytest.approx(1.0)
    assert fitted.after.regret < fitted.before.regret
    assert decision.subject == "cost.depthwise"


def test_what_chooses_worse_where_it_was_not_fitted_is_not_taken() -> None:
    fitted, (decision,) = keep([told_right(DEPTHWISE)], [misled(DEPTHWISE)])
    assert (fitted.cost, fitted.changed) == (COST, ())
    assert (fitted.after, fitted.kept_after) == (fitted.before, fitted.kept_before)
    assert (decision.subject, decision.taken) == ("cost.depthwise", "kept as they were")
    assert "of those kept out from 1.000 to 2.000" in decision.reason


def test_what_nothing_confirms_is_not_taken() -> None:
    fitted, (decision,) = keep([told_right(DEPTHWISE)])
    assert (fitted.cost, fitted.changed) == (COST, ())
    assert decision.taken == "kept as they were"
    assert decision.reason == ("no layer that the fit has not seen was measured to hold it against")
