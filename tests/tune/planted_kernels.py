"""A small model to tune, devices that answer by rule, and candidates that are broken on purpose."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from adrenoc.base.reporter import SilentReporter
from adrenoc.base.tvmapi import fconst, iconst, splat
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.tuning_log import LogWriter, Status, Trial, TunedDevice, read_log
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.maps import texel_of_thread
from adrenoc.kernels.families.shared.context import KernelCall
from adrenoc.lab.tune.farm import MeasureOutcome
from adrenoc.lab.tune.search import TuneProgress
from adrenoc.lab.tune.session import MeasureJob, TrialResult
from adrenoc.lab.tune.tasks import Argument, TunePlan, TuneTask, Variant, VariantBuilder, plan_model
from adrenoc.lab.tune.tuner import TuneOptions, Tuner
from adrenoc.target.target import load_target
from tests.models import graph

DEVICE = TunedDevice(name="rule", driver="1")

Rule = Callable[[TuneTask, int, MeasureJob], MeasureOutcome | float]
"""What a device answers: a time in microseconds, or an outcome as it is."""


class SilentObserver:
    """A TuneObserver that says nothing."""

    def progress(self, progress: TuneProgress) -> None:
        """Ignore that something changed."""

    def event(self, text: str) -> None:
        """Ignore the remark."""


def small_model(channels: int = 8) -> onnx.ModelProto:
    """A convolution and a pool."""
    rng = np.random.default_rng(4)
    constants = {
        "w": rng.standard_normal((8, channels, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
    }
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) "
        "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>(r)"
    )
    return graph(nodes, {"x": [1, channels, 16, 16]}, ["y"], constants)


def plan_small(folder: Path, model: onnx.ModelProto | None = None) -> TunePlan:
    """The plan of the small model for this machine."""
    path = folder / "small.onnx"
    onnx.save(model or small_model(), path)
    return plan_model(
        path, target=load_target("host"), options=CompileOptions(), reporter=SilentReporter()
    )


class RuleFarm:
    """A farm of one device that answers by a rule, at once and in order."""

    lanes = 1
    capacity = 2

    def __init__(self, rule: Rule, *, interrupt_after: int | None = None) -> None:
        self._rule = rule
        self._jobs: list[MeasureJob] = []
        self._left = itertools.count() if interrupt_after is None else None
        self._until = interrupt_after
        self.jobs: list[MeasureJob] = []

    def submit(self, job: MeasureJob) -> None:
        """See `Farm`."""
        self._jobs.append(job)
        self.jobs.append(job)

    def check_presence(self, patience_s: float = 0.0) -> None:
        """See `Farm`."""

    def next_outcome(self, timeout_s: float) -> MeasureOutcome | None:
        """See `Farm`."""
        if self._until is not None:
            if self._until == 0:
                raise KeyboardInterrupt
            self._until -= 1
        job = self._jobs.pop(0)
        times = []
        for variant in job.variants:
            digest, number = variant.kernel.split(":")
            answer = self._rule(TASKS[digest], int(number), job)
            if isinstance(answer, MeasureOutcome):
                return answer
            times.append((answer, answer * 1.01, answer * 0.99))
        errors = tuple(0.0 for _ in times)
        result = TrialResult(times_us=tuple(times), errors=errors)
        return MeasureOutcome(job=job, status=Status.OK, device=DEVICE, result=result)


TASKS: dict[str, TuneTask] = {}


def named_variant(task: TuneTask, number: int) -> Variant:
    """A variant that is a name only."""
    TASKS[task.digest] = task
    argument = Argument(shape=(1,), dtype="float32", scope="global", file="")
    return Variant(
        kernel=f"{task.digest}:{number}",
        source="",
        work_items=(1, 1, 1),
        work_group=(1, 1, 1),
        arguments=(argument,),
    )


def tune_by_rule(
    plan: TunePlan,
    log: Path,
    rule: Rule,
    *,
    trials: int,
    budget_s: float = 0.0,
    interrupt_after: int | None = None,
    farm: RuleFarm | None = None,
    told: list[str] | None = None,
) -> tuple[TuneProgress, tuple[Trial, ...], RuleFarm]:
    """Tune with a rule for a device; returns the result, the log, and what was asked."""
    farm = farm or RuleFarm(rule, interrupt_after=interrupt_after)
    observer = SilentObserver()
    if told is not None:
        observer.event = told.append
    writer = LogWriter(log)
    try:
        result = Tuner(
            plan,
            farm=farm,
            build=named_variant,
            writer=writer,
            known=read_log(log),
            options=TuneOptions(trials=trials, budget_s=budget_s),
            observer=observer,
            scratch=log.parent,
        ).run()
    finally:
        writer.close()
    return result, read_log(log), farm


Body = Callable[[KernelBuilder, list[Access], Access], None]


class PlantedBuilder(VariantBuilder):
    """Builds candidates, some of them with another kernel than they should have."""

    def __init__(self, plan: TunePlan, scratch: Path, planted: dict[tuple[str, int], Body]) -> None:
        super().__init__(plan, scratch)
        self._planted = planted

    def builder(self, task: TuneTask, number: int, call: KernelCall) -> KernelBuilder:
        """What holds the planted kernel, where there is one."""
        body = self._planted.get((task.family, number))
        if body is None:
            return super().builder(task, number, call)
        _, context = self._plan.call(task, task.candidates[number])
        params, placed = context.params, context.graph
        specs = [
            params[name].spec if name in params else placed.operand(name) for name in call.arguments
        ]
        builder = KernelBuilder("planted", compute="float32", limits=self._plan.target.limits)
        inputs = [builder.input(spec) for spec in specs[:-1]]
        body(builder, inputs, builder.output(specs[-1]))
        return builder


def wrong(builder: KernelBuilder, inputs: list[Access], out: Access) -> None:
    """All elements are three."""
    n, block, h, w = texel_of_thread(builder, out.spec)
    out.write(n, block, h, w, splat(fconst(3.0, "float32")))


def unstable(builder: KernelBuilder, inputs: list[Access], out: Access) -> None:
    """Every second column keeps what was there."""
    e = out.extents
    w, h, block = builder.threads(e.w // 2, e.h, e.blocks)
    out.write(iconst(0), block, h, w * iconst(2), splat(fconst(3.0, "float32")))


def hanging(builder: KernelBuilder, inputs: list[Access], out: Access) -> None:
    """A loop that ends when the device is long gone."""
    n, block, h, w = texel_of_thread(builder, out.spec)
    sums = builder.registers(1)
    sums.fill(0.0)
    zero = iconst(0)
    with builder.loop(2**31 - 1) as i, builder.loop(2**31 - 1) as j:
        texel = builder.let(inputs[0].texel(zero, zero, zero, (i + j) % iconst(16)))
        sums[0] = sums[0] * splat(fconst(0.5, "float32")) + texel
    out.write(n, block, h, w, sums[0])


@contextmanager
def log_writer(path: Path) -> Iterator[LogWriter]:
    """A writer that is closed at the end."""
    writer = LogWriter(path)
    try:
        yield writer
    finally:
        writer.close()
