"""Why a kernel keeps fewer threads in flight than a GPU could: what schedules of more would take.

Threads hide latency; beyond that they only take registers from each other.  So fewer are right
where memory or a pipe is the bound, where the whole kernel has no more, or where the schedules that
keep more take longer: those are analysed here, of each number of vectors that a thread holds the
best by the family's own estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOALS = {"a660": 512, "a750": 768}
"""Threads in flight of a micro shader processor that a kernel should keep."""
MOST_TRIED, ENOUGH_KEPT = 8, 3
WAITS = ("latency", "dram")
"""What a kernel waits for that is not a pipe."""
HELD = ("pixels", "out_blocks", "rows", "blocks", "tiles", "key_blocks")
"""Actions of tiles, of any family, whose product is the sums that a thread holds."""
AS_FAST = 0.99
"""Of the chosen schedule's estimate: less than this, another one is the faster."""

Analyse = Callable[[Any, Path], Any]
"""From a kernel's call and a file for its source to its row."""


@dataclass(frozen=True, kw_only=True)
class Other:
    """A schedule that was not chosen, analysed."""

    actions: str
    threads_in_flight: int
    scratch_bytes: int
    est_ms: float


@dataclass(frozen=True, kw_only=True)
class Fewer:
    """Why a kernel keeps fewer threads in flight than the goal."""

    goal: int
    because: str
    est_ms: float
    """Of the chosen schedule."""
    others: tuple[Other, ...]

    @property
    def best(self) -> Other | None:
        """The fastest of the others that keeps the goal."""
        kept = [o for o in self.others if o.threads_in_flight >= self.goal and not o.scratch_bytes]
        return min(kept, key=lambda other: other.est_ms, default=None)

    @property
    def is_mistaken(self) -> bool:
        """Whether a schedule that keeps the goal is faster."""
        return self.best is not None and self.best.est_ms < AS_FAST * self.est_ms

    def __str__(self) -> str:
        if not self.others:
            return f"{self.because}; no other schedule"
        tried = f"of {len(self.others)} others"
        if self.best is None:
            return f"{self.because}; {tried} none keeps {self.goal}"
        best = f"{self.best.est_ms:.4f} ms with {self.best.threads_in_flight} ({self.best.actions})"
        verdict = "FASTER" if self.is_mistaken else "the best"
        return f"{self.because}; {tried}, {verdict} that keeps {self.goal}: {best}"


def why_fewer(
    row: Any, state: Any, kernel: Any, gpu: str, folder: Path, analyse: Analyse
) -> Fewer | None:
    """The reason, with the schedules that were tried; None for a kernel that keeps enough."""
    goal = GOALS[gpu]
    if row.threads_in_flight >= goal:
        return None
    others = []
    if kernel.choice is not None:
        others = _others(goal, state, kernel, folder, analyse)
    return Fewer(
        goal=goal,
        because=_because(row, state, kernel, goal),
        est_ms=row.est_ms,
        others=tuple(others),
    )


def _because(row: Any, state: Any, kernel: Any, goal: int) -> str:
    """What the chosen schedule waits for."""
    from adrenoc.kernels.families.shared.machine import Machine

    if row.dram_ms >= row.pipes_ms:
        return "memory is the bound"
    if row.waits not in WAITS:
        return f"the {row.waits} pipe is always busy"
    launch = kernel.launch
    started = math.prod(launch.grid) * math.prod(launch.work_group)
    of_one = (
        started / Machine.from_performance(state.target.performance, state.target.cost).processors
    )
    if of_one < goal:
        return f"the kernel has {of_one:.0f} threads a processor in all"
    return "latency is the bound"


def _others(goal: int, state: Any, kernel: Any, folder: Path, analyse: Analyse) -> list[Other]:
    """Analyse schedules until some have kept the goal."""
    from adrenoc.kernels.families.shared.schedule import actions_of
    from adrenoc.lab.tune.tasks import Task, TunePlan

    choice, graph = kernel.choice, state.program.graph
    node = next(node for node in graph.nodes if node.name == choice.node)
    tiles = sorted(choice.candidates, key=choice.estimate)
    task = Task(
        digest=choice.digest,
        family=choice.family,
        calls=1,
        choice=choice,
        node=node,
        candidates=tuple(tiles),
    )
    plan = TunePlan(
        model=state.model,
        target=state.target,
        options=state.options,
        graph=graph,
        tasks=(task,),
    )
    others: list[Other] = []
    for number, tile in enumerate(_leaner(choice.tile, tiles)[:MOST_TRIED]):
        call, _ = plan.call(task, tile)
        row = analyse(call, folder / f"more{number}.cl")
        actions = actions_of(tile)
        others.append(
            Other(
                actions=" ".join(f"{name}={value}" for name, value in actions.items()),
                threads_in_flight=row.threads_in_flight,
                scratch_bytes=row.scratch_bytes,
                est_ms=row.est_ms,
            )
        )
        if sum(other.threads_in_flight >= goal for other in others) >= ENOUGH_KEPT:
            break
    return others


def _leaner(chosen: Any, tiles: Sequence[Any]) -> list[Any]:
    """Of each number of vectors held below the chosen tile's the best of `tiles`, best first."""
    best: dict[int, Any] = {}
    for tile in tiles:
        if held(tile) < held(chosen):
            best.setdefault(held(tile), tile)
    return list(best.values())


def held(tile: Any) -> int:
    """What a thread holds in registers of a tile, in vectors: results, and inputs asked for."""
    counts = [getattr(tile, name) for name in HELD if hasattr(tile, name)]
    return math.prod(counts) + getattr(tile, "unroll", 1) * max(1, sum(counts))
