"""A layer planned as the cost model has it, and, where kernels may join, both ways by force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from adrenoc.base.errors import CompileError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.reporter import SilentReporter
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.schedule import WorkGroup
from adrenoc.lab.calibrate.validate.table import LayerRow
from adrenoc.lab.tune.refit.kernels import replace_values
from adrenoc.lab.tune.tasks import Task, TunePlan, plan_model
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
        """Whether the cost model chose the joined form."""
        return self.joined is not None and digests_of(self.chosen) == digests_of(self.joined)

    @property
    def validated(self) -> tuple[tuple[TunePlan, Task], ...]:
        """The kernels whose schedules are measured: the joined one where there is one."""
        plan = self.joined or self.chosen
        elsewhere = digests_of(self.apart) if self.apart is not None else frozenset()
        return tuple(
            (plan, task)
            for task in plan.tasks
            if self._counts(task) and task.digest not in elsewhere
        )

    @property
    def compared(self) -> tuple[tuple[TunePlan, tuple[Task, ...]], ...]:
        """The kernels that one form has and the other lacks: of the joined one, of the other."""
        if self.joined is None or self.apart is None:
            return ()
        joined, apart = digests_of(self.joined), digests_of(self.apart)
        return (
            (self.joined, tuple(t for t in self.joined.tasks if t.digest not in apart)),
            (self.apart, tuple(t for t in self.apart.tasks if t.digest not in joined)),
        )

    def _counts(self, task: Task) -> bool:
        if self.row.kernels:
            return task.family in self.row.kernels
        return task.family != BORDER and not isinstance(task.candidates[0], WorkGroup)


def forms_of(row: LayerRow, target: Target, options: CompileOptions, folder: Path) -> Forms | None:
    """Plan a layer; None where none of its kernels has a choice on this target.

    `folder` gets its model.
    """
    chosen = plan_of(row, target, options, folder)
    if chosen is None or not row.join:
        return None if chosen is None else Forms(row=row, chosen=chosen)
    keys = JOINS[row.join]
    joined, apart = (
        plan_of(row, replace_joins(target, values), options, folder)
        for values in (
            dict.fromkeys(keys, ALWAYS),
            dict.fromkeys((*keys, *_NEVER_TOO.get(row.join, ())), NEVER),
        )
    )
    if joined is None or apart is None or digests_of(joined) == digests_of(apart):
        return Forms(row=row, chosen=chosen)  # they cannot join here
    return Forms(row=row, chosen=chosen, joined=joined, apart=apart)


def plan_of(
    row: LayerRow, target: Target, options: CompileOptions, folder: Path
) -> TunePlan | None:
    """Plan a layer once, by a target's own constants; None where no kernel has a choice.

    `folder` gets its model.
    """
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
    """The digests of a plan's kernels."""
    return frozenset(task.digest for task in plan.tasks)
