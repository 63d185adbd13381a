"""The cost model's thresholds of joined kernels, moved by a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adrenoc.kernels.families.shared.machine import Machine


def set_joins(patch: pytest.MonkeyPatch, **values: float) -> None:
    """Have everything compiled with other values of `[joins]`."""
    known = Machine.from_performance

    def change(*facts: object) -> Machine:
        machine = known(*facts)
        cost = machine.cost
        return replace(machine, cost=replace(cost, joins=replace(cost.joins, **values)))

    patch.setattr(Machine, "from_performance", change)
