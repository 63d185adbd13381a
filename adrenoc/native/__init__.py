"""The OpenCL runtime for TVM, whose wheel brings none: compiled once for this machine, when it is
first needed, and loaded. It needs a C++17 compiler, and opens libOpenCL only when a device is first
asked for.

    from adrenoc import native
    native.use_software_device()   # only to run on the CPU: must come before the first OpenCL call
    native.load()                  # from now on tvm.opencl(0) and modules of kind "opencl" work

Tensors in textures: `tvm.runtime.empty((layers, rows, columns, 4), "float16", tvm.opencl(0),
mem_scope="global.texture")`; host data is copied to and from them densely, row-major.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import adrenoc
from adrenoc.base.errors import DependencyError
from adrenoc.base.files.aside import aside_folder, remove_left
from adrenoc.base.files.outputs import cache_errors
from adrenoc.base.files.read import (
    OTHER_CACHE_FOLDER,
    cache_folder,
    is_trusted_file,
    private_folder,
    sha256_file,
    spell_native_path,
)
from adrenoc.base.host.proc import run_tool
from adrenoc.base.text.spelling import quote_word

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-w")
_COMPILERS = ("c++", "g++", "clang++")
_STEM = "libadrenoc_opencl-"
_MOST_UNITS = 8
"""Compilers at work at a time; each takes some hundred MB."""


def build(*, cache: Path | None = None) -> Path:
    """Return the compiled plug-in, compiling it if this very one is not cached.

    The cached file is found by a digest of the sources, the versions of TVM, the flags, the machine
    and the compiler, so a change in any of them compiles anew. Without a compiler one that an
    earlier compiler made of the same sources will do. `cache` is the folder to keep it in; without
    it the cache folder of adrenoc. Raises DependencyError where no C++ compiler is on the PATH, or
    TVM is not installed; ToolError where the compiler failed; OutputError where the cache folder
    cannot be written.
    """
    tvm_folder, ffi_folder = package_folder("tvm"), package_folder("tvm_ffi")
    sources = _sources()
    place = cache if cache is not None else cache_folder()
    with cache_errors(place):
        made_of_these = private_folder(private_folder(place) / "native") / _digest(sources)
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        if (made_before := _whole_one(made_of_these, "*/")) is not None:
            return made_before
        raise DependencyError(
            f"the OpenCL runtime needs a C++ compiler once: none of {', '.join(_COMPILERS)} "
            "is on the PATH",
            hint="apt-get install g++ (or your system's C++ compiler), then run again",
        )
    version = run_tool([compiler, "--version"], deed="ask the compiler for its version")
    folder = made_of_these / hashlib.sha256(version.encode()).hexdigest()[:12]
    library = _whole_one(folder)
    if library is None:
        with cache_errors(folder):
            library = _compile(compiler, sources, tvm_folder, ffi_folder, folder)
    return library


def _whole_one(folder: Path, pattern: str = "") -> Path | None:
    """Return a library that nobody else wrote and that holds what its name, a digest, says."""
    for library in folder.glob(f"{pattern}{_STEM}*.so"):
        if is_trusted_file(library):
            with suppress(OSError):
                if library.name == f"{_STEM}{sha256_file(library)}.so":
                    return library
    return None


def _compile(
    compiler: str, sources: list[Path], tvm_folder: Path, ffi_folder: Path, folder: Path
) -> Path:
    """Compile all sources into a library in `folder`, which appears complete or not at all."""
    private_folder(folder.parent)
    private_folder(folder)
    remove_left(folder)
    with aside_folder(folder / "library") as scratch:
        flags = [*_FLAGS, _stamp_option(), *_include_options(tvm_folder, ffi_folder)]
        units = _write_units(sources, scratch)

        def compile_unit(unit: Path) -> Path:
            made = unit.with_suffix(".o")
            command = [compiler, *flags, "-c", str(unit), "-o", str(made)]
            run_tool(command, deed="build the OpenCL runtime")
            return made

        with ThreadPoolExecutor(len(units)) as pool:
            objects = [str(made) for made in pool.map(compile_unit, units)]
        made = scratch / "made.so"
        # Naming the libraries makes them needed by name only: at run time the loader takes those
        # that TVM has loaded, wherever they lie.
        command = [compiler, "-shared", *objects, "-o", str(made)]
        command += [str(tvm_folder / "lib" / "libtvm_runtime.so")]
        command += [str(ffi_folder / "lib" / "libtvm_ffi.so"), "-ldl"]
        run_tool(command, deed="link the OpenCL runtime")
        made.chmod(0o755)
        return made.rename(folder / f"{_STEM}{sha256_file(made)}.so")


def _write_units(sources: list[Path], folder: Path) -> list[Path]:
    """Files that include the sources, one for each processor: they are compiled side by side. TVM's
    headers take a good part of the time, and are read once a file, so there are few."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    shares: list[list[Path]] = [[] for _ in range(max(1, min(processors, _MOST_UNITS)))]
    code = [path for path in sources if path.suffix == ".cc"]
    for path in sorted(code, key=lambda path: -path.stat().st_size):
        min(shares, key=lambda share: sum(p.stat().st_size for p in share)).append(path)
    units = []
    for number, share in enumerate(shares):
        unit = folder / f"unit{number}.cc"
        unit.write_text("".join(f'#include "{path}"\n' for path in share))
        units.append(unit)
    return units


def package_folder(name: str) -> Path:
    """Return where a Python package lies. Raises DependencyError where it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise DependencyError(
            f"the Python package {name} is not installed",
            hint="pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1",
        )
    return Path(spec.origin).parent


def _include_options(tvm_folder: Path, ffi_folder: Path) -> list[str]:
    here = Path(__file__).resolve().parent
    # `compat` comes after TVM's own headers, so a wheel that has them is used as it is.
    folders = (
        here / "src",
        here / "include",
        tvm_folder / "include",
        tvm_folder / "src",
        ffi_folder / "include",
        here / "compat",
    )
    return [f"-I{folder}" for folder in folders]


def _stamp_option() -> str:
    """Return what `adrenoc.runtime.version` answers; the runtime without Python says the same."""
    packages = {name: importlib.metadata.version(f"apache-{name}") for name in ("tvm", "tvm-ffi")}
    told = " ".join(f"{name}-{number}" for name, number in packages.items())
    return f'-DADRENOC_STAMP="{adrenoc.__version__} {told} python"'


def _sources() -> list[Path]:
    here = Path(__file__).resolve().parent
    return sorted(
        path
        for folder in ("src", "include", "compat")
        for path in (here / folder).rglob("*")
        if path.suffix in (".cc", ".h", ".def")
    )


def _digest(sources: list[Path]) -> str:
    facts = {
        "apache-tvm": importlib.metadata.version("apache-tvm"),
        "apache-tvm-ffi": importlib.metadata.version("apache-tvm-ffi"),
        "flags": " ".join((*_FLAGS, _stamp_option())),
        "machine": f"{sys.platform} {platform.machine()}",
    }
    digest = hashlib.sha256(repr(sorted(facts.items())).encode())
    for path in sources:
        digest.update(os.fsencode(path.name) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


__all__ = ["build", "load", "use_software_device"]

# What the CPU driver needs before it can be opened: the packages install these into the
# environment's lib folder, where the dynamic loader does not look.
_SOFTWARE_LIBRARIES = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libtbb.so.12")

# Held for the life of the process: TVM keeps pointers into the library.
_loaded: list[ctypes.CDLL] = []


def load() -> None:
    """Give TVM an OpenCL runtime: ours, unless it already has one.

    May be called any number of times. The first call on a machine compiles the library, which takes
    some ten seconds; the result is cached. Raises DependencyError where there is no C++ compiler,
    or TVM is missing; ToolError where the compiler failed; OptionError where TVM cannot open the
    cache folder's path.
    """
    import tvm  # noqa: F401  (loads the libraries that ours is linked with)
    import tvm_ffi

    if tvm_ffi.get_global_func("device_api.opencl", allow_missing=True) is not None:
        return
    library = build()
    try:
        _loaded.append(ctypes.CDLL(str(library)))
    except OSError as error:
        raise DependencyError(
            f"the OpenCL runtime {library} cannot be loaded: {error}",
            hint=f"rm {quote_word(library)} and run again, which builds it anew",
        ) from error
    # Made on the first tuning run; nothing lies there else.
    folder = spell_native_path(cache_folder() / "clml", hint=OTHER_CACHE_FOLDER)
    tvm_ffi.get_global_func("adrenoc.clml.set_cache_folder")(folder)


def use_software_device() -> bool:
    """Let OpenCL run on the CPU by Intel's driver, if its packages are installed.

    Must be called before the first OpenCL call of the process. Returns False, and changes nothing,
    where the packages are not installed: then OpenCL uses what the system has. Raises
    DependencyError where an OpenCL library is already in use, or the packages are incomplete.
    """
    if not _software_driver().exists() or not _software_opencl().exists():
        return False
    load()
    import tvm_ffi

    set_library = tvm_ffi.get_global_func("adrenoc.opencl.set_library", allow_missing=True)
    if set_library is None:
        return False  # TVM has an OpenCL runtime of its own, which finds its devices itself
    opencl = open_software_driver()
    try:
        set_library(opencl)
    except RuntimeError as error:
        raise DependencyError(
            f"the software OpenCL device cannot be chosen any more: {error}",
            hint="choose the device before anything uses OpenCL",
        ) from error
    return True


def open_software_driver() -> str:
    """Put Intel's driver into the reach of this process; returns the OpenCL library that finds it.

    That is empty, and nothing changes, where its packages are not installed. Raises DependencyError
    where the packages are incomplete.
    """
    driver, opencl = _software_driver(), _software_opencl()
    if not (driver.exists() and opencl.exists()):
        return ""
    for name in _SOFTWARE_LIBRARIES:
        try:
            _loaded.append(ctypes.CDLL(str(driver.with_name(name)), mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            raise DependencyError(
                f"the software OpenCL device is incomplete: {error}",
                hint="pip install --force-reinstall intel-opencl-rt intel-cmplr-lib-rt",
            ) from error
    # The driver list that the packages install names a folder that does not exist.
    others = os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep)
    drivers = [str(driver), *(name for name in others if name not in ("", str(driver)))]
    os.environ["OCL_ICD_FILENAMES"] = os.pathsep.join(drivers)
    # One work item at a time: our kernels are made of vectors of four already.  Packing work items
    # on top runs MobileNetV2 no faster and takes 3.5 times as long to build a kernel.
    os.environ.setdefault("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
    return str(opencl)


def _software_driver() -> Path:
    return Path(sys.prefix) / "lib" / "libintelocl.so"


def _software_opencl() -> Path:
    return Path(sys.prefix) / "lib" / "libOpenCL.so.1"
