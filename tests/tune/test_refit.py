"""Constants are fitted to times: what is asked, what comes out."""

import math
import random
from dataclasses import dataclass, replace
from typing import cast

import onnx
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.ir.options import resolve_options
from adrenoc.ir.tuning_log import actions_key
from adrenoc.kernels.families.shared.schedule import WorkGroup
from adrenoc.lab.tune.refit import (
    FittedKernel,
    blame,
    constants_to_fit,
    fit_cost,
    loss_of,
    quality_of,
    rank_correlation,
    regret_of,
    replace_values,
    value_of,
)
from adrenoc.lab.tune.tasks import TunePlan, plan_model
from adrenoc.target.cost import Cost
from adrenoc.target.target import load_target
from tests.host.run_op import Ops

DEVICE = "adreno:a660"
STORED = load_target(DEVICE).cost


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> TunePlan:
    """Kernels of several families."""
    ops = Ops(seed=3)
    x = ops("Relu", ops.input(1, 24, 20, 20))
    x = ops("Conv", x, ops.weight(64, 24, 3, 3), ops.weight(64), strides=[2, 2], pads=[1] * 4)
    x = ops("Relu", ops("Conv", x, ops.weight(64, 1, 5, 5), group=64, pads=[2] * 4))
    x = ops("Relu", ops("Conv", x, ops.weight(64, 1, 3, 3), group=64, pads=[1] * 4))
    x = ops("Conv", x, ops.weight(32, 64, 3, 3), strides=[2, 2], pads=[1] * 4)
    x = ops("Flatten", ops("GlobalAveragePool", ops("Relu", x)))
    ops.output(ops("Softmax", ops("MatMul", x, ops.weight(32, 40))))
    path = tmp_path_factory.mktemp("refit") / "model.onnx"
    ops.save(path)
    assert onnx.load(path).graph.node
    target = load_target(DEVICE)
    options = resolve_options(target, preset="fp16").options
    return plan_model(path, target=target, options=options, reporter=SilentReporter())


def kernels_of(plan: TunePlan, cost: Cost = STORED, count: int = 24) -> list[FittedKernel]:
    """Some schedules of each kernel, with the times that the cost model itself would give."""
    kernels = []
    for task in plan.tasks:
        if isinstance(task.candidates[0], WorkGroup):
            continue
        distinct = {actions_key(a): number for number, a in enumerate(task.actions)}
        numbers = sorted(distinct.values())
        picked = sorted(random.Random(task.digest).sample(numbers, min(count, len(numbers))))
        tiles = tuple(task.candidates[number] for number in picked)
        known = FittedKernel(plan=plan, task=task, layer="m", tiles=tiles, times_ms=())
        if len(tiles) > 1:
            kernels.append(replace(known, times_ms=known.estimates_ms(cost)))
    return kernels


def test_rules_are_asked_with_other_constants(plan):
    assert {"conv2d", "depthwise_conv2d", "gemv"} <= {task.family for task in plan.tasks}
    clock = plan.target.performance.clock_mhz * 1e3
    for task in plan.tasks:
        tiles = task.candidates[:5]
        kernel = FittedKernel(plan=plan, task=task, layer="m", tiles=tiles, times_ms=())
        by_choice = [task.choice.estimate(tile) / clock for tile in tiles]
        assert kernel.estimates_ms(STORED) == pytest.approx(by_choice)
    slow = replace_values(
        STORED, {("conv_local", "k_step_slots"): 4e3, ("gemv", "texel_slots"): 4e3}
    )
    slower = {
        task.family
        for task in plan.tasks
        for k in [
            FittedKernel(plan=plan, task=task, layer="m", tiles=task.candidates[:1], times_ms=())
        ]
        if k.estimates_ms(slow) > k.estimates_ms(STORED)
    }
    assert slower == {"conv2d", "gemv"}


def test_the_constants_that_made_the_times_choose_best(plan):
    quality = quality_of(kernels_of(plan), STORED)
    assert quality.regret == 1.0
    assert quality.rank == pytest.approx(1.0)
    assert quality.scale == pytest.approx(1.0)


TRUTH = {
    ("conv_local", "k_step_slots"): 90.0,
    ("conv_local", "texel_load_slots"): 40.0,
    ("depthwise", "texel_slots"): 20.0,
}


def test_constants_that_made_the_times_are_found_again(plan):
    kernels = kernels_of(plan, replace_values(STORED, TRUTH))
    unused = ("attention", "run_slots")
    fitted = fit_cost(kernels, [], STORED, [*TRUTH, unused])
    assert fitted.before.regret >= fitted.after.regret == pytest.approx(1.0, abs=0.01)
    assert fitted.after.rank > fitted.before.rank
    for key, value in TRUTH.items():
        near = abs(math.log(value_of(fitted.cost, key) / value))
        assert near < 0.3 * abs(math.log(value_of(STORED, key) / value)), key
    assert value_of(fitted.cost, unused) == value_of(STORED, unused)
    assert {key for key, _, _ in fitted.changed} <= TRUTH.keys()


def test_times_of_the_stored_constants_change_none(plan):
    assert fit_cost(kernels_of(plan, count=8), [], STORED, list(TRUTH)).changed == ()


def test_kernels_that_are_kept_out_change_nothing(plan):
    kernels = kernels_of(plan, replace_values(STORED, TRUTH), 8)
    seen, kept = (
        [k for k in kernels if (k.task.family == "conv2d") is is_kept] for is_kept in (False, True)
    )
    fitted = fit_cost(seen, kept, STORED, list(TRUTH))
    assert {key[0] for key, _, _ in fitted.changed} == {"depthwise"}
    assert fitted.kept_before == fitted.kept_after
    assert fitted.kept_before.kernels == len(kept) > 0


def test_what_can_be_fitted_are_costs_and_no_bounds():
    keys = constants_to_fit()
    assert ("conv_local", "k_step_slots") in keys
    assert ("pipes", "local_read_clocks") in keys
    assert not {name for _, name in keys if name.startswith(("most_", "alike"))}
    assert not {table for table, _ in keys} & {"unstated"}


def test_regret_and_rank():
    assert regret_of([3.0, 1.0, 2.0], [2.0, 3.0, 1.5]) == 2.0
    assert rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 3.0], [30.0, 20.0, 10.0]) == pytest.approx(-1.0)
    assert rank_correlation([1.0, 1.0, 1.0], [30.0, 20.0, 10.0]) == 1.0
    assert loss_of([2.0, 4.0], [1.0, 2.0]) < loss_of([2.0, 4.1], [1.0, 2.0])
    assert loss_of([math.inf, 1.0], [1.0, 1.0]) == math.inf


@dataclass(frozen=True)
class Estimated:
    """Stands for a kernel: two estimates are constants, and the last is far from its time."""

    times_ms: tuple[float, ...] = (1.0, 1.2, 30.0)

    def estimates_ms(self, cost: Cost) -> tuple[float, ...]:
        spilled, waits = (value_of(cost, key) for key in (SPILLED, WAITS))
        return (waits, 1.0, spilled)


SPILLED, WAITS = ("pipes", "spilled"), ("conv_local", "chunk_waits")


def test_a_constant_is_to_blame_if_choices_are_better_without_it():
    cost = replace_values(STORED, {SPILLED: 2.0, WAITS: 3.0})
    kernels = cast("list[FittedKernel]", [Estimated()])
    nearer = replace_values(cost, {SPILLED: 16.0})
    assert loss_of(kernels[0].estimates_ms(nearer), kernels[0].times_ms) < loss_of(
        kernels[0].estimates_ms(cost), kernels[0].times_ms
    )
    assert blame(kernels, cost, [SPILLED]) is None, "estimates are nearer, and choose as badly"
    found = blame(kernels, cost, [SPILLED, WAITS])
    assert (found.key, found.before, found.regret) == (WAITS, 3.0, 1.0)
    assert found.after < 1.0
