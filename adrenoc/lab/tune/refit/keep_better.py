"""Fitted constants are taken where they choose better, else those that were there stay.

A fit makes estimates follow times (`fit.py`); a schedule is chosen by the least of them alone.  So
on times that scatter, or that the model has no term for, what was fitted may follow them better and
yet choose worse.  Better is what has less regret, or the same and a higher rank correlation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adrenoc.base.decision import Decision
from adrenoc.lab.tune.refit.fit import Fitted, Key
from adrenoc.lab.tune.refit.kernels import FittedKernel, replace_values
from adrenoc.lab.tune.refit.quality import Quality, quality_of
from adrenoc.target.cost.cost import Cost

Values = Mapping[Key, float]


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """The kernels that constants were fitted to, those kept out, and the constants before."""

    seen: Sequence[FittedKernel]
    kept: Sequence[FittedKernel]
    cost: Cost

    def quality(self, values: Values) -> Quality:
        """On what was fitted to, of the constants with these in place of some."""
        return quality_of(self.seen, replace_values(self.cost, dict(values)))


def keep_better(
    fitted: Fitted, cost: Cost, seen: Sequence[FittedKernel], kept: Sequence[FittedKernel]
) -> tuple[Fitted, tuple[Decision, ...]]:
    """Take the fitted values that choose better, with a decision for each that is not taken.

    While what was fitted chooses no better than `cost` among the kernels `seen`, tables are put
    back, one after the other, whichever lowers the regret most.  What chooses no better then, or
    worse among the kernels `kept` out of the fit, is not taken at all, nor is what no such kernel
    can be asked about.
    """
    judge = _Judge(seen=seen, kept=kept, cost=cost)
    values: Values = {key: after for key, _, after in fitted.changed}
    decisions: tuple[Decision, ...] = ()
    if not _chooses_better(fitted):
        values, decisions = _put_tables_back(judge, values)
    taken = _fitted_with(values, fitted, judge)
    if not values or _is_confirmed(taken):
        return taken, decisions
    return put_back(fitted, cost), (_none_is_taken(taken, tables_of(fitted.changed)),)


def put_back(fitted: Fitted, cost: Cost) -> Fitted:
    """Return a fit of which nothing is taken: the constants are those that were there."""
    return replace(
        fitted, cost=cost, changed=(), after=fitted.before, kept_after=fitted.kept_before
    )


def tables_of(changed: Sequence[tuple[Key, float, float]]) -> str:
    """Return the tables that changed values are of, for people."""
    return ", ".join(dict.fromkeys(f"cost.{family}" for (family, _), _, _ in changed))


def _put_tables_back(judge: _Judge, values: Values) -> tuple[Values, tuple[Decision, ...]]:
    """Values without the tables that choose worse than what was there."""
    quality, decisions = judge.quality(values), []
    while values:
        without = {
            table: {key: value for key, value in values.items() if key[0] != table}
            for table in dict.fromkeys(family for family, _ in values)
        }
        qualities = {table: judge.quality(left) for table, left in without.items()}
        table = min(qualities, key=lambda name: qualities[name].regret)
        if qualities[table].regret >= quality.regret:
            break
        decisions.append(
            Decision(
                subject=f"cost.{table}",
                taken="kept as it was",
                reason=f"with the fitted values the regret of the layers fitted to is "
                f"{quality.regret:.3f}, without them {qualities[table].regret:.3f}",
            )
        )
        values, quality = without[table], qualities[table]
    return values, tuple(decisions)


def _fitted_with(values: Values, fitted: Fitted, judge: _Judge) -> Fitted:
    """Return what was fitted with these values alone."""
    if len(values) == len(fitted.changed):
        return fitted
    cost = replace_values(judge.cost, dict(values))
    return replace(
        fitted,
        cost=cost,
        changed=tuple(change for change in fitted.changed if change[0] in values),
        after=quality_of(judge.seen, cost),
        kept_after=quality_of(judge.kept, cost),
    )


def _chooses_better(fitted: Fitted) -> bool:
    """On what was fitted to."""
    before, after = fitted.before, fitted.after
    return (after.regret, -after.rank) < (before.regret, -before.rank)


def _is_confirmed(fitted: Fitted) -> bool:
    """Return whether it chooses better, and no worse on kernels that it has not seen."""
    is_no_worse = fitted.kept_after.regret <= fitted.kept_before.regret
    return bool(fitted.kept_after.kernels) and is_no_worse and _chooses_better(fitted)


def _none_is_taken(fitted: Fitted, tables: str) -> Decision:
    if not fitted.kept_after.kernels:
        return Decision(
            subject=tables,
            taken="kept as they were",
            reason="no layer that the fit has not seen was measured to hold it against",
        )

    def say_change(before: float, after: float) -> str:
        return f"from {before:.3f} to {after:.3f}"

    return Decision(
        subject=tables,
        taken="kept as they were",
        reason="the fitted values bring the regret of the layers fitted to "
        f"{say_change(fitted.before.regret, fitted.after.regret)}, their rank correlation "
        f"{say_change(fitted.before.rank, fitted.after.rank)}, and the regret of those kept out "
        f"{say_change(fitted.kept_before.regret, fitted.kept_after.regret)}: the first has to "
        "fall, or the correlation rise where it stays, and the last may not rise",
    )
