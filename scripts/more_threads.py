"""Why a kernel keeps fewer threads in flight than a GPU could: what schedules of more would take.

Threads hide latency; beyond that they only take registers from each other. So fewer are right where
memory or a pipe is the bound, or where the schedules that keep more take longer: those are analysed
here, the best by the family's own estimate first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

GOALS = {"a660": 512, "a750": 768}
"""Threads in flight of a micro shader processor that a kernel should keep."""
MOST_TRIED = 6
WAITS = ("latency", "dram")
"""What a kernel waits for that is not a pipe."""

Analyse = Callable[[Any, Path], Any]
"""From a kernel's call and a file for its source to its row."""


def why_fewer(row: Any, state: Any, kernel: Any, gpu: str, folder: Path, analyse: Analyse) -> str:
    """The reason in a few words; "" for a kernel that keeps enough."""
    goal = GOALS[gpu]
    if row.threads_in_flight >= goal:
        return ""
    if row.dram_ms >= row.pipes_ms:
        return "waits for memory"
    if row.waits not in WAITS:
        return f"the {row.waits} pipe is always busy: more threads would wait for it, too"
    if kernel.choice is None or len(kernel.choice.candidates) < 2:
        return "no other schedule"
    return _best_with(goal, row, state, kernel, folder, analyse)


def _best_with(goal: int, row: Any, state: Any, kernel: Any, folder: Path, analyse: Analyse) -> str:
    """Analyse schedules until some have kept the goal."""
    from adrenoc.tune.tasks import Task, TunePlan

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
    fewer = [tile for tile in tiles if _held(tile) < _held(choice.tile)]
    kept = []
    for number, tile in enumerate(fewer[:MOST_TRIED]):
        call, _ = plan.call(task, tile)
        other = analyse(call, folder / f"more{number}.cl")
        if other.threads_in_flight >= goal:
            kept.append(other.est_ms)
    if not kept:
        return f"none of the {len(fewer[:MOST_TRIED])} smaller tiles tried keeps {goal}"
    return f"{goal} or more: at best {min(kept):.4f} ms (of {len(kept)})"


def _held(tile: Any) -> int:
    """What a thread holds in registers of a tile, in vectors: results, and inputs asked for."""
    results = getattr(tile, "pixels", 1) * getattr(tile, "out_blocks", 1)
    return results + getattr(tile, "pixels", 1) * getattr(tile, "unroll", 1)
