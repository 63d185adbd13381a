"""Tune without a device: what the cost model makes of kernels, beside what a log holds of them."""

from __future__ import annotations

import time

from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.ir.tuning_log import Trial
from adrenoc.lab.tune.progress import TuneProgress
from adrenoc.lab.tune.standing import TaskStanding
from adrenoc.lab.tune.tasks import TunePlan


def rank_offline(plan: TunePlan, known: tuple[Trial, ...], *, trials: int) -> TuneProgress:
    """Show each task with the best of what was measured before; `trials` are those asked for.

    Nothing is written: the cost model picks so at every compilation.
    """
    started = time.monotonic()
    own = tuple(t for t in known if t.gpu == plan.target.measured_as)
    with TemporaryFolder("tune") as scratch:
        kernels = tuple(TaskStanding(task, own, scratch).progress() for task in plan.tasks)
    both = [k for k in kernels if k.untuned_us and k.best_us]
    best_us = sum(k.calls * k.best_us for k in both)
    measured = sum(k.trials for k in kernels)
    return TuneProgress(
        phase="ranked by the cost model",
        references=sum(k.untuned_us > 0 for k in kernels),
        trials=measured,
        wanted=trials,
        failed=sum(k.failed for k in kernels),
        resumed=measured,
        devices=0,
        trials_per_s=0.0,
        elapsed_s=time.monotonic() - started,
        left_s=0.0,
        gain=sum(k.calls * k.untuned_us for k in both) / best_us if best_us else 1.0,
        kernels=kernels,
    )
