"""Run a bundle on an OpenCL device of this machine, and time it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError, DeviceError
from adrenoc.bundle.buckets import fit
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.choose_edition import Chosen, choose_edition, run_with_edition
from adrenoc.device.cpu_fallback import carries_cpu, run_on_cpu
from adrenoc.device.execute import execute
from adrenoc.device.failures import device_failure, diagnose
from adrenoc.device.fit import check_device, check_inputs
from adrenoc.device.opencl import pick_device
from adrenoc.device.place import LocalPlace
from adrenoc.device.result import Progress, RunOptions, RunResult
from adrenoc.target.system import runs_here

if TYPE_CHECKING:
    import numpy as np


def run_bundle(
    bundle: Bundle,
    *,
    inputs: Mapping[str, np.ndarray],
    options: RunOptions | None = None,
    progress: Progress | None = None,
    steps: Sequence[Mapping[str, np.ndarray]] = (),
    **changes: object,
) -> RunResult:
    """Run `bundle` with `inputs` (by name, shapes and dtypes of the manifest) on a device.

    With `steps` it goes on with these from the states that each run leaves (`execute`).

    Of a bundle with editions that of the device's GPU runs, or the common one where there is none
    or the driver refuses it; of one with buckets the smallest that takes the inputs.  One with
    code for the CPU is computed by that where there is no device, or it refuses the kernels,
    unless one was named.

    `changes` are fields of RunOptions.  `progress` learns what is done when the rest fails.

    Raises:
        BundleError: the bundle's CPU part is for another machine.
        InputError: an input is missing, unknown, or of another shape or dtype.
        DeviceError: no such device, it lacks what the bundle needs, or it failed.
    """
    wanted = replace(options or RunOptions(), **changes)  # type: ignore[arg-type]
    _check_machine(bundle)
    fitted = fit(bundle, inputs)
    check_inputs(fitted.bundle.manifest.inputs, fitted.inputs)
    told = progress or Progress()

    def run_edition(place: LocalPlace, chosen: Chosen) -> RunResult:
        part = fit(chosen.bundle, inputs)
        return execute(place, part.bundle, part.inputs, wanted, told, steps=steps)

    try:
        result = run_with_edition(
            bundle, lambda: local_place(bundle, wanted.device), run_edition, told
        )
    except DeviceError as error:
        # A device that was named is not replaced, nor one that has computed.
        if wanted.device or told.first_ms is not None or not carries_cpu(fitted.bundle):
            raise
        result = run_on_cpu(fitted.bundle, fitted.inputs, wanted, reason=error.message)
    return replace(result, outputs=fitted.crop(result.outputs))


@contextmanager
def local_place(bundle: Bundle, device: str) -> Iterator[LocalPlace]:
    """A device of this machine that can run `bundle`, by number or a part of its name.

    Raises:
        BundleError: the bundle's CPU part is for another machine.
        DeviceError: no such device, it lacks what the bundle needs, or it failed in the block.
    """
    _check_machine(bundle)
    number, facts = pick_device(device)
    check_device(choose_edition(bundle, facts).bundle, facts, where="the OpenCL device")
    place = LocalPlace(number, facts)
    try:
        with diagnose(place):
            yield place
    except (RuntimeError, ValueError, MemoryError) as error:  # what the native runtime raises
        where = f"the OpenCL device {facts['name']} with {bundle.path}"
        diagnosis = getattr(error, "diagnosis", None)
        raise device_failure(str(error), where=where, diagnosis=diagnosis) from error


def _check_machine(bundle: Bundle) -> None:
    target = bundle.manifest.target
    if not runs_here(target.llvm_triple):
        here = f"host:{target.name}" if target.name.endswith(".toml") else "host"
        raise BundleError(
            f"{bundle.path} was compiled for {target.name} ({target.llvm_triple}), "
            f"expected one for this {platform.machine()} machine",
            hint=f"adrenoc compile {shlex.quote(bundle.manifest.model.file)} --device "
            + shlex.quote(here),
        )
