"""Compile the OpenCL runtime plug-in for this machine, once."""

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
from adrenoc.base.files.read import cache_folder, is_trusted_file, private_folder, sha256_file
from adrenoc.base.host.proc import run_tool

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
                if library.name == _name_by_digest(library):
                    return library
    return None


def _name_by_digest(library: Path) -> str:
    return f"{_STEM}{sha256_file(library)}.so"


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
        return made.rename(folder / _name_by_digest(made))


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
