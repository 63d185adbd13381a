"""The floor under the error of a bundle: what rounding alone costs on the inputs of its run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tvm

from adrenoc.base.reporter import Reporter
from adrenoc.bundle.bundle import Bundle
from adrenoc.check.accuracy.bench import Bench
from adrenoc.check.accuracy.deviation import Arrays, deviation
from adrenoc.check.accuracy.result import Floor
from adrenoc.check.accuracy.samples import Judge, sample_of
from adrenoc.compile.bundle_options import options_of
from adrenoc.device.compiled_for import target_of
from adrenoc.device.opencl import pick_device
from adrenoc.importers.entry import Entry
from adrenoc.target.target import host_twin


def floor_of_bundle(
    bundle: Bundle,
    model: Path,
    *,
    inputs: Arrays,
    outputs: Arrays,
    expected: Arrays,
    reporter: Reporter,
) -> Floor:
    """Hold the outputs of a bundle, wherever it ran, against ideal rounding on a device here.

    Raises:
        DeviceError: there is no OpenCL device here.
        AdrenocError: the model does not compile as the bundle was.
    """
    number, _ = pick_device("")
    options = replace(options_of(bundle), tuning_log=None)
    shapes = {spec.name: inputs[spec.name].shape for spec in bundle.manifest.inputs}
    wanted = tuple((name, shapes[name]) for name, _ in options.shapes)
    bench = Bench(
        model,
        target=host_twin(target_of(bundle)),
        shapes=wanted,
        device=tvm.runtime.device("opencl", number),
        reporter=reporter,
        chosen=replace(options, shapes=wanted),
        entry=Entry(fixed=options.fixed, signature=options.signature),
    )
    sample = sample_of(bench, model, inputs, expected)
    seen = {tensor: outputs[name] for tensor, name in sample.names.items()}
    stored = bench.find_halves(options.preset, options.float32_tensors)
    return Judge(bench, [sample]).measure_floor(deviation([seen], [sample.expected]), stored)
