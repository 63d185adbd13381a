"""What a validation found: of each kernel, each family, and each decision to join kernels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.ir.tuning_log import Actions
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.refit.blame import blame
from adrenoc.lab.tune.refit.fit import Quality, constants_to_fit, quality_of, that_matter
from adrenoc.lab.tune.refit.kernels import FittedKernel
from adrenoc.target.cost.cost import Cost

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
        """How many times as long the kernels take apart."""
        return self.apart_us / self.joined_us

    @property
    def is_clear(self) -> bool:
        """Whether one way is so much faster that the decision counts."""
        return max(self.ratio, 1 / self.ratio) > CLEAR

    @property
    def is_right(self) -> bool:
        """Whether the model takes the faster way."""
        return (self.takes == "joined") == (self.ratio > 1.0)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A kernel with times of its schedules, and how far they can be trusted."""

    family: str
    kept_out: bool
    measured: FittedKernel
    spread: float
    noise: float
    refused: tuple[str, ...]


def kernel_finding(timed: Timed, cost: Cost) -> KernelFinding:
    """What constants choose for one kernel."""
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
        spread=timed.spread,
        noise=timed.noise,
        chosen=actions_of(kernel.tiles[chosen]),
        best=actions_of(kernel.tiles[best]),
        refused=timed.refused,
        schedules=tuple(
            (actions_of(tile), time_ms * US_A_MS)
            for tile, time_ms in zip(kernel.tiles, times_ms, strict=True)
        ),
    )


def family_findings(timed: Sequence[Timed], cost: Cost) -> tuple[FamilyFinding, ...]:
    """The families in the order of their first kernels."""
    by_family: dict[str, list[FittedKernel]] = {}
    for one in timed:
        by_family.setdefault(one.family, []).append(one.measured)
    return tuple(_family(family, kernels, cost) for family, kernels in by_family.items())


def _family(family: str, kernels: Sequence[FittedKernel], cost: Cost) -> FamilyFinding:
    quality = quality_of(kernels, cost)
    keys = that_matter(kernels, cost, constants_to_fit())
    to_blame = blame(kernels, cost, keys) if quality.regret > 1.0 else None
    if to_blame is not None:
        change = str(to_blame)
    else:
        change = "no single one" if quality.regret > 1.0 else ""
    return FamilyFinding(
        family=family,
        kernels=quality.kernels,
        regret=quality.regret,
        worst=quality.worst,
        rank=quality.rank,
        change=change,
    )


def overall(timed: Sequence[Timed], cost: Cost, *, kept_out: bool | None = None) -> Quality:
    """All kernels, or those that a fit may or may not see."""
    wanted = [t.measured for t in timed if kept_out is None or t.kept_out is kept_out]
    return quality_of(wanted, cost)


def share_right(joins: Sequence[JoinFinding]) -> tuple[int, int]:
    """How many decisions are right, of those that count."""
    clear = [join for join in joins if join.is_clear]
    return sum(join.is_right for join in clear), len(clear)


def noise_of(kernels: Sequence[KernelFinding]) -> float:
    """The median factor by which two measurements of the same schedule differ."""
    known = [finding.noise for finding in kernels]
    return math.exp(statistics.median(known)) if known else 1.0
