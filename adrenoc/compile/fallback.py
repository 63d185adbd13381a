"""The model as code for the CPU, which a bundle carries for where OpenCL is missing or refuses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.decision import Decision
from adrenoc.base.errors import CompileError
from adrenoc.bundle.bundle import CPU_LIBRARY
from adrenoc.firmware.cpu.print_cpu import build_cpu_library, find_shared_weights
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.folder import Firmware
from adrenoc.firmware.mcu.make import plan_firmware
from adrenoc.firmware.mcu.operators import Filter
from adrenoc.firmware.mcu.program import FirmwareProgram

if TYPE_CHECKING:
    from adrenoc.bundle.manifest import TensorSpec
    from adrenoc.compile.compiler import Compiled


@dataclass(frozen=True, kw_only=True, eq=False)
class Fallback:
    """A model that is known to have integer code, before the long work."""

    model: Path
    halves_to_even: bool
    program: FirmwareProgram
    firmware: Firmware

    def write(self, root: Path, compiled: Compiled, triple: str) -> int:
        """Write `cpu.so` into the folder of a bundle, with one decision; how many bytes it has."""
        _check_alike(self.model, self.firmware, compiled.inputs, compiled.outputs)
        machine = triple.partition("-")[0]
        shared = find_shared_weights(self.program, compiled.params, compiled.packings)
        library = build_cpu_library(
            self.program, machine, halves_to_even=self.halves_to_even, shared=shared
        )
        (root / CPU_LIBRARY).write_bytes(library)
        borrowed = sum(math.prod(weight.counts) for weight in shared)
        decision = Decision(
            subject="the whole model",
            taken=f"{CPU_LIBRARY} beside the kernels",
            reason=f"--fallback cpu: {len(self.firmware.layers)} layers in int8, computed where "
            "there is no OpenCL device or it refuses the kernels; it takes "
            f"{borrowed} of {self._weights()} weights from the kernels' constants as it is loaded",
            stage="fallback",
        )
        compiled.decisions.extend([decision])
        return len(library)

    def _weights(self) -> int:
        filters = (
            operator for operator in self.program.network.operators if isinstance(operator, Filter)
        )
        return sum(operator.weights.size for operator in filters)


def plan_fallback(model: Path, format_: str) -> Fallback:
    """Return a model's integer code, planned."""
    try:
        program, firmware = plan_firmware(model, load_core("cpu:arm64"))
    except CompileError as error:
        if format_ == "onnx":
            error.hint += (
                "; or, without --fallback, in an app that has onnxruntime: it opens the model by "
                "the provider of `adrenoc runtime build --onnxruntime`, and its own CPU code "
                "computes where no GPU does"
            )
        raise
    return Fallback(
        model=model, halves_to_even=format_ == "onnx", program=program, firmware=firmware
    )


def _check_alike(
    model: Path, firmware: Firmware, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    borders = firmware.borders
    specs = (*firmware.inputs, *firmware.outputs)
    ours = [(s.name, b.dtype, s.shape) for s, b in zip(specs, borders, strict=True)]
    theirs = [(spec.name, spec.dtype, spec.shape) for spec in (*inputs, *outputs)]
    if ours != theirs:
        name, dtype, shape = next(t for t in theirs if t not in ours) if theirs else ("", "", ())
        raise CompileError(
            f"{model}: '{name}' of the bundle ({dtype} {list(shape)}) is not an input or output "
            "of the integer code in the same place, so the CPU cannot stand in",
            hint="leave --fallback out, or give the model's own shapes",
        )
