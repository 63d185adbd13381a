"""Layers of OpenCL's loader (OPENCL_LAYERS), compiled from the sources beside this file."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import DeviceError
from tests.compilers import kept_folder

_HERE = Path(__file__).parent
_RUNTIME = _HERE.parents[1] / "adrenoc" / "native" / "src"
"""Where the C++ types of OpenCL are declared."""
_COMPILERS = {".c": ("cc", "gcc", "clang"), ".cc": ("c++", "g++", "clang++")}
_STANDARDS = {".c": "-std=c11", ".cc": "-std=c++17"}
_WORDS = ("-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC")


def compile_layer(source: str, folder: Path) -> Path | None:
    """The layer of a source file, made in `folder`; None where no compiler is installed.

    Raises:
        subprocess.CalledProcessError: the compiler refused it.
    """
    path = _HERE / source
    compiler = next(filter(None, map(shutil.which, _COMPILERS[path.suffix])), None)
    if compiler is None:
        return None
    library = folder / f"lib{path.stem}.so"
    words = (_STANDARDS[path.suffix], *_WORDS, f"-I{_RUNTIME}")
    subprocess.run([compiler, *words, "-o", str(library), str(path)], check=True)
    return library


VENDORS = Path("/etc/OpenCL/vendors")
LAYERS = "OPENCL_LAYERS"
_LAYER = "plain_builds.c"
OPTIMISING = {
    "pocl": "as it makes a kernel it asks of each variable in memory whether all threads hold the "
    "same there, and forgets what it learned where one does not (isUniform in its "
    "VariableUniformityAnalysis.cc): time exponential in the variables, and what is not optimised "
    "has all of them in memory.  A product of bytes by a vector was never done.  It takes two "
    "fifths more to optimise the others"
}
"""Drivers that have to optimise kernels, and why."""
_held: dict[str, ctypes.CDLL] = {}
"""The layer by its path, where the loader took it."""


def open_devices(implementation: str, folder: Path) -> list[dict[str, Any]]:
    """Load the runtime, and have the loader open its drivers; the facts of each device.

    An empty `implementation` is the software device where it is installed, beside what the system
    has; else the system's driver of that name (`/etc/OpenCL/vendors/NAME.icd`) alone.  The driver
    gets a layer, made in `folder`, by which `plain_builds` has kernels built, but for those of
    OPTIMISING.
    """
    from adrenoc import native
    from adrenoc.native import opencl

    is_there = bool(implementation)
    with pytest.MonkeyPatch.context() as patch:  # processes that are started later have no layer
        library = None if implementation in OPTIMISING else compile_layer(_LAYER, folder)
        if library is not None and LAYERS not in os.environ:
            patch.setenv(LAYERS, str(library))
            _held[str(library)] = ctypes.CDLL(str(library))
        if implementation:
            _see_alone(VENDORS / f"{implementation}.icd", folder)
        else:
            is_there = native.use_software_device()
            native.load()
        try:
            found = opencl.devices()
        except DeviceError as error:
            if is_there:  # a driver that does not work must not pass for one that is not there
                raise
            pytest.skip(f"no OpenCL on this machine: {error}")
    used = _drivers_in_use() if implementation else {""}
    if used != {implementation}:
        took = ", ".join(sorted(used)) or "a driver that is not listed"
        pytest.fail(f"--opencl {implementation}: the loader took {took}")
    return found


def _see_alone(driver: Path, folder: Path) -> None:
    """Whatever asks for devices in this process gets those of one driver of the system.

    Loaders agree on a folder of drivers (OCL_ICD_VENDORS): Khronos' takes no single file.
    """
    if not driver.is_file():
        known = ", ".join(sorted(path.stem for path in VENDORS.glob("*.icd"))) or "none"
        raise pytest.UsageError(f"--opencl {driver.stem}: no {driver}; there are: {known}")
    from adrenoc import native

    vendors = folder / "vendors"
    vendors.mkdir()
    shutil.copy(driver, vendors)
    os.environ["OCL_ICD_VENDORS"] = str(vendors)
    os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")  # Mesa's has no device of itself
    native.load()
    native.use_software_device = lambda: False


def _drivers_in_use() -> set[str]:
    """The drivers of the system whose library this process has loaded.

    NVIDIA's own loader reads /etc/OpenCL/vendors whatever OCL_ICD_VENDORS says.
    """
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    loaded = {_library_name(line.split()[-1]) for line in maps.splitlines() if ".so" in line}
    drivers = {path.stem: _library_name(path.read_text()) for path in VENDORS.glob("*.icd")}
    return {driver for driver, library in drivers.items() if library in loaded}


def _library_name(path: str) -> str:
    """A library's name without its version: what is asked for by one is a link to another."""
    return Path(path.strip()).name.split(".so")[0]


def asks_for_halves(error: BaseException) -> bool:
    """Whether a test ended because the driver, as OpenCL allows, does not compute in halves."""
    from adrenoc.native import opencl

    said = str(error)
    names_it = "it has no cl_khr_fp16" in said or "Half precision floating point" in said
    return names_it and not opencl.devices()[0]["fp16"]


def plain_environment(folder: Path) -> dict[str, str]:
    """Variables for processes that do not optimise kernels; the layer is made in `folder`."""
    library = compile_layer(_LAYER, folder)
    return {} if library is None else {LAYERS: str(library), "PLAIN_BUILDS": str(_kept())}


@contextmanager
def plain_builds() -> Iterator[None]:
    """Kernels are not optimised: they run once, and the driver's compiler takes long.

    Nor are those of processes that are started meanwhile.
    """
    with pytest.MonkeyPatch.context() as patch:
        for library, layer in _held.items():
            layer.plain_builds(os.fsencode(_kept()))
            patch.setenv(LAYERS, library)
            patch.setenv("PLAIN_BUILDS", str(_kept()))
        yield
    for layer in _held.values():
        layer.plain_builds(None)


def _kept() -> Path:
    """The folder of programs that drivers built so."""
    return kept_folder("plain_programs")
