"""Run a bundle on this machine and time it: on an OpenCL device, else by the code for the CPU.

`cpu.so` of a bundle is a C library that needs no other; `adrenoc_cpu_model` says what it takes and
gives (`native/runtime/src/model/model_environment.h`).
"""

import ctypes
import json
import os
import platform
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adrenoc.base.errors import BundleError, DeviceError
from adrenoc.base.reporter import ms_since
from adrenoc.bundle.buckets import fit, open_buckets
from adrenoc.bundle.bundle import CPU_LIBRARY, Bundle, add_programs
from adrenoc.device.execute import execute
from adrenoc.device.fit import (
    Chosen,
    check_device,
    check_inputs,
    choose_edition,
    compile_again,
    device_failure,
    diagnose,
    run_with_edition,
)
from adrenoc.device.place import RunPlace, pick_device, start_build
from adrenoc.device.remote import RemoteAddress, remote_place
from adrenoc.device.result import (
    ProgramOptions,
    ProgramReport,
    Progress,
    RunOptions,
    RunResult,
    Times,
)
from adrenoc.target.target import runs_here


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
    or the driver refuses it; of one with buckets the smallest that takes the inputs. One with code
    for the CPU is computed by that where there is no device, or it refuses the kernels, unless one
    was named.

    `changes` are fields of RunOptions. `progress` learns what is done when the rest fails. Raises
    BundleError where the bundle's CPU part is for another machine; InputError where an input is
    missing, unknown, or of another shape or dtype; DeviceError where there is no such device, it
    lacks what the bundle needs, or it failed.
    """
    wanted = replace(options or RunOptions(), **changes)  # type: ignore[arg-type]
    _check_machine(bundle)
    fitted = fit(bundle, inputs)
    check_inputs(fitted.bundle.manifest.inputs, fitted.inputs)
    told = progress or Progress()

    def run_edition(place: RunPlace, chosen: Chosen) -> RunResult:
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
def local_place(bundle: Bundle, device: str) -> Iterator[RunPlace]:
    """Open a device of this machine that can run `bundle`, by number or a part of its name. Raises
    BundleError where the bundle's CPU part is for another machine; DeviceError where there is no
    such device, it lacks what the bundle needs, or it failed in the block."""
    _check_machine(bundle)
    number, facts = pick_device(device)
    check_device(choose_edition(bundle, facts).bundle, facts, where="the OpenCL device")
    place = RunPlace(number, facts)
    try:
        with diagnose(place):
            yield place
    except (RuntimeError, ValueError, MemoryError) as error:  # what the native runtime raises
        where = f"the OpenCL device {facts['name']} with {bundle.path}"
        diagnosis = getattr(error, "diagnosis", None)
        raise device_failure(str(error), where=where, diagnosis=diagnosis) from error


def open_place(
    bundle: Bundle, address: RemoteAddress | None, device: str
) -> AbstractContextManager[RunPlace]:
    """Open a device of this machine, or of the server at `address`, that can run `bundle`."""
    return local_place(bundle, device) if address is None else remote_place(bundle, address, device)


def _check_machine(bundle: Bundle) -> None:
    target = bundle.manifest.target
    if not runs_here(target.llvm_triple):
        here = f"host:{target.name}" if target.name.endswith(".toml") else "host"
        raise BundleError(
            f"{bundle.path} was compiled for {target.name} ({target.llvm_triple}), "
            f"expected one for this {platform.machine()} machine",
            hint=compile_again(bundle, shlex.quote(here)),
        )


MOST_THREADS = 8
"""The most threads that the layers of such a library have working memory for."""
_VERSION = 2
_ALIGN = 64
_INT8, _UINT8, _FLOAT, _FLOAT_EVEN = range(4)
_NEON, _DOT, _I8MM = 1, 2, 4
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_HWCAP_DOT, _HWCAP2_I8MM = 1 << 20, 1 << 13

_Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
_Each = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, _Task, ctypes.c_void_p)


class _Environment(ctypes.Structure):
    _fields_ = (
        ("features", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("pool", ctypes.c_void_p),
        ("each", _Each),
    )


class _Border(ctypes.Structure):
    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("zero", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("elements", ctypes.c_int64),
    )


_Pointers = ctypes.POINTER(ctypes.c_void_p)
_Compute = ctypes.CFUNCTYPE(
    None, _Pointers, _Pointers, ctypes.c_void_p, ctypes.POINTER(_Environment)
)


class _Lender(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("bytes", ctypes.c_int64))


class _Facts(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("params", ctypes.c_int32),
        ("arena_bytes", ctypes.c_int64),
        ("borders", ctypes.POINTER(_Border)),
        ("compute", _Compute),
        ("lenders", ctypes.POINTER(_Lender)),
        ("borrow", ctypes.CFUNCTYPE(None, _Pointers)),
    )


def carries_cpu(bundle: Bundle) -> bool:
    """Return whether a bundle was compiled with `--fallback cpu`."""
    return any(entry.path == CPU_LIBRARY for entry in bundle.manifest.files)


def run_on_cpu(
    bundle: Bundle, inputs: Mapping[str, np.ndarray], options: RunOptions, *, reason: str
) -> RunResult:
    """Compute by the code for the CPU, of a bundle for this machine; the reason is a note. Raises
    BundleError where the library is of another version or another model."""
    begin = time.perf_counter()
    model = _CpuModel(bundle, options.threads or min(os.cpu_count() or 1, MOST_THREADS))
    load_ms = ms_since(begin)
    manifest = bundle.manifest
    begin = time.perf_counter()
    outputs = model.compute([inputs[spec.name] for spec in manifest.inputs])
    first_ms, warm_ms = ms_since(begin), []
    for number in range(options.warmup + options.repeat):
        begin = time.perf_counter()
        outputs = model.compute([inputs[spec.name] for spec in manifest.inputs])
        if number >= options.warmup:
            warm_ms.append(ms_since(begin))
    model.close()
    names = [spec.name for spec in manifest.outputs]
    counted = f"{model.threads} thread{'s' * (model.threads > 1)}"
    return RunResult(
        device="CPU",
        outputs=dict(zip(names, outputs, strict=True)),
        times=Times.from_runs(load_ms=load_ms, build_ms=0.0, first_ms=first_ms, warm_ms=warm_ms),
        warm_ms=tuple(warm_ms),
        notes=(
            f"computed on the CPU, on {counted}, by the code that the bundle carries: {reason}",
        ),
    )


class _CpuModel:
    """The library at work."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        path = bundle.file(CPU_LIBRARY)
        self._manifest = bundle.manifest
        self.threads = max(1, min(threads, MOST_THREADS))
        try:
            self._library = ctypes.CDLL(str(path))
            self._facts = _Facts.in_dll(self._library, "adrenoc_cpu_model")
        except (OSError, ValueError) as error:
            raise _unusable(bundle, f"it cannot be loaded: {error}") from error
        specs = (*self._manifest.inputs, *self._manifest.outputs)
        ends = self._facts.inputs, self._facts.outputs
        if self._facts.version != _VERSION:
            raise _unusable(bundle, "it is of another version")
        if ends != (len(self._manifest.inputs), len(self._manifest.outputs)):
            raise _unusable(bundle, "it has other inputs or outputs than the manifest promises")
        self._borders = [self._facts.borders[n] for n in range(len(specs))]
        for border, spec in zip(self._borders, specs, strict=True):
            dtypes = {_INT8: "int8", _UINT8: "uint8", _FLOAT: "float32", _FLOAT_EVEN: "float32"}
            if not (
                dtypes.get(border.dtype) == spec.dtype and border.elements == np.prod(spec.shape)
            ):
                raise _unusable(bundle, f"it has '{spec.name}' in another size or dtype")
        self._borrow(bundle)
        self._arena = np.zeros(self._facts.arena_bytes + _ALIGN, np.int8)
        self._pool = ThreadPoolExecutor(self.threads)
        self._environment = _Environment(
            features=_features(), threads=self.threads, each=_Each(self._each)
        )

    def _borrow(self, bundle: Bundle) -> None:
        """Give it the constants of the bundle that it takes weights of."""
        lenders = [self._facts.lenders[n] for n in range(self._facts.params)]
        if not lenders:
            return
        params = bundle.params()
        found = [params.get(lender.name.decode()) for lender in lenders]
        dense = [np.ascontiguousarray(array) for array in found if array is not None]
        sizes = [array.nbytes for array in dense]
        if sizes != [lender.bytes for lender in lenders]:
            raise _unusable(bundle, "it takes weights that the bundle's constants do not hold")
        pointers = (array.ctypes.data for array in dense)
        self._facts.borrow((ctypes.c_void_p * len(dense))(*pointers))

    def close(self) -> None:
        self._pool.shutdown()

    def compute(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        count = len(inputs)
        given = [
            np.ascontiguousarray(_encode(array, border))
            for array, border in zip(inputs, self._borders[:count], strict=True)
        ]
        made = [np.empty(spec.shape, np.int8) for spec in self._manifest.outputs]
        start = self._arena.ctypes.data
        self._facts.compute(
            (ctypes.c_void_p * count)(*(array.ctypes.data for array in given)),
            (ctypes.c_void_p * len(made))(*(array.ctypes.data for array in made)),
            ctypes.c_void_p(start + -start % _ALIGN),
            ctypes.byref(self._environment),
        )
        return [
            _decode(array, border)
            for array, border in zip(made, self._borders[count:], strict=True)
        ]

    def _each(self, _pool: Any, parts: int, task: Any, argument: Any) -> None:
        """Parts of a layer, on the pool's threads; a call into C lets the others go on."""
        done = [self._pool.submit(task, argument, part) for part in range(parts)]
        for future in done:
            future.result()


def _features() -> int:
    if platform.machine() not in ("aarch64", "arm64"):
        return 0
    ask = ctypes.CDLL(None).getauxval
    ask.restype, ask.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    found = _NEON
    found |= _DOT if ask(_AT_HWCAP) & _HWCAP_DOT else 0
    return found | (_I8MM if ask(_AT_HWCAP2) & _HWCAP2_I8MM else 0)


def _encode(numbers: np.ndarray, border: _Border) -> np.ndarray:
    """Return numbers of the model as the code has them; what is not a number becomes zero."""
    if border.dtype == _INT8:
        return numbers
    if border.dtype == _UINT8:
        return (numbers.astype(np.int16) - 128).astype(np.int8)
    quanta = np.nan_to_num(numbers.astype(np.float32), nan=0.0) / np.float32(border.scale)
    whole = np.rint(quanta)
    if border.dtype == _FLOAT:
        whole = np.sign(quanta) * np.floor(np.abs(quanta) + np.float32(0.5))
    return np.clip(whole + border.zero, -128, 127).astype(np.int8)


def _decode(stored: np.ndarray, border: _Border) -> np.ndarray:
    if border.dtype == _INT8:
        return stored
    if border.dtype == _UINT8:
        return (stored.astype(np.int16) + 128).astype(np.uint8)
    return (stored.astype(np.int32) - border.zero).astype(np.float32) * np.float32(border.scale)


def _unusable(bundle: Bundle, why: str) -> BundleError:
    return BundleError(
        f"{CPU_LIBRARY} of {bundle.path} cannot compute: {why}", hint="compile the model again"
    )


@dataclass(frozen=True, kw_only=True)
class Warmed:
    """What was built for which device; `embedded` are the files that were put into the bundle.
    `notes` tell which kernels were built, where the bundle has some for several GPUs."""

    device: str
    driver: str
    build_ms: float
    programs: ProgramReport
    embedded: tuple[str, ...] = ()
    embedded_bytes: int = 0
    notes: tuple[str, ...] = ()


def warm(
    bundle: Bundle,
    *,
    device: str,
    address: RemoteAddress | None,
    programs: ProgramOptions,
    embed: bool,
) -> Warmed:
    """Build the kernels of `bundle` that the device runs, and keep them where `programs` says.

    These are of each of its buckets, in the edition of that device.

    The device is one of this machine, or of the server at `address`.

    With `embed` they are put into the bundle too: it then starts without a compiler on every device
    of that name with that driver. Raises as `run_bundle`, `run_remote` and `add_programs` do.
    """
    with open_place(bundle, address, device) as place:
        started = time.perf_counter()
        report = ProgramReport()
        modules = []
        chosen = choose_edition(bundle, place.facts)
        for bucket in open_buckets(chosen.bundle):
            modules.append(place.load(bucket))
            with start_build(place, bucket, modules[-1], programs) as wait_for_kernels:
                built = wait_for_kernels()
            report = report.plus(built)
        build_ms = ms_since(started)
        files: dict[str, bytes] = {}
        for module in modules if embed else ():
            files |= _files(place, module)
    if files:
        add_programs(bundle, files)
    return Warmed(
        device=str(place.facts["name"]),
        driver=str(place.facts["driver"]),
        build_ms=build_ms,
        programs=report,
        notes=chosen.notes,
        embedded=tuple(files),
        embedded_bytes=sum(len(content) for content in files.values()),
    )


def _files(place: RunPlace, module: object) -> dict[str, bytes]:
    """Return the built kernels of a module, as files by name."""
    names = place.function("adrenoc.opencl.program_names")
    content = place.function("adrenoc.opencl.program_file")
    found = json.loads(names(module, place.number))
    return {name: bytes(content(module, place.number, name)) for name in found}
