"""Whether fitted constants choose better among all schedules, by the device's own word.

A validation measures some forty schedules of a kernel, of a thousand that there may be.  Constants
that were fitted to those may like one of the others best, of which no time tells anything: so the
new choice of each kernel runs in turn with the old one, before it is taken for good.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AdrenocError
from adrenoc.lab.calibrate.measure import ProbeError
from adrenoc.lab.calibrate.validate.findings import Timed
from adrenoc.lab.calibrate.validate.kernel_times import CONTESTS, Launches
from adrenoc.lab.tune.refit.kernels import FittedKernel
from adrenoc.lab.tune.variant import Variant
from adrenoc.target.cost.cost import Cost

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
        """Whether nothing became slower, neither what was fitted to nor what was kept out."""
        return not self.failed and self.seen <= 1.0 and self.kept <= 1.0

    def decision(self, subject: str) -> Decision:
        """Why what was fitted is not taken."""
        reason = self.failed or (
            f"of all schedules they choose others for {self.others} kernels, which take "
            f"{self.seen:.3f} of the time on the layers fitted to and {self.kept:.3f} on those "
            "kept out: neither may be above 1"
        )
        return Decision(subject=subject, taken="kept as they were", reason=reason)


def confirm(
    timed: Sequence[Timed], old: Cost, new: Cost, *, bench: Launches, build: Build, scratch: Path
) -> Confirmed:
    """Run what `new` constants choose in turn with what `old` ones do.

    What cannot be run ends it: constants that lead there are none to take.
    """
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
    """The number of the candidate that constants choose, of all that there are."""
    every = replace(kernel, tiles=tuple(kernel.task.candidates), times_ms=())
    estimates = every.estimates_ms(cost)
    return min(range(len(estimates)), key=estimates.__getitem__)


def _ratio(variants: Sequence[Variant], bench: Launches, reference: Path) -> float:
    """The time of the second over that of the first, of the rounds that they ran in turn."""
    ratios: list[float] = []
    for _ in range(CONTESTS):
        before, after = bench.launch(variants, reference).times_us
        ratios += [mine / other for mine, other in zip(after, before, strict=True)]
    return statistics.median(ratios)
