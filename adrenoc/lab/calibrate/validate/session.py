"""One validation: plan layers as the cost model has them (where kernels may join, both ways by
force), measure their schedules, say what the model chose; and fit constants to that.

Schedules are fitted first (`adrenoc/lab/tune/refit.py`); then, with those constants, the thresholds
of `[joins]`, each moved to where most of the decisions that were measured are right. Whatever
chooses no better than what was there, on layers kept out of the fit, is not taken, and a decision
says so.
"""

from __future__ import annotations

import datetime
import math
import re
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AdrenocError, CompileError, DeviceError, RemoteError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.reporter import SilentReporter
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.schedule import WorkGroup
from adrenoc.lab.calibrate.measure import SHARE, DeviceFacts, ProbeError, spread_of
from adrenoc.lab.calibrate.session import Bench, DeviceRequest, base_of, opened_bench
from adrenoc.lab.calibrate.validate.findings import (
    CONTESTS,
    Confirmed,
    FamilyFinding,
    JoinFinding,
    KernelClock,
    KernelFinding,
    KernelTimes,
    Timed,
    confirm,
    family_findings,
    kernel_finding,
)
from adrenoc.lab.calibrate.validate.table import LayerRow, families_in_turn
from adrenoc.lab.tune.refit import (
    Fitted,
    FittedKernel,
    Key,
    fit_cost,
    replace_values,
    tables_of,
    value_of,
)
from adrenoc.lab.tune.tasks import TunePlan, TuneTask, Variant, VariantBuilder, plan_model
from adrenoc.lab.tune.tuner import tolerance_of
from adrenoc.target.cost import Cost
from adrenoc.target.target import Target

ALWAYS, NEVER = 1e-9, 1e9
"""Of `[joins]`: what one kernel has to be faster by, so that it is taken wherever it can be."""
JOINS: Mapping[str, tuple[str, ...]] = {
    "pair": ("pair",),
    # Three kernels remain a choice of the model's among the ways of the algorithm.
    "winograd": ("winograd", "winograd_least_launches"),
    "prologue": ("prologue",),
}
"""What a cost model decides -> the keys of `[joins]` that decide it."""
_NEVER_TOO = {"winograd": ("winograd_three",)}
"""Keys that only the other way needs."""
BORDER = "softmax"
"""What ends each layer's model, and is measured only where a row asks for it."""


@dataclass(frozen=True, kw_only=True)
class Forms:
    """The plans of a layer; `joined` and `apart` where its kernels can be either."""

    row: LayerRow
    chosen: TunePlan
    joined: TunePlan | None = None
    apart: TunePlan | None = None

    @property
    def is_joined(self) -> bool:
        """Return whether the cost model chose the joined form."""
        return self.joined is not None and digests_of(self.chosen) == digests_of(self.joined)

    @property
    def validated(self) -> tuple[tuple[TunePlan, TuneTask], ...]:
        """Return the kernels whose schedules are measured: the joined one where there is one."""
        plan = self.joined or self.chosen
        elsewhere = digests_of(self.apart) if self.apart is not None else frozenset()
        return tuple(
            (plan, task)
            for task in plan.tasks
            if self._counts(task) and task.digest not in elsewhere
        )

    @property
    def compared(self) -> tuple[tuple[TunePlan, tuple[TuneTask, ...]], ...]:
        """Return the kernels that only the joined form has, and those of the other."""
        if self.joined is None or self.apart is None:
            return ()
        joined, apart = digests_of(self.joined), digests_of(self.apart)
        return (
            (self.joined, tuple(t for t in self.joined.tasks if t.digest not in apart)),
            (self.apart, tuple(t for t in self.apart.tasks if t.digest not in joined)),
        )

    def _counts(self, task: TuneTask) -> bool:
        if self.row.kernels:
            return task.family in self.row.kernels
        return task.family != BORDER and not isinstance(task.candidates[0], WorkGroup)


def forms_of(row: LayerRow, target: Target, options: CompileOptions, folder: Path) -> Forms | None:
    """Plan a layer; None where none of its kernels has a choice on this target. `folder` gets its
    model."""
    chosen = plan_of(row, target, options, folder)
    if chosen is None or not row.join:
        return None if chosen is None else Forms(row=row, chosen=chosen)
    keys = JOINS[row.join]
    never = (*keys, *_NEVER_TOO.get(row.join, ()))
    joined, apart = (
        plan_of(row, replace_joins(target, dict.fromkeys(names, value)), options, folder)
        for names, value in ((keys, ALWAYS), (never, NEVER))
    )
    if joined is None or apart is None or digests_of(joined) == digests_of(apart):
        return Forms(row=row, chosen=chosen)  # they cannot join here
    return Forms(row=row, chosen=chosen, joined=joined, apart=apart)


def plan_of(
    row: LayerRow, target: Target, options: CompileOptions, folder: Path
) -> TunePlan | None:
    """Plan a layer once, by a target's own constants; None where no kernel has a choice. `folder`
    gets its model."""
    path = folder / "layer.onnx"
    if not path.exists():
        write_atomically(path, row.layer.model().SerializeToString())
    try:
        # A layer alone is between two others of a network: its tensors lie in half.
        asked = replace(options, keep_float32=False)
        return plan_model(path, target=target, options=asked, reporter=SilentReporter())
    except CompileError:
        return None


def replace_joins(target: Target, values: Mapping[str, float]) -> Target:
    """Make a target with other values of `[joins]`."""
    joins = {("joins", key): value for key, value in values.items()}
    return replace(target, cost=replace_values(target.cost, joins))


def digests_of(plan: TunePlan) -> frozenset[str]:
    """Return the digests of a plan's kernels."""
    return frozenset(task.digest for task in plan.tasks)


MOST_SCHEDULES = 40
US_A_MS = 1e3


@dataclass(frozen=True, kw_only=True)
class ValidationRequest(DeviceRequest):
    """Which layers to measure where, as compiled for which target with which options."""

    target: Target
    options: CompileOptions
    rows: tuple[LayerRow, ...]
    schedules: int = MOST_SCHEDULES


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What was measured, and what the target's constants make of it."""

    device: DeviceFacts
    target: Target
    options: CompileOptions
    date: datetime.date
    kernels: tuple[KernelFinding, ...]
    families: tuple[FamilyFinding, ...]
    joins: tuple[JoinFinding, ...]
    left_out: tuple[tuple[str, str], ...]
    """Layer, and why it was not measured."""
    timed: tuple[Timed, ...]
    time_s: float


Say = Callable[[str, str], None]
"""Hears of each layer as it ends, and of what came of it."""


def run_validation(request: ValidationRequest, *, say: Say = lambda *_: None) -> Validation:
    """Measure the layers. Raises RemoteError where the device cannot be reached, or went away
    before anything was measured; DeviceError where it runs no kernel at all."""
    with opened_bench(request) as (bench, device, scratch):
        run = _Run(request=request, bench=bench, scratch=scratch, say=say)
        run.layers()
    cost = request.target.cost
    return Validation(
        device=device,
        target=request.target,
        options=request.options,
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        kernels=tuple(kernel_finding(timed, cost) for timed in run.timed),
        families=family_findings(run.timed, cost),
        joins=tuple(run.joins),
        left_out=tuple(run.left_out),
        timed=tuple(run.timed),
        time_s=run.spent_s,
    )


def confirm_choices(request: DeviceRequest, validation: Validation, cost: Cost) -> Confirmed:
    """Run what other constants choose on the device that was validated. Raises RemoteError where
    the device cannot be reached, or went away; DeviceError where it runs no kernel at all."""
    with opened_bench(request) as (bench, _, scratch):

        def build(kernel: FittedKernel, number: int) -> Variant:
            return VariantBuilder(kernel.plan, scratch)(kernel.task, number)

        old = validation.target.cost
        return confirm(validation.timed, old, cost, bench=bench, build=build, scratch=scratch)


class _Run:
    """The layers, one after the other, within the budget."""

    def __init__(self, *, request: ValidationRequest, bench: Bench, scratch: Path, say: Say):
        self._request, self._bench, self._scratch, self._say = request, bench, scratch, say
        self._began = time.monotonic()
        self.timed: list[Timed] = []
        self.joins: list[JoinFinding] = []
        self.left_out: list[tuple[str, str]] = []

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    def layers(self) -> None:
        rows = families_in_turn(self._request.rows)
        for number, row in enumerate(rows):
            left_s = self._request.budget_s - self.spent_s
            if left_s <= 0:
                self._leave(row, "the budget of time was spent before")
                continue
            try:
                self._layer(row, min(left_s, SHARE * left_s / (len(rows) - number)))
            except RemoteError as error:
                if not self.timed:
                    raise
                for left in rows[number:]:
                    self._leave(left, error.message)
                return

    def _leave(self, row: LayerRow, why: str) -> None:
        self.left_out.append((row.layer.name, why))
        self._say(row.layer.name, f"left out: {why}")

    def _layer(self, row: LayerRow, share_s: float) -> None:
        end = time.monotonic() + share_s
        folder = self._scratch / f"layer{len(list(self._scratch.iterdir()))}"
        folder.mkdir()
        forms = forms_of(row, self._request.target, self._request.options, folder)
        if forms is None or not forms.validated:
            self._leave(row, "none of its kernels has a choice of schedules on this target")
            return
        said = []
        for plan, task in forms.validated:
            found = self._kernel(row, plan, task, folder, end)
            if found is None:
                said.append(f"{task.family}: none of the first schedules ran")
                continue
            self.timed.append(found)
            finding = kernel_finding(found, self._request.target.cost)
            said.append(
                f"{task.family}, {finding.measured} of {finding.offered}: regret "
                f"{finding.regret:.2f}, rank {finding.rank:.2f}"
            )
        joined = self._join(forms, folder)
        if joined is not None:
            self.joins.append(joined)
            said.append(f"{joined.takes} taken, apart takes {joined.ratio:.2f} of joined")
        self._say(row.layer.name, "; ".join(said))

    def _kernel(
        self, row: LayerRow, plan: TunePlan, task: TuneTask, folder: Path, end: float
    ) -> Timed | None:
        build = VariantBuilder(plan, folder)
        clock = KernelClock(
            bench=self._bench,
            build=lambda number: build(task, number),
            reference=folder / f"{task.digest}_reference.npy",
            tolerance=tolerance_of(self._request.options),
            is_late=lambda: time.monotonic() > end,
        )
        times = clock.measure(task.spread(self._request.schedules))
        return None if times is None else timed_of(row, plan, task, times)

    def _join(self, forms: Forms, folder: Path) -> JoinFinding | None:
        """Return both ways of a layer by the schedules that the model chooses, in turn."""
        if not forms.compared:
            return None
        variants, joined_count = [], 0
        for plan, tasks in forms.compared:
            build = VariantBuilder(plan, folder)
            try:
                variants += [build(task, 0) for task in tasks]
            except AdrenocError as error:
                self.left_out.append((f"{forms.row.layer.name}, joined or apart", error.message))
                return None
            joined_count = joined_count or len(variants)
        times_us: list[tuple[float, ...]] = [()] * len(variants)
        try:
            for _ in range(CONTESTS):
                answers = self._bench.launch(variants, folder / "joined.npy")
                times_us = [a + b for a, b in zip(times_us, answers.times_us, strict=True)]
        except ProbeError as error:
            self.left_out.append((f"{forms.row.layer.name}, joined or apart", str(error)))
            return None
        return join_of(forms, times_us, joined_count)


def timed_of(row: LayerRow, plan: TunePlan, task: TuneTask, times: KernelTimes) -> Timed:
    """Return the times of a kernel as what constants are fitted to."""
    measured = FittedKernel(
        plan=plan,
        task=task,
        layer=row.layer.name,
        tiles=tuple(task.candidates[number] for number in times.times_us),
        times_ms=tuple(time_us / US_A_MS for time_us in times.times_us.values()),
    )
    return Timed(family=row.family, kept_out=row.kept_out, measured=measured, times=times)


def join_of(forms: Forms, times_us: Sequence[Sequence[float]], joined_count: int) -> JoinFinding:
    """Judge whether to join kernels, from times of both ways; the joined kernels come first."""
    rounds = [
        (sum(every[:joined_count]), sum(every[joined_count:]))
        for every in zip(*times_us, strict=True)
    ]
    joined_us = statistics.median(joined for joined, _ in rounds)
    ratio = statistics.median(apart / joined for joined, apart in rounds)
    return JoinFinding(
        layer=forms.row.layer.name,
        join=forms.row.join,
        kept_out=forms.row.kept_out,
        takes="joined" if forms.is_joined else "apart",
        joined_us=joined_us,
        apart_us=joined_us * ratio,
        spread=spread_of([apart / joined for joined, apart in rounds]),
    )


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
    """Fit the target's constants to the layers that are not kept out. What `confirm` does not find
    to choose better is not taken, nor what no layer that was kept out can be asked about. Raises
    DeviceError where too few of them were measured."""
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

        def is_apart(threshold: float) -> bool:
            asked = replace_joins(target, {JOINS[row.join][0]: threshold})
            plan = plan_of(row, asked, options, folder)
            return plan is None or digests_of(plan) != joined

        place = bisect_left(THRESHOLDS, True, key=is_apart)
    return THRESHOLDS[place - 1] if place else 0.0


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
