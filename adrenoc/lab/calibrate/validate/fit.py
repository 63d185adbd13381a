"""Fit constants to what a validation measured, and see what they choose on layers kept out of it.

Schedules come first (`adrenoc/lab/tune/refit.py`); then, with those constants, the thresholds of
`[joins]`, each moved to where most of the decisions that were measured are right.  Whatever chooses
no better than what was there is not taken, and a decision says so.  What is taken becomes a target
file, in the place of the constants that it had.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from adrenoc.base.decision import Decision
from adrenoc.base.errors import DeviceError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.ir.options import CompileOptions
from adrenoc.lab.calibrate.target_file import base_of
from adrenoc.lab.calibrate.validate.findings import Confirmed, JoinFinding
from adrenoc.lab.calibrate.validate.session import (
    JOINS,
    Validation,
    digests_of,
    forms_of,
    plan_of,
    replace_joins,
)
from adrenoc.lab.calibrate.validate.table import LayerRow
from adrenoc.lab.tune.refit import (
    Fitted,
    Key,
    fit_cost,
    tables_of,
    value_of,
)
from adrenoc.target.cost.cost import Cost
from adrenoc.target.target import Target

THRESHOLDS = (0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.8, 2.5, 4.0)
"""The values that a fit tries for a threshold of `[joins]`."""
FEWEST_KERNELS = 3
"""The fewest kernels that constants are fitted to."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What was fitted: `fitted` are the schedules' constants, `cost` has the joins' too."""

    fitted: Fitted
    cost: Cost
    changed: tuple[tuple[Key, float, float], ...]
    decisions: tuple[Decision, ...]
    """What was fitted and is not taken, and why."""
    confirmed: Confirmed | None
    """How the new choices ran beside the old ones, where there were any and layers kept out."""
    joins_before: tuple[JoinFinding, ...]
    joins_after: tuple[JoinFinding, ...]


Confirm = Callable[[Cost], Confirmed]
"""Runs what constants choose beside what those of the target do."""


def fit_validation(validation: Validation, rows: Sequence[LayerRow], confirm: Confirm) -> Fit:
    """Fit the target's constants to the layers that are not kept out.

    What `confirm` does not find to choose better is not taken, nor what no layer that was kept out
    can be asked about. Raises DeviceError where too few of them were measured.
    """
    cost = validation.target.cost
    seen = [timed.measured for timed in validation.timed if not timed.kept_out]
    if len(seen) < FEWEST_KERNELS:
        raise DeviceError(
            f"{len(seen)} kernels were measured to fit to, expected {FEWEST_KERNELS} at least",
            hint="the same command with a longer --budget, or fewer --only",
        )
    kept = [timed.measured for timed in validation.timed if timed.kept_out]
    fitted = fit_cost(seen, kept, cost)
    confirmed = confirm(fitted.cost) if fitted.changed and kept else None
    decisions: tuple[Decision, ...] = ()
    if fitted.changed and not (confirmed is not None and confirmed.is_better):
        tables = tables_of(fitted.changed)
        reason = "no layer that the fit has not seen was measured to hold it against"
        unseen = Decision(subject=tables, taken="kept as they were", reason=reason)
        decisions = (unseen if confirmed is None else confirmed.decision(tables),)
        # Nothing of it is taken: the constants are those that were there.
        before, kept_before = fitted.before, fitted.kept_before
        fitted = replace(fitted, cost=cost, changed=(), after=before, kept_after=kept_before)
    target = replace(validation.target, cost=fitted.cost)
    thresholds, after, of_joins = _fit_joins(validation, rows, target)
    keys = (("joins", key) for key in thresholds)
    joins = [(key, value_of(cost, key), thresholds[key[1]]) for key in keys]
    return Fit(
        fitted=fitted,
        cost=replace_joins(target, thresholds).cost,
        changed=(*fitted.changed, *joins),
        decisions=(*decisions, *of_joins),
        confirmed=confirmed,
        joins_before=validation.joins,
        joins_after=after,
    )


def _fit_joins(
    validation: Validation, rows: Sequence[LayerRow], target: Target
) -> tuple[dict[str, float], tuple[JoinFinding, ...], tuple[Decision, ...]]:
    """Return the thresholds that are others now, the joins that follow, and what is not taken."""
    by_name = {row.layer.name: row for row in rows}
    ends = {
        found.layer: _end_of_joining(by_name[found.layer], target, validation.options)
        for found in validation.joins
    }
    thresholds: dict[str, float] = {}
    after = []
    decisions = []
    for join, keys in JOINS.items():
        mine = [found for found in validation.joins if found.join == join]
        now = value_of(target.cost, ("joins", keys[0]))
        threshold = best_threshold([(f, ends[f.layer]) for f in mine if not f.kept_out], now)
        kept = [(f, ends[f.layer]) for f in mine if f.kept_out]
        if regret_of_joins(kept, threshold) > regret_of_joins(kept, now):
            decisions.append(
                Decision(
                    subject=f"cost.joins.{keys[0]}",
                    taken=f"kept at {now:.3g}",
                    reason=f"{threshold:.3g} decides worse on the layers kept out of the fit",
                )
            )
            threshold = now
        if threshold != now:
            thresholds[keys[0]] = threshold
        after += [
            replace(found, takes="joined" if threshold <= ends[found.layer] else "apart")
            for found in mine
        ]
    return thresholds, tuple(after), tuple(decisions)


def best_threshold(found: Sequence[tuple[JoinFinding, float]], now: float) -> float:
    """Return the threshold that loses least time on decisions that count, nearest to `now`. Each
    decision comes with the largest threshold by which its kernels join."""
    return min(
        (now, *THRESHOLDS),
        key=lambda threshold: (regret_of_joins(found, threshold), abs(math.log(threshold / now))),
    )


def regret_of_joins(found: Sequence[tuple[JoinFinding, float]], threshold: float) -> float:
    """Return the logarithms of the times that wrong decisions cost, added."""
    return sum(
        abs(math.log(join.ratio))
        for join, end in found
        if join.is_clear and (threshold <= end) != (join.ratio > 1.0)
    )


def _end_of_joining(row: LayerRow, target: Target, options: CompileOptions) -> float:
    """Return the largest threshold of `THRESHOLDS` by which kernels join, 0 where they never do."""
    with TemporaryFolder("calibrate") as folder:
        forms = forms_of(row, target, options, folder)
        if forms is None or forms.joined is None:
            return 0.0
        joined = digests_of(forms.joined)

        def joins(threshold: float) -> bool:
            asked = replace_joins(target, {JOINS[row.join][0]: threshold})
            plan = plan_of(row, asked, options, folder)
            return plan is not None and digests_of(plan) == joined

        place = _first(lambda number: not joins(THRESHOLDS[number]), len(THRESHOLDS))
    return THRESHOLDS[place - 1] if place else 0.0


def _first(holds: Callable[[int], bool], count: int) -> int:
    """Return the first number below `count` for which it holds, as it does for all after that."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


NAME = "fitted"
"""The name of the source that fitted values cite."""
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")


def fitted_toml(validation: Validation, fit: Fit) -> str:
    """Return the file of the validated target, or one that builds on a listed one."""
    target, device = validation.target, validation.device
    if target.own is not None:
        text = target.own.text
    else:
        text = f'title = "{device.name}, fitted"\nbase = "{base_of(target)}"\n'
    kernels = fit.fitted.before.kernels
    source = (
        f"fitted to schedules of {kernels} kernels, measured on {device.name}, driver "
        f"{device.shown_driver}, {validation.date.isoformat()}; "
        "adrenoc device calibrate --validate fit"
    )
    if fit.changed:
        text = set_key(text, "sources", NAME, f'"{source}"')
    for (family, key), _, value in fit.changed:
        text = set_key(text, f"cost.{family}", key, f'{{ value = {value!r}, source = "@{NAME}" }}')
    return text


def set_key(text: str, section: str, key: str, value: str) -> str:
    """Return a TOML file with `key = value` in a section, in place of what it said."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if _section_of(line) == section), None)
    if start is None:
        return "\n".join([*lines, "", f"[{section}]", f"{key} = {value}"]) + "\n"
    end = next(
        (n for n in range(start + 1, len(lines)) if _section_of(lines[n]) is not None), len(lines)
    )
    stated = re.compile(rf"\s*{re.escape(key)}\s*=")
    own = [line for line in lines[start + 1 : end] if not stated.match(line)]
    while own and not own[-1].strip():
        own.pop()
    new = [*lines[: start + 1], *own, f"{key} = {value}"]
    rest = lines[end:]
    return "\n".join([*new, "", *rest] if rest else new) + "\n"


def _section_of(line: str) -> str | None:
    found = _HEADER.match(line)
    return None if found is None else found.group(1).strip()
