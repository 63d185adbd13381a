"""Run a bundle on an OpenCL device of this machine, and time it."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adrenoc.bundle import Bundle
from adrenoc.device.opencl import pick_device
from adrenoc.errors import BundleError, DeviceError, InputError
from adrenoc.manifest import ParamSpec, TensorSpec

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """Time that one kernel took on the device in one run, over all of its calls."""

    name: str
    calls: int
    time_ms: float


@dataclass(frozen=True, kw_only=True)
class Times:
    """Milliseconds of wall clock; runs are timed from inputs on the device to outputs there.

    `load_ms`: open the library and move the constants to the device.  `build_ms`: build all
    kernels.  `first_ms`: the first run.  `cold_ms`: the three together.  `p50_ms`, `p90_ms`,
    `p99_ms`: of `runs` warm runs.
    """

    load_ms: float
    build_ms: float
    first_ms: float
    cold_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run gave: outputs by the model's own names, times, and kernel times if asked for.

    `memory_bytes` is the most that the runtime held on the device up to the end of the first run:
    what the manifest plans as `memory.peak_bytes`.  None where another machine ran it.
    """

    device: str
    outputs: dict[str, np.ndarray]
    times: Times
    memory_bytes: int | None = None
    kernels: tuple[KernelTime, ...] = ()


def run_bundle(
    bundle: Bundle,
    *,
    inputs: Mapping[str, np.ndarray],
    device: str = "",
    repeat: int = 10,
    warmup: int = 1,
    profile: bool = False,
) -> RunResult:
    """Run `bundle` with `inputs` (by name, shapes and dtypes of the manifest) on a device.

    `device` is a number or a part of a name, empty for the first with images.  After the first
    run come `warmup` runs that are not counted and `repeat` (at least 1) that are.

    Raises:
        BundleError: the bundle's CPU part is for another machine.
        InputError: an input is missing, unknown, or of another shape or dtype.
        DeviceError: no such device, or the device failed.
    """
    _check_machine(bundle)
    check_inputs(bundle.manifest.inputs, inputs)
    number, facts = pick_device(device)
    try:
        return _run(
            bundle,
            inputs,
            number=number,
            name=str(facts["name"]),
            repeat=repeat,
            warmup=warmup,
            profile=profile,
        )
    except (RuntimeError, ValueError, MemoryError) as error:  # what the native runtime raises
        raise DeviceError(
            f"the OpenCL device {facts['name']} failed to run {bundle.path}: {_first_line(error)}",
            hint="adrenoc doctor, or choose another device with --cl-device",
        ) from error


def _run(
    bundle: Bundle,
    inputs: Mapping[str, np.ndarray],
    *,
    number: int,
    name: str,
    repeat: int,
    warmup: int,
    profile: bool,
) -> RunResult:
    import tvm
    from tvm import relax

    from adrenoc.native.opencl import build_all, memory_stats, release_pool

    release_pool(number)
    held_before = memory_stats(number)["allocated_bytes"]
    device = tvm.runtime.device("opencl", number)
    started = time.perf_counter()
    module = tvm.runtime.load_module(str(bundle.library))
    # Bundles count on these two: 0 is the OpenCL device, 1 the CPU.
    machine = relax.VirtualMachine(module, [device, tvm.cpu()])
    arrays = bundle.params()
    params = [upload(spec, arrays[spec.name], device) for spec in bundle.manifest.params]
    device.sync()
    load_ms = ms_since(started)
    started = time.perf_counter()
    build_all(module, number)
    build_ms = ms_since(started)

    args = [tvm.runtime.tensor(inputs[spec.name], device) for spec in bundle.manifest.inputs]
    main = machine["main"]

    def timed() -> tuple[float, Any]:
        begun = time.perf_counter()
        result = main(*args, *params)
        device.sync()
        return ms_since(begun), result

    first_ms, result = timed()
    memory_bytes = memory_stats(number)["peak_bytes"] - held_before
    outputs = _outputs(bundle.manifest.outputs, result)
    del result  # else each further run would need memory for its outputs beside these
    for _ in range(warmup):
        timed()
    warm_ms = sorted(timed()[0] for _ in range(max(1, repeat)))
    kernels = _profile(timed, number) if profile else ()
    return RunResult(
        device=name,
        outputs=outputs,
        times=Times(
            load_ms=load_ms,
            build_ms=build_ms,
            first_ms=first_ms,
            cold_ms=load_ms + build_ms + first_ms,
            p50_ms=percentile(warm_ms, 50),
            p90_ms=percentile(warm_ms, 90),
            p99_ms=percentile(warm_ms, 99),
            runs=len(warm_ms),
        ),
        memory_bytes=memory_bytes,
        kernels=kernels,
    )


def upload(spec: ParamSpec, array: np.ndarray, device: Any) -> Any:
    """A constant as a tensor of `device`, which may be a remote one, in its memory scope."""
    import tvm

    scope = None if spec.scope == "global" else spec.scope
    tensor = tvm.runtime.empty(spec.shape, spec.dtype, device, mem_scope=scope)
    tensor.copyfrom(array)
    return tensor


def _outputs(specs: tuple[TensorSpec, ...], result: Any) -> dict[str, np.ndarray]:
    tensors = [result] if hasattr(result, "numpy") else list(result)
    return {spec.name: tensor.numpy() for spec, tensor in zip(specs, tensors, strict=True)}


def _profile(timed: Callable[[], object], number: int) -> tuple[KernelTime, ...]:
    """Kernel times of one more run, the longest first."""
    from adrenoc.native.opencl import profiled

    with profiled(number) as profile:
        timed()
    calls = Counter(launch.kernel for launch in profile.launches)
    return tuple(
        KernelTime(name=name, calls=calls[name], time_ms=total_ns / 1e6)
        for name, total_ns in profile.total_ns().items()
    )


def _check_machine(bundle: Bundle) -> None:
    target = bundle.manifest.target
    machine = target.llvm_triple.partition("-")[0]
    if not target.host or machine != platform.machine():
        raise BundleError(
            f"{bundle.path} was compiled for {target.name} ({target.llvm_triple}), "
            f"expected one for this {platform.machine()} machine",
            hint=f"adrenoc compile {bundle.manifest.model.file} --device host",
        )


def check_inputs(specs: tuple[TensorSpec, ...], inputs: Mapping[str, np.ndarray]) -> None:
    """Refuse inputs that do not fit the model.

    Raises:
        InputError: an input is missing, unknown, or of another shape or dtype.
    """
    wanted = [spec.name for spec in specs]
    unknown = sorted(set(inputs) - set(wanted))
    if unknown:
        raise InputError(
            f"the model has no input `{unknown[0]}`; its inputs are {', '.join(wanted)}",
            hint=f"adrenoc run BUNDLE --input {wanted[0]}=FILE",
        )
    for spec in specs:
        if spec.name not in inputs:
            raise InputError(
                f"the input `{spec.name}` is missing; expected {_shown(spec.shape, spec.dtype)}",
                hint=f"adrenoc run BUNDLE --input {spec.name}=FILE",
            )
        array = inputs[spec.name]
        if array.shape != spec.shape or str(array.dtype) != spec.dtype:
            raise InputError(
                f"the input `{spec.name}` is {_shown(array.shape, str(array.dtype))}, "
                f"expected {_shown(spec.shape, spec.dtype)}",
                hint="adrenoc inspect BUNDLE shows what the model takes",
            )


def _shown(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype} [{', '.join(str(extent) for extent in shape)}]"


def percentile(ascending: list[float], percent: int) -> float:
    """The nearest-rank percentile."""
    rank = -(-percent * len(ascending) // 100)
    return ascending[max(0, rank - 1)]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


def ms_since(started: float) -> float:
    """Milliseconds since `started`, a value of `time.perf_counter`."""
    return (time.perf_counter() - started) * 1000
