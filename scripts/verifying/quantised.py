"""Compare the integers of quantised networks with onnxruntime's or LiteRT's: one line a model.

    scripts/verify quantised [--make] MODEL.onnx... MODEL.tflite...

With --make, float ONNX models are quantised first, as onnxruntime does it: as QDQ and as QOperator,
with unsigned bytes and a scale a tensor, and with signed bytes and a scale a channel. Outputs that
are dequantised at the end are counted in their quanta; inputs are seeded random numbers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CALIBRATION_IMAGES = 3


def made_models(path: Path, folder: Path) -> Iterator[Path]:
    """The quantised forms of a float model."""
    from adrenoc.base.host.onnx_runtime import import_onnxruntime

    onnxruntime = import_onnxruntime()
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = folder / f"{path.stem}.onnx"
    quant_pre_process(str(path), str(prepared))
    spec = onnxruntime.InferenceSession(str(prepared)).get_inputs()[0]
    random = np.random.default_rng(0)
    images = [
        {spec.name: random.standard_normal(spec.shape).astype(np.float32)}
        for _ in range(CALIBRATION_IMAGES)
    ]

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(images)

        def get_next(self) -> Any:
            return next(self._left, None)

    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        for dtype, per_channel in ((QuantType.QUInt8, False), (QuantType.QInt8, True)):
            made = folder / f"{path.stem}-{form.name}-{dtype.name}.onnx"
            quantize_static(
                str(prepared),
                str(made),
                Images(),
                quant_format=form,
                per_channel=per_channel,
                activation_type=dtype,
                weight_type=QuantType.QInt8,
            )
            yield made


def feeds_of(state: Any, seed: int) -> dict[str, np.ndarray]:
    """Random inputs: normal floats, integers of the whole range."""
    random = np.random.default_rng(seed)
    feeds = {}
    for spec in state.imported.inputs:
        dtype = np.dtype(spec.dtype)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            value = random.integers(info.min, info.max + 1, spec.shape)
        else:
            value = random.standard_normal(spec.shape)
        feeds[spec.name] = value.astype(dtype)
    return feeds


def scales(path: Path) -> dict[str, float]:
    """Output of an ONNX model -> its quantum, where it is dequantised at the end."""
    if path.suffix != ".onnx":
        return {}
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    constants = {c.name: c for c in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[1] in constants:
            value = numpy_helper.to_array(constants[node.input[1]])
            if value.size == 1:
                found[node.output[0]] = value.item()
    return found


def verify(path: Path, preset: str, seed: int, device: Any) -> bool:
    """Print the line of one model; whether all its integers are within one quantum."""
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.check.reference import run_reference
    from adrenoc.compile.pipeline import State, run_stages
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target
    from tests.host.run_op import execute

    target = load_target("host")
    options = resolve_options(target, preset=preset).options
    state = State(model=path, target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter())
    feeds = feeds_of(state, seed)
    wanted = run_reference(path, feeds)
    names = [spec.name for spec in state.imported.outputs]
    values = execute(state, [feeds[spec.name] for spec in state.imported.inputs], device)
    families = Counter(state.program.kernels[s.kernel].family for s in state.program.steps)
    quanta, good = scales(path), True
    for name, value in zip(names, values, strict=True):
        reference = wanted[name]
        line = f"{path.name} {preset} {name} {reference.dtype} {reference.shape}: "
        if reference.dtype.kind in "iu" or name in quanta:
            step = quanta.get(name, 1.0)
            off = np.rint(np.abs(value.astype(float) - reference.astype(float)) / step)
            good &= bool(off.max() <= 1)
            spread = np.ptp(reference.astype(float)) / step
            line += f"{(off == 0).mean():.2%} equal, largest difference {off.max():.0f} quanta"
            line += f" (values spread over {spread:.0f})"
        else:
            error = np.abs(value - reference).max() / max(np.ptp(reference), 1e-30)
            line += f"error {error:.2e} of the range"
        print(line, flush=True)
    counted = ", ".join(f"{count} {family}" for family, count in families.most_common(4))
    print(f"    {len(state.program.steps)} launches: {counted}", flush=True)
    return good


def main() -> int:
    """Verify; the exit code is 1 if integers of any model are further off than one quantum."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--make", action="store_true", help="quantise float ONNX models first")
    parser.add_argument("--presets", default="mixed", help="comma-separated (mixed)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (1)")
    options = parser.parse_args()
    from adrenoc import native

    native.use_software_device()
    native.load()
    import tvm

    good = True
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            made = made_models(model, Path(folder)) if options.make else iter([model])
            for path in made:
                for preset in options.presets.split(","):
                    good &= verify(path, preset, options.seed, tvm.opencl(0))
    return 0 if good else 1
