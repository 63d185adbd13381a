"""Schedules of standard layers, timed by machine code: the table that constants are fitted to.

Of each kernel with a choice, schedules are spread over the order of the family's estimates: the
first ones, among which a choice is made, and some of the rest.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from fitting.layers import Layer
from fitting.machine_code import analysed_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from adrenoc.base.errors import CompileError
from adrenoc.base.reporter import SilentReporter
from adrenoc.ir.options import resolve_options
from adrenoc.lab.tune.refit.measurements import Measurement
from adrenoc.lab.tune.tasks import TunePlan, plan_model
from adrenoc.target.target import load_target


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A layer for one GPU under one preset."""

    layer: str
    gpu: str
    preset: str
    plan: TunePlan


def planned(layers: Sequence[Layer], gpus: Sequence[str], presets: Sequence[str]) -> list[Planned]:
    """The layers with a choice of schedules, planned for each GPU and preset."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        for layer in layers:
            onnx.save(layer.model(), path)
            for gpu in gpus:
                target = load_target(f"adreno:{gpu}")
                for preset in presets:
                    options = resolve_options(target, preset=preset).options
                    try:
                        plan = plan_model(
                            path, target=target, options=options, reporter=SilentReporter()
                        )
                    except CompileError:  # no kernel with a choice
                        continue
                    found.append(Planned(layer=layer.name, gpu=gpu, preset=preset, plan=plan))
    return found


def measured(
    of: Planned, estimator: Any, families: Sequence[str], count: int
) -> Iterator[tuple[Measurement, Measurement]]:
    """Times of some schedules of the layer's kernels, by the analyser; what it refuses is left.

    Local memory is charged by width, and then as if width cost nothing.
    """
    for task in of.plan.tasks:
        if families and task.family not in families:
            continue
        for number in task.spread(count):
            tile = task.candidates[number]
            with tempfile.TemporaryDirectory() as folder:
                row = analysed_kernel(of.plan, task, tile, of.gpu, estimator, Path(folder))
            if row is None:
                continue
            by_width = Measurement(
                layer=of.layer,
                preset=of.preset,
                device=of.plan.target.name,
                family=task.family,
                digest=task.digest,
                actions=task.actions[number],
                time_ms=row.est_ms,
            )
            yield by_width, replace(by_width, time_ms=row.narrow_ms)
