"""What a validation found: of each kernel, each family, and each decision to join kernels.

Whether fitted constants choose better among all schedules, the device says itself (`confirm`).  A
validation measures some forty schedules of a kernel, of a thousand that there may be.  Constants
that were fitted to those may like one of the others best, of which no time tells anything: so the
new choice of each kernel runs in turn with the old one, before it is taken for good.

Schedules of one kernel are timed beside each other.  A device's clock, heat and other work change
what everything takes, so schedules are measured in turn with the one that the model chose, and what
counts is the ratio of two times of one round.  The fastest of a screening are luckier than the
others, so they run once more, against each other, and only that counts of them.  There the chosen
schedule runs twice, first and last in each round: by as much as these two differ, others do by
chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AdrenocError
from adrenoc.ir.tuning_log import Actions
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.calibrate.measure import ProbeError, spread_of
from adrenoc.lab.tune.refit import (
    FittedKernel,
    Quality,
    blame,
    constants_to_fit,
    quality_of,
    that_matter,
)
from adrenoc.lab.tune.session import TrialResult
from adrenoc.lab.tune.tasks import Variant
from adrenoc.target.cost import Cost

US_A_MS = 1e3
CLEAR = 1.1
"""The factor by which one way has to be faster for a decision to be right or wrong."""


@dataclass(frozen=True, kw_only=True)
class KernelFinding:
    """One kernel: times of the schedule of the least estimate, and of the fastest."""

    layer: str
    family: str
    kernel: str
    digest: str
    """The digest of the kernel's signature, as a tuning log has it."""
    kept_out: bool
    measured: int
    offered: int
    chosen_us: float
    best_us: float
    regret: float
    rank: float
    spread: float
    noise: float
    chosen: Actions
    best: Actions
    refused: tuple[str, ...]
    schedules: tuple[tuple[Actions, float], ...]
    """All that were measured, each with its time (us)."""


@dataclass(frozen=True, kw_only=True)
class FamilyFinding:
    """The kernels of a family together; `change` says which constant would have to change."""

    family: str
    kernels: int
    regret: float
    worst: float
    rank: float
    change: str


@dataclass(frozen=True, kw_only=True)
class JoinFinding:
    """One kernel for what may be several: times of both ways, and which one the model takes."""

    layer: str
    join: str
    kept_out: bool
    takes: str
    joined_us: float
    apart_us: float
    spread: float

    @property
    def ratio(self) -> float:
        """Return how many times as long the kernels take apart."""
        return self.apart_us / self.joined_us

    @property
    def is_clear(self) -> bool:
        """Return whether one way is so much faster that the decision counts."""
        return max(self.ratio, 1 / self.ratio) > CLEAR

    @property
    def is_right(self) -> bool:
        """Return whether the model takes the faster way."""
        return (self.takes == "joined") == (self.ratio > 1.0)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A kernel with times of its schedules, and how far they can be trusted."""

    family: str
    kept_out: bool
    measured: FittedKernel
    times: KernelTimes


def kernel_finding(timed: Timed, cost: Cost) -> KernelFinding:
    """Return what constants choose for one kernel."""
    kernel = timed.measured
    estimates, times_ms = kernel.estimates_ms(cost), kernel.times_ms
    chosen = min(range(len(times_ms)), key=estimates.__getitem__)
    best = min(range(len(times_ms)), key=times_ms.__getitem__)
    quality = quality_of([kernel], cost)
    return KernelFinding(
        layer=kernel.layer,
        family=timed.family,
        kernel=kernel.task.family,
        digest=kernel.task.digest,
        kept_out=timed.kept_out,
        measured=len(times_ms),
        offered=len(kernel.task.candidates),
        chosen_us=times_ms[chosen] * US_A_MS,
        best_us=times_ms[best] * US_A_MS,
        regret=quality.regret,
        rank=quality.rank,
        spread=timed.times.spread,
        noise=timed.times.noise,
        chosen=actions_of(kernel.tiles[chosen]),
        best=actions_of(kernel.tiles[best]),
        refused=timed.times.refused,
        schedules=tuple(
            (actions_of(tile), time_ms * US_A_MS)
            for tile, time_ms in zip(kernel.tiles, times_ms, strict=True)
        ),
    )


def family_findings(timed: Sequence[Timed], cost: Cost) -> tuple[FamilyFinding, ...]:
    """Return the families in the order of their first kernels."""
    by_family: dict[str, list[FittedKernel]] = {}
    for one in timed:
        by_family.setdefault(one.family, []).append(one.measured)
    return tuple(_family(family, kernels, cost) for family, kernels in by_family.items())


def _family(family: str, kernels: Sequence[FittedKernel], cost: Cost) -> FamilyFinding:
    quality = quality_of(kernels, cost)
    keys = that_matter(kernels, cost, constants_to_fit())
    change = ""
    if quality.regret > 1.0:
        change = str(blame(kernels, cost, keys) or "no single one")
    return FamilyFinding(
        family=family,
        kernels=quality.kernels,
        regret=quality.regret,
        worst=quality.worst,
        rank=quality.rank,
        change=change,
    )


def overall(timed: Sequence[Timed], cost: Cost, *, kept_out: bool | None = None) -> Quality:
    """Return all kernels, or those that a fit may or may not see."""
    wanted = [t.measured for t in timed if kept_out is None or t.kept_out is kept_out]
    return quality_of(wanted, cost)


def share_right(joins: Sequence[JoinFinding]) -> tuple[int, int]:
    """Return how many decisions are right, of those that count."""
    clear = [join for join in joins if join.is_clear]
    return sum(join.is_right for join in clear), len(clear)


def noise_of(kernels: Sequence[KernelFinding]) -> float:
    """Return the median factor by which two measurements of the same schedule differ."""
    known = [finding.noise for finding in kernels]
    return math.exp(statistics.median(known)) if known else 1.0


TOGETHER = 6
"""The schedules of a request, beside the chosen one."""
CONTENDERS = 4
CONTESTS = 2
MOST_BASES = 3
"""The schedules that may fail before the kernel is given up."""


class Launches(Protocol):
    """Anything that runs candidates: a bench, or a test's own device."""

    def launch(
        self, variants: Sequence[Variant], reference: Path, *, tolerance: float | None = None
    ) -> TrialResult:
        """Launch the candidates: the times of each."""


@dataclass(frozen=True, kw_only=True)
class KernelTimes:
    """Schedules of one kernel, by number, with the time of each; the first one is the base.

    `spread` is the width of the middle half of the ratios to the base, over the ratio: the median
    of the schedules.  By `noise` (a logarithm) two measurements of one schedule differ.  `refused`
    says what was wrong with others.
    """

    times_us: dict[int, float]
    spread: float
    noise: float
    refused: tuple[str, ...]


@dataclass(kw_only=True)
class KernelClock:
    """Measures one kernel; `build` makes a candidate of its number. `is_late` tells that the time
    is up: what was measured until then counts."""

    bench: Launches
    build: Callable[[int], Variant]
    reference: Path
    tolerance: float
    is_late: Callable[[], bool]
    _ratios: dict[int, list[float]] = field(default_factory=dict)
    _base_us: list[float] = field(default_factory=list)
    _twice: list[float] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)
    _built: dict[int, Variant] = field(default_factory=dict)

    def measure(self, numbers: Sequence[int]) -> KernelTimes | None:
        """Time these schedules; None where none of the first ones runs. Raises RemoteError where
        the device went away."""
        base = self._first_that_runs(numbers[:MOST_BASES])
        if base is None:
            return None
        others = numbers[numbers.index(base) + 1 :]
        for start in range(0, len(others), TOGETHER):
            if self._ratios and self.is_late():
                break
            self._time_beside_base(base, others[start : start + TOGETHER])
        screened = {number: statistics.median(own) for number, own in self._ratios.items()}
        best = sorted(screened, key=screened.__getitem__)[:CONTENDERS]
        if best:
            self._ratios |= {number: [] for number in best}
            for _ in range(CONTESTS):
                self._time_beside_base(base, [*best, base])
        return self._times(base, screened)

    def _times(self, base: int, screened: dict[int, float]) -> KernelTimes:
        base_us = statistics.median(self._base_us)
        known = {number: own for number, own in self._ratios.items() if own}
        times = {
            number: base_us * (statistics.median(known[number]) if number in known else ratio)
            for number, ratio in screened.items()
        }
        spreads = [spread_of(own) for own in known.values() if len(own) > 1]
        return KernelTimes(
            times_us={base: base_us, **times},
            spread=statistics.median(spreads) if spreads else spread_of(self._base_us),
            noise=abs(math.log(statistics.median(self._twice))) if self._twice else 0.0,
            refused=tuple(self._refused),
        )

    def _first_that_runs(self, numbers: Sequence[int]) -> int | None:
        """Return the first candidate that runs, whose output others are compared with."""
        for number in numbers:
            if not self._is_built(number):
                continue
            try:
                answers = self.bench.launch([self._variant(number)], self.reference)
            except ProbeError as error:
                self._refuse(number, error)
                continue
            self._base_us += answers.times_us[0]
            return number
        return None

    def _time_beside_base(self, base: int, numbers: Sequence[int]) -> None:
        """Measure candidates in turn with the base; what is refused is left out."""
        wanted = [number for number in numbers if self._is_built(number)]
        while True:
            variants = [self._variant(number) for number in (base, *wanted)]
            try:
                answers = self.bench.launch(variants, self.reference, tolerance=self.tolerance)
            except ProbeError as error:
                if not wanted:
                    return
                if error.index > 0:
                    self._refuse(wanted.pop(error.index - 1), error)
                elif len(wanted) > 1:  # nobody knows which: each alone
                    for number in wanted:
                        self._time_beside_base(base, [number])
                    return
                else:
                    self._refuse(wanted[0], error)
                    return
                continue
            self._take(base, wanted, answers)
            return

    def _take(self, base: int, numbers: Sequence[int], answers: TrialResult) -> None:
        base_us, *others_us = answers.times_us
        self._base_us += base_us
        for number, times_us in zip(numbers, others_us, strict=True):
            ratios = [mine / of_base for mine, of_base in zip(times_us, base_us, strict=True)]
            if number == base:
                self._twice += ratios
            else:
                self._ratios.setdefault(number, []).extend(ratios)

    def _variant(self, number: int) -> Variant:
        if number not in self._built:
            self._built[number] = self.build(number)
        return self._built[number]

    def _is_built(self, number: int) -> bool:
        try:
            self._variant(number)
        except AdrenocError as error:
            self._refuse(number, error)
            return False
        return True

    def _refuse(self, number: int, error: Exception) -> None:
        self._ratios.pop(number, None)
        said = error.message if isinstance(error, AdrenocError) else str(error)
        self._refused.append(f"schedule {number}: {said}")


Build = Callable[[FittedKernel, int], Variant]
"""Makes a candidate of a kernel's, by its number."""


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """Times of new choices over those of the old ones: geometric means over all kernels."""

    seen: float
    kept: float
    others: int
    """The kernels that choose another schedule now."""
    failed: str = ""
    """A new choice that does not run, and why."""

    @property
    def is_better(self) -> bool:
        """Return whether something became faster, and neither part slower."""
        both = (self.seen, self.kept)
        return not self.failed and min(both) < 1.0 and max(both) <= 1.0

    def decision(self, subject: str) -> Decision:
        """Return why what was fitted is not taken."""
        reason = self.failed or (
            f"of all schedules they choose others for {self.others} kernels, which take "
            f"{self.seen:.3f} of the time on the layers fitted to and {self.kept:.3f} on those "
            "kept out: one has to be below 1, and neither above"
        )
        return Decision(subject=subject, taken="kept as they were", reason=reason)


def confirm(
    timed: Sequence[Timed], old: Cost, new: Cost, *, bench: Launches, build: Build, scratch: Path
) -> Confirmed:
    """Run what `new` constants choose in turn with what `old` ones do. What cannot be run ends it:
    constants that lead there are none to take."""
    ratios: dict[bool, list[float]] = {False: [], True: []}
    others = 0
    for one in timed:
        numbers = [choice_of(one.measured, cost) for cost in (old, new)]
        ratio = 1.0
        if numbers[0] != numbers[1]:
            others += 1
            try:
                variants = [build(one.measured, number) for number in numbers]
                ratio = _ratio(variants, bench, scratch / f"{one.measured.task.digest}_fit.npy")
            except (ProbeError, AdrenocError) as error:
                said = error.message if isinstance(error, AdrenocError) else str(error)
                failed = f"{one.measured.layer} does not run as they choose: {said}"
                return Confirmed(seen=math.inf, kept=math.inf, others=others, failed=failed)
        ratios[one.kept_out].append(math.log(ratio))
    seen, kept = (
        math.exp(statistics.fmean(logs)) if logs else 1.0 for logs in (ratios[False], ratios[True])
    )
    return Confirmed(seen=seen, kept=kept, others=others)


def choice_of(kernel: FittedKernel, cost: Cost) -> int:
    """Return the number of the candidate that constants choose, of all that there are."""
    every = replace(kernel, tiles=tuple(kernel.task.candidates), times_ms=())
    estimates = every.estimates_ms(cost)
    return min(range(len(estimates)), key=estimates.__getitem__)


def _ratio(variants: Sequence[Variant], bench: Launches, reference: Path) -> float:
    """Return the time of the second over that of the first, of the rounds that they ran in turn."""
    ratios: list[float] = []
    for _ in range(CONTESTS):
        before, after = bench.launch(variants, reference).times_us
        ratios += [mine / other for mine, other in zip(after, before, strict=True)]
    return statistics.median(ratios)
