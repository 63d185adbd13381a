"""Every call fails once at every place, under the address and undefined-behaviour sanitizers."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import adrenoc
from adrenoc import native
from adrenoc.clml.region import document_text
from adrenoc.native import _include_options, package_folder
from tests.clml.regions import SHAPE, cut, make, module_of, plain
from tests.clml.stub_sdk import write_stub_library, write_stub_sdk
from tests.commands import run_program
from tests.compilers import compile_once

pytestmark = pytest.mark.nightly

_NATIVE = Path(adrenoc.__file__).parent / "native"
_HERE = Path(__file__).parent
# What regions need of the runtime: the sanitizers take their time with every file more.
_OPENCL = (
    *("launch/kernel", "opencl/cl_api", "api/device_api"),
    *(f"base/{name}" for name in ("half", "json", "sha256", "sha256_instructions")),
)
_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
_QUICK = "clang++-14"
"""Takes half the time of GCC with sanitizers, where Debian's libclang-rt-14-dev is there."""


def _sanitizing_compiler() -> str | None:
    if quick := shutil.which(_QUICK):
        asked = [quick, "-print-file-name=libclang_rt.asan-x86_64.a"]
        runtime = run_program(asked, check=True).stdout.strip()
        if Path(runtime).is_file():
            return quick
    return shutil.which("c++") or shutil.which("g++")


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> tuple[Path, Path]:
    """The program and the OpenCL library that has nothing but memory."""
    compiler = _sanitizing_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("leaks")
    library, program = folder / "libOpenCL.so", folder / "leaks"
    fakes = [str(_HERE / f"{name}_opencl.cc") for name in ("memory", "nothing")]
    sdk = write_stub_sdk(folder / "sdk", major=5)
    fakes.append(str(write_stub_library(folder / "library.cc", major=5)))
    options = ["-std=c++17", "-fPIC", f"-I{_NATIVE / 'src'}", f"-isystem{sdk / 'include'}"]
    subprocess.run(
        [compiler, *options, "-shared", "-Bsymbolic", *fakes, "-o", str(library)], check=True
    )
    tvm_folder, ffi_folder = package_folder("tvm"), package_folder("tvm_ffi")
    unit = folder / "unit.cc"
    source = _NATIVE / "src"
    sources = [source / f"{name}.cc" for name in _OPENCL]
    # The file for the real library comes last: the macros of its header would spoil the others.
    real = source / "clml" / "real_backend.cc"
    others = [path for path in sorted((source / "clml").glob("*.cc")) if path != real]
    sources += [*others, _HERE / "leaks.cc", real]
    unit.write_text("".join(f'#include "{path}"\n' for path in sources))
    libraries = [tvm_folder / "lib" / "libtvm_runtime.so", ffi_folder / "lib" / "libtvm_ffi.so"]
    command = [compiler, "-std=c++17", "-O0", "-g1", "-w", *_SANITIZE, "-DADRENOC_CLML_SDK"]
    command += [f"-isystem{sdk / 'include'}"]
    command += _include_options(tvm_folder, ffi_folder)
    command += [str(unit), *map(str, libraries), "-ldl", "-pthread"]
    command += [f"-Wl,-rpath,{path.parent}" for path in libraries]
    return compile_once(command, program), library


# Calls that cost the region, of the 33, in two plain runs, a tuning run and a tuned one.  What has
# copies inside is not recorded; what fails to load or save tuning results goes on.
_TUNING = {"clLoadMLTuningCacheQCOM", "clSaveMLTuningCacheQCOM", "clTuneMLOpQCOM"}
_CALLS = {make: 27 + 27 + 28 + 27, plain: 51}


@pytest.mark.parametrize("function", [make, plain], ids=["every_operator", "plain"])
def test_nothing_is_lost(programs, tmp_path, function):
    told = _run(programs, tmp_path, function, str(tmp_path / "tuning.bin"))
    assert told["calls"] == _CALLS[function]
    assert told["tried"] > told["refused"] + told["failed"]  # the rest ran, and was compared


def test_the_file_for_the_real_library_loses_nothing(programs, tmp_path):
    """It makes every operator by the call that the emulator names, and gives all back."""
    called: set[str] = set()
    for function in (make, plain):
        told = _run(programs, tmp_path, function, "--real")
        assert told["refused"] >= 15 and told["failed"] >= 2
        called.update(told["called"].split())
    native.load()
    calls = tvm_ffi.get_global_func("adrenoc.clml.emulated_calls")
    wanted = set(json.loads(calls())) - _TUNING
    wanted -= {"clCreateMLTensorQCOM"}  # interface 4 has another in its place
    assert wanted | {"clCreateMLTensorWithUsageQCOM"} <= called


def _run(programs: tuple[Path, Path], folder: Path, function, last: str) -> dict[str, Any]:
    (region,) = cut(module_of(function, SHAPE)).regions
    (folder / "graph.json").write_text(document_text(region))
    values = [np.ascontiguousarray(value).tobytes() for _, value in region.constants()]
    (folder / "constants.bin").write_bytes(b"".join(values))
    program, library = programs
    files = [str(folder / name) for name in ("graph.json", "constants.bin")]
    result = run_program(
        [str(program), str(library), *files, last],
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1:exitcode=66"},
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return dict(json.loads(result.stdout))
