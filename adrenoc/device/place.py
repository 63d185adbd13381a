"""Where a bundle runs: an OpenCL device of this process, the system's or a software one, or of a
server at the other end of a session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import AdrenocError, BundleError, DeviceError
from adrenoc.base.files.read import spell_native_path
from adrenoc.base.host.extras import pip_install
from adrenoc.bundle.bundle import LIBRARY, PARAMS, PROGRAMS, Bundle
from adrenoc.bundle.manifest import ParamSpec, RegionInfo, TensorSpec
from adrenoc.device.answers import check_answer, check_answers, check_output
from adrenoc.device.result import ProgramOptions, ProgramReport, RegionRun, TimedLaunch
from adrenoc.native.android.elf import check_extents

if TYPE_CHECKING:
    import numpy as np


OPENCL = "opencl"
# What the runtime takes for "no folder".
_NO_FOLDER = "none"
_OTHER_NAME = "mv it to another name, or name it by a link: ln -s BUNDLE my.adrenoc"
_BUILD_TICK_MS = 250
_LONGEST_BUILD_S = 3600.0
# What TVM and the OpenCL runtime raise.
_FAILURES = (RuntimeError, ValueError, MemoryError)


class RunPlace:
    """A device and what runs there; `number` is its OpenCL device, `facts` tell of it. This one is
    of this process."""

    def __init__(self, number: int, facts: dict[str, Any]) -> None:
        self.number = number
        self.facts = facts

    def function(self, name: str) -> Callable[..., Any]:
        """Return a global function of the runtime there. Raises AttributeError where it has none of
        that name."""
        import tvm_ffi

        found: Callable[..., Any] = tvm_ffi.get_global_func(name)
        return found

    def device(self) -> Any:
        """TVM's handle of the OpenCL device."""
        import tvm

        return tvm.runtime.device(OPENCL, self.number)

    def cpu(self) -> Any:
        """TVM's handle of the CPU beside it."""
        import tvm

        return tvm.cpu()

    def load(self, bundle: Bundle) -> Any:
        """Return the module of `model.so`. `tvm.runtime.load_module` would keep it, with its
        kernels, until the process ends."""
        import tvm_ffi

        library = spell_native_path(bundle.library, hint=_OTHER_NAME)
        try:
            check_extents(bundle.library)
            return tvm_ffi.get_global_func("adrenoc.load_library")(library)
        except (AdrenocError, OSError, RuntimeError, ValueError) as error:
            raise BundleError(
                f"{bundle.path}: its library cannot be loaded: {error}",
                hint="compile the model again: adrenoc compile MODEL --device host",
            ) from error

    def constants(self, bundle: Bundle, specs: Sequence[ParamSpec] | None = None) -> list[Any]:
        """Return constants on the device; without `specs` all, in the order of `main`."""
        wanted = bundle.manifest.params if specs is None else specs
        device, arrays = self.device(), bundle.walk_params(wanted)
        return [upload(spec, next(arrays), device) for spec in wanted]

    def embedded_folder(self, bundle: Bundle) -> str:
        """Return the folder there with the built kernels that came with the bundle, or nothing."""
        folder = bundle.file(PROGRAMS)
        return spell_native_path(folder, hint=_OTHER_NAME) if folder.is_dir() else ""

    def fields(self, result: Any, specs: Sequence[TensorSpec]) -> list[Any]:
        """Return the tensors of what `main` returned, which are to be these."""
        return [result] if hasattr(result, "numpy") else list(result)

    def look_up(self, module: Any, name: str) -> Callable[..., Any]:
        """Return a function of what `adrenoc.opencl.bind_run` made: "run" or "report"."""
        found: Callable[..., Any] = module[name]
        return found


def upload(spec: ParamSpec, array: np.ndarray, device: Any) -> Any:
    """Return a constant as a tensor of `device`, which may be a remote one, in its memory scope."""
    import tvm

    scope = None if spec.scope == "global" else spec.scope
    tensor = tvm.runtime.empty(spec.shape, spec.dtype, device, mem_scope=scope)
    tensor.copyfrom(array)
    return tensor


@contextmanager
def start_build(
    place: RunPlace, bundle: Bundle, module: Any, programs: ProgramOptions | None
) -> Iterator[Callable[[], ProgramReport]]:
    """Begin to build all kernels in the background; gives what waits for the end. What fails in the
    block waits for the end, too: drivers crash a process that ends while they compile."""
    wait = _begin(place, bundle, module, programs)
    try:
        yield wait
    except (AdrenocError, *_FAILURES):
        with suppress(*_FAILURES):
            wait()
        raise


def _begin(
    place: RunPlace, bundle: Bundle, module: Any, programs: ProgramOptions | None
) -> Callable[[], ProgramReport]:
    start, is_done, finish = (
        place.function(f"adrenoc.opencl.build_{name}") for name in ("start", "is_done", "finish")
    )
    folder = _NO_FOLDER if programs is None else programs.folder
    rule = programs is not None and programs.qualcomm_rule
    embedded = "" if programs is None else place.embedded_folder(bundle)
    number = start(module, place.number, folder, embedded, rule)

    def wait() -> ProgramReport:
        # Some drivers need minutes: a server that goes on building is no server that hangs.
        end = time.monotonic() + _LONGEST_BUILD_S
        while not is_done(number, _BUILD_TICK_MS):
            if time.monotonic() > end:
                raise RuntimeError(f"kernels were not built within {_LONGEST_BUILD_S / 60:.0f} min")
        told = json.loads(finish(number))
        known = {item.name for item in fields(ProgramReport)}
        return ProgramReport(**{name: value for name, value in told.items() if name in known})

    return wait


def remote_function(session: Any, name: str) -> Callable[..., Any] | None:
    """Return a function of the runtime at the other end, whose answers have a form."""
    try:
        found: Callable[..., Any] = session.get_function(name)
    except AttributeError:  # what TVM raises for a name that the server does not know
        return None
    return check_answers(name, found)


def absent_devices(session: Any) -> str:
    """Return why a server has no more OpenCL devices, as far as its runtime tells."""
    told = remote_function(session, "adrenoc.opencl.absent_devices")
    return "" if told is None else str(told())


class RemotePlace(RunPlace):
    """A device of the server at `where`; what that has by digest is not sent again."""

    def __init__(
        self, session: Any, number: int, facts: dict[str, Any], *, where: str = ""
    ) -> None:
        super().__init__(number, facts)
        self._session = session
        self.where = where
        self.sent_bytes = 0
        self.kept_bytes = 0
        self._libraries = 0

    def function(self, name: str) -> Callable[..., Any]:
        """See `RunPlace`; what the function answers is held against its form."""
        return check_answers(name, self._session.get_function(name))

    def device(self) -> Any:
        """See `RunPlace`."""
        return self._session.device(OPENCL, self.number)

    def cpu(self) -> Any:
        """See `RunPlace`."""
        return self._session.cpu()

    def load(self, bundle: Bundle) -> Any:
        """See `RunPlace`."""
        digest = self._keep(bundle, LIBRARY)
        load = remote_function(self._session, "adrenoc.store.load_module")
        if digest and load is not None:
            return load(digest)
        # A library that is loaded must not be written over.
        name = f"{self._libraries}-{LIBRARY}"
        self._libraries += 1
        self._session.upload(str(bundle.library), name)
        self.sent_bytes += bundle.library.stat().st_size
        module = self._session.load_module(name)
        return check_answer("tvm.rpc.server.load_module", module)

    def constants(self, bundle: Bundle, specs: Sequence[ParamSpec] | None = None) -> list[Any]:
        """See `RunPlace`."""
        specs = bundle.manifest.params if specs is None else specs
        digest = self._keep(bundle, PARAMS) if specs else ""
        stored = remote_function(self._session, "adrenoc.store.tensor")
        moves = bundle.moves()
        # What comes of others in another order is made here: the server reads what is in the file.
        sent = [s for s in specs if stored is None or not digest or s.name in moves]
        arrays, names = bundle.walk_params(sent), {spec.name for spec in sent}
        device, kind = self.device(), _device_type()
        brought = []
        for spec in specs:
            if stored is None or spec.name in names:
                array = next(arrays)
                self.sent_bytes += array.nbytes
                brought.append(upload(spec, array, device))
                continue
            brought.append(stored(digest, spec.name, kind, self.number, spec.scope))
        return brought

    def embedded_folder(self, bundle: Bundle) -> str:
        """See `RunPlace`; the server has a cache of its own."""
        return ""

    def fields(self, result: Any, specs: Sequence[TensorSpec]) -> list[Any]:
        """See `RunPlace`."""
        if hasattr(result, "numpy"):
            return [check_output(spec, result) for spec in specs]
        # A tuple stays there, and its fields are asked for.
        field = self.function("vm.builtin.tuple_getitem")
        return [check_output(spec, field(result, index)) for index, spec in enumerate(specs)]

    def look_up(self, module: Any, name: str) -> Callable[..., Any]:
        """See `RunPlace`."""
        return check_answers(name, module[name])

    def _keep(self, bundle: Bundle, path: str) -> str:
        """Have a file of the bundle in the server's store; its digest, or nothing without one."""
        has = remote_function(self._session, "adrenoc.store.has")
        keep = remote_function(self._session, "adrenoc.store.keep")
        if has is None or keep is None:
            return ""
        entry = next(entry for entry in bundle.manifest.files if entry.path == path)
        if has(entry.sha256):
            self.kept_bytes += entry.bytes
            return entry.sha256
        self._session.upload(str(bundle.file(path)), path)
        keep(path, entry.sha256)
        self.sent_bytes += entry.bytes
        return entry.sha256


def _device_type() -> int:
    import tvm

    return int(tvm.runtime.device(OPENCL, 0).dlpack_device_type())


def list_devices() -> list[dict[str, Any]]:
    """Return each OpenCL device as plain data (`adrenoc.native.opencl.devices`), by device number.
    Raises DependencyError where the native runtime cannot be built or loaded; DeviceError where
    there is no OpenCL library, or it fails."""
    from adrenoc.native import opencl

    _prepare()
    return opencl.devices()


@cache
def _prepare() -> None:
    """Load the runtime, once; the software device can be added only before the first call."""
    from adrenoc import native

    native.use_software_device()
    native.load()


def pick_device(wanted: str) -> tuple[int, dict[str, Any]]:
    """Return the number and the facts of the device `wanted`: a number or a part of its name. An
    empty `wanted` takes the first device that has images. Raises DeviceError where there is no
    device, none of that name, or none with images."""
    from adrenoc.native import opencl

    return choose_device(list_devices(), wanted, absent=opencl.absent_devices())


def choose_device(
    devices: list[dict[str, Any]], wanted: str, *, absent: str = "", server: str = ""
) -> tuple[int, dict[str, Any]]:
    """Choose a device as `pick_device` does, among `devices` of this machine or of a `server`.
    `absent` is why there are no more, as the runtime there tells."""
    why = f"; {absent}" if absent else ""
    if not devices:
        hint = f"{pip_install('opencl')} brings a software device"
        if server:
            hint = "adrenoc doctor, or clinfo, on that machine shows what its drivers say"
        where = server or "this machine"
        raise DeviceError(f"there is no OpenCL device on {where}{why}", hint=hint)
    titles = [f"{facts['name']} ({facts['platform']})" for facts in devices]
    listed = "; ".join(f"{number} = {title}" for number, title in enumerate(titles))
    for number, (facts, title) in enumerate(zip(devices, titles, strict=True)):
        if wanted.isdigit():
            fits = number == int(wanted)
        elif wanted:
            fits = wanted.lower() in title.lower()
        else:
            fits = facts["images"]["supported"]
        if fits:
            return number, facts
    missing = f'no OpenCL device "{wanted}"' if wanted else "no OpenCL device has images"
    raise DeviceError(f"{missing}; there is {listed}{why}", hint="adrenoc doctor shows them all")


_TEXTURES = "/textures"
"""Ends the name of the entry in a profile that stands before a region's own kernels."""


def prepare_regions(place: RunPlace, module: Any) -> tuple[RegionRun, ...]:
    """Make each region of a loaded module ready."""
    function = place.function("adrenoc.clml.regions")
    known = {field.name for field in fields(RegionRun)}
    found = [
        RegionRun(**{key: value for key, value in facts.items() if key in known})
        for facts in json.loads(function(module, place.number))
    ]
    # The runtime lists them as they were linked; symbols count them as they stand in the model.
    return tuple(sorted(found, key=lambda region: (len(region.symbol), region.symbol)))


def clml_ms(launches: Sequence[TimedLaunch], symbol: str) -> float:
    """Return time of a region's own commands in a profile."""
    return sum(
        launch.time_ms
        for launch in launches
        if launch.kernel.startswith(f"{symbol}/") and not launch.kernel.endswith(_TEXTURES)
    )


def textures_ms(launches: Sequence[TimedLaunch], region: RegionInfo) -> float | None:
    """Return time of the kernels that run in place of a region; None where they did not."""
    names = [launch.kernel for launch in launches]
    if region.symbol + _TEXTURES not in names:
        return None
    start = names.index(region.symbol + _TEXTURES) + 1
    stop = start + len(region.kernels)
    if tuple(names[start:stop]) != region.kernels:
        return None
    return sum(launch.time_ms for launch in launches[start:stop])
