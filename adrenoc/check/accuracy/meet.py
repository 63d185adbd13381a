"""`adrenoc compile --accuracy`: find what has to be float32 for a tolerance to be met.

The kernels of the bundle run here, on the host's twin of the target; the reference is onnxruntime
or LiteRT.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tvm

from adrenoc.base.errors import AccuracyError, DependencyError, DeviceError
from adrenoc.base.host.extras import pip_install
from adrenoc.base.reporter import Reporter
from adrenoc.base.text.spelling import quote_word
from adrenoc.check.accuracy.accuracy_plans import Wanted
from adrenoc.check.accuracy.bench import Bench
from adrenoc.check.accuracy.effort import Effort
from adrenoc.check.accuracy.policies import Policies
from adrenoc.check.accuracy.result import AccuracyPlan, Floor, PolicyPoint
from adrenoc.check.accuracy.samples import Judge, take_samples
from adrenoc.device.opencl import pick_device
from adrenoc.importers.entry import Entry
from adrenoc.ir.options import CompileOptions
from adrenoc.target.target import Target, host_twin


def meet_accuracy(
    model: Path, *, target: Target, options: CompileOptions, wanted: Wanted, reporter: Reporter
) -> AccuracyPlan:
    """The tensors that these options have to keep in float32.

    Raises:
        DependencyError: there is no reference or no OpenCL device here.
        AccuracyError: the tolerance cannot be met; it says what can.
    """
    number, device = _device(wanted)
    bench = Bench(
        model,
        target=host_twin(target),
        shapes=options.shapes,
        device=tvm.runtime.device("opencl", number),
        reporter=reporter,
        chosen=options,
        entry=Entry(fixed=options.fixed, signature=options.signature),
    )
    return _search(bench, model, options.preset, wanted, str(device["name"]), reporter)


def _search(
    bench: Bench, model: Path, preset: str, wanted: Wanted, device: str, reporter: Reporter
) -> AccuracyPlan:
    samples, inputs = take_samples(
        bench, model, files=wanted.files, seed=wanted.seed, reporter=reporter
    )
    judge = Judge(bench, samples, tolerance=wanted.tolerance)
    effort = Effort(nodes=len(bench.fuse(preset).nodes), share=wanted.effort)
    policies = Policies(bench, judge, preset, effort=effort, reporter=reporter)
    whole = bench.whole(preset)
    ours = judge.judge_compiled(whole)
    floor = judge.measure_floor(ours, policies.stored)
    before = _describe_unpinned(whole.plan, ours.largest, floor)
    after = before
    if ours.counted > wanted.tolerance:
        if floor.float32_counted > wanted.tolerance:
            raise _unreachable(model, wanted, preset, floor.float32_counted, "float32 throughout")
        reporter.note(f"{preset} is off by {ours.counted:.1e}, the floor is {floor.error:.1e}")
        met, best = policies.meeting(wanted.tolerance)
        if met is None:
            error = best.device_error if best.device_error is not None else math.inf
            kept = f"{len(best.float32_tensors)} tensors in float32"
            raise _unreachable(model, wanted, preset, error, kept)
        after = met
    return AccuracyPlan(
        tolerance=wanted.tolerance,
        preset=preset,
        device=device,
        inputs=inputs,
        samples=len(samples),
        float32_tensors=after.float32_tensors,
        groups=after.groups,
        before=before,
        after=after,
        floor=floor,
        trials=policies.trials,
        plans=effort.plans,
        runs=effort.runs,
        left=effort.left,
        accepted_as=ours.accepted_as if after is before else "",
    )


def _describe_unpinned(plan: Any, error: float, floor: Floor) -> PolicyPoint:
    return PolicyPoint(
        float32_tensors=(),
        groups=(),
        error=floor.error,
        device_error=error,
        time_us=plan.time_us,
        moved_bytes=plan.moved_bytes,
        memory_bytes=plan.memory_bytes,
    )


def _unreachable(
    model: Path, wanted: Wanted, preset: str, error: float, kept: str
) -> AccuracyError:
    best = f"{error:.1e}" if math.isfinite(error) else "not finite"
    loosest = f"{math.ceil(error * 1e6) / 1e6:.0e}" if math.isfinite(error) else ""
    other = preset != "fp32" and kept != "float32 throughout"
    hint = f"adrenoc compile {quote_word(model)} --preset fp32" if other else ""
    if not other:
        hint = (
            f"adrenoc run BUNDLE --check-layers {quote_word(model)} names the first layer that is "
            "off"
        )
        if loosest:
            hint = f"adrenoc compile {quote_word(model)} --accuracy {_rounded_up(error)}, or {hint}"
    return AccuracyError(
        f"{model} cannot be brought within {wanted.tolerance:g} of the range of each output in "
        f"{preset}: the best, {kept}, is off by {best} on the inputs given",
        hint=hint,
    )


def _rounded_up(error: float) -> str:
    exponent = math.floor(math.log10(error))
    return f"{math.ceil(error / 10**exponent)}e{exponent:03d}"


def _device(wanted: Wanted) -> tuple[int, dict[str, Any]]:
    try:
        return pick_device(wanted.cl_device)
    except DeviceError as error:
        raise DependencyError(
            f"--accuracy runs the kernels on this computer: {error.message}",
            hint=error.hint or pip_install("opencl"),
        ) from error
