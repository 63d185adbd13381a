"""How much of a budget of time the contests at the end need, by what devices did so far."""

from __future__ import annotations

import time
from collections.abc import Sequence

from adrenoc.lab.tune.standing import TaskStanding

LEAST, MOST = 0.05, 0.25
"""Of the budget."""
CONTENDERS = 2
"""Schedules of a kernel that are measured once more, in turn with the untuned one."""
_LOOK_S = 1.0


class ContestReserve:
    """Counts measured kernels, and says what the contests of some tasks may take."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._first_s = 0.0
        self._kernels = 0
        self._looked_s = 0.0
        self._seconds = LEAST * budget_s

    def came_back(self, kernels: int) -> None:
        """Note that so many kernels were built and measured."""
        self._first_s = self._first_s or time.monotonic()
        self._kernels += kernels

    def seconds(self, standings: Sequence[TaskStanding]) -> float:
        """Expected time of all contests that are due; looked at now and then."""
        now = time.monotonic()
        if self._budget_s and self._kernels > 1 and now - self._looked_s > _LOOK_S:
            self._looked_s = now
            due = sum(bool(standing.contenders(CONTENDERS)) for standing in standings)
            kernel_s = (now - self._first_s) / (self._kernels - 1)
            expected_s = due * (1 + CONTENDERS) * kernel_s
            self._seconds = max(LEAST * self._budget_s, min(MOST * self._budget_s, expected_s))
        return self._seconds
