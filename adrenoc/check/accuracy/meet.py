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
from adrenoc.check.accuracy.judge_preset import Asked, judge_preset
from adrenoc.check.accuracy.result import AccuracyReport, PresetAccuracy
from adrenoc.check.accuracy.samples import Judge, take_samples
from adrenoc.device.opencl import pick_device
from adrenoc.importers.entry import Entry
from adrenoc.importers.formats import find_model_files
from adrenoc.ir.options import CompileOptions
from adrenoc.target.target import Target, host_twin


def meet_accuracy(
    model: Path, *, target: Target, options: CompileOptions, wanted: Wanted, reporter: Reporter
) -> AccuracyReport:
    """Find the tensors that these options have to keep in float32.

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
    samples, said = take_samples(
        bench, model, files=wanted.files, seed=wanted.seed, reporter=reporter
    )
    judge = Judge(bench, samples, tolerance=wanted.tolerance)
    asked = Asked(tolerance=wanted.tolerance, effort=wanted.effort)
    found, _ = judge_preset(bench, judge, options.preset, asked, reporter)
    if not found.holds(wanted.tolerance):
        raise _unreachable(model, wanted, found)
    return AccuracyReport(
        model=model.name,
        model_sha256=find_model_files(model).sha256(),
        target=target.name,
        device=str(device["name"]),
        samples=len(samples),
        tolerance=wanted.tolerance,
        presets=(found,),
        inputs=said,
    )


def _unreachable(model: Path, wanted: Wanted, found: PresetAccuracy) -> AccuracyError:
    error, name = found.error_in_float32, quote_word(model)
    layers = f"adrenoc run BUNDLE --check-layers {name} names the first layer that is off"
    if error <= wanted.tolerance:
        best, hint = "is off by more", f"adrenoc compile {name} --preset fp32"
    elif math.isfinite(error):
        best = f"is off by {error:.1e}"
        hint = f"adrenoc compile {name} --accuracy {_rounded_up(error)}, or {layers}"
    else:
        best, hint = "is not finite", layers
    return AccuracyError(
        f"{model} cannot be brought within {wanted.tolerance:g} of the range of each output in "
        f"{found.preset}: the best, float32 throughout, {best} on the inputs given",
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
