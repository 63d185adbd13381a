"""Starting points for a kernel: what was good for the same kernel elsewhere, or for a near one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from adrenoc.ir.tuning_log import Trial, best_trials
from adrenoc.lab.tune.tasks import Task

MOST_SEEDS = 4


def seeds(task: Task, trials: Iterable[Trial]) -> tuple[int, ...]:
    """Numbers of candidates, the most promising first.

    Of the same kernel on other GPUs first, then of kernels of the family by how far their shapes
    are from this one's.
    """
    by_gpu: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.family == task.family:
            by_gpu.setdefault(trial.gpu, []).append(trial)
    found: list[tuple[float, int]] = []
    for own in by_gpu.values():
        for trial in best_trials(own).values():
            far = 0.0 if trial.kernel == task.digest else 1e-6 + distance(trial.work, task)
            number = task.position(dict(trial.actions))
            if number is not None and math.isfinite(far):
                found.append((far, number))
    return tuple(dict.fromkeys(number for _, number in sorted(found)))[:MOST_SEEDS]


def distance(work: Mapping[str, Any], task: Task) -> float:
    """Return how many doublings lie between two kernels; infinite where they are of different
    kinds."""
    own = task.choice.work
    if any(work.get(key) != own.get(key) for key in ("op", "storage", "compute")):
        return math.inf
    ours, theirs = (
        _numbers([own["attrs"], own["output"]]),
        _numbers([work.get("attrs"), work.get("output")]),
    )
    if len(ours) != len(theirs):
        return math.inf
    return sum(
        abs(math.log2((1 + abs(a)) / (1 + abs(b)))) for a, b in zip(ours, theirs, strict=True)
    )


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        return [n for key in sorted(value) for n in _numbers(value[key])]
    if isinstance(value, list | tuple):
        return [n for part in value for n in _numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []
