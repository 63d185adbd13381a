"""Building and loading the runtime, and OpenCL libraries that are missing or refuse."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adrenoc import native
from adrenoc.base.errors import DependencyError, OutputError, ToolError
from tests.commands import run_program


def _run(program: str, *arguments: str) -> str:
    """The last line that a fresh Python process prints."""
    done = run_program([sys.executable, "-c", program, *arguments], check=True)
    return done.stdout.strip().splitlines()[-1]


def _pretend_compiler(folder: Path, script: str) -> None:
    folder.mkdir()
    compiler = folder / "c++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)


# --- building -----------------------------------------------------------------------------------


def test_the_library_is_built_once(device):
    first = native.build()
    stamp = first.stat().st_mtime_ns
    assert native.build() == first
    assert first.stat().st_mtime_ns == stamp
    # Those of other checkouts of adrenoc may lie beside it, and nothing unfinished.
    beside = [entry.name for entry in first.parent.iterdir()]
    assert first.name in beside
    assert [name for name in beside if not name.endswith(first.suffix)] == []


def test_another_compiler_builds_another_library(tmp_path, monkeypatch):
    # Pretends to be two compilers that write an empty file where -o says.
    script = 'if [ "$1" = --version ]; then echo {}; exit; fi\n'
    script += 'while [ "$1" != -o ]; do shift; done; : > "$2"'
    made = []
    for name in ("one", "two"):
        _pretend_compiler(tmp_path / name, script.format(name))
        monkeypatch.setenv("PATH", str(tmp_path / name), prepend=":")
        made.append(native.build(cache=tmp_path))
    assert made[0] != made[1]
    assert all(library.is_file() for library in made)


def test_a_damaged_library_is_not_opened(tmp_path, monkeypatch):
    """Its name holds its digest; what is cut off, or somebody else's, is built again."""
    script = 'if [ "$1" = --version ]; then exit; fi\n'
    script += 'while [ "$1" != -o ]; do shift; done; echo library > "$2"'
    _pretend_compiler(tmp_path / "one", script)
    monkeypatch.setenv("PATH", str(tmp_path / "one"), prepend=":")
    whole = native.build(cache=tmp_path / "cache")
    whole.write_bytes(b"cut")
    assert native.build(cache=tmp_path / "cache") == whole
    assert whole.read_bytes() == b"library\n"
    whole.chmod(0o777)
    assert native.build(cache=tmp_path / "cache") == whole
    assert whole.stat().st_mode & 0o022 == 0


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DependencyError, match=r"none of c\+\+, g\+\+, clang\+\+ is on the PATH"):
        native.build(cache=tmp_path)


def test_an_earlier_library_does_without_a_compiler(tmp_path, monkeypatch):
    script = 'if [ "$1" = --version ]; then echo one; exit; fi\n'
    script += 'while [ "$1" != -o ]; do shift; done; : > "$2"'
    _pretend_compiler(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    made = native.build(cache=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.build(cache=tmp_path) == made


def test_a_compiler_that_fails(tmp_path, monkeypatch):
    script = '[ "$1" = --version ] || { echo no such language >&2; exit 3; }'
    _pretend_compiler(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with pytest.raises(ToolError, match=r"(?s)build the OpenCL runtime.*no such language"):
        native.build(cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_cache_that_cannot_be_written(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(OutputError, match="is a file, not a folder"):
        native.build(cache=in_the_way)


def test_tvm_is_missing(monkeypatch):
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DependencyError, match="Python package tvm is not installed"):
        native.build()


# --- loading ------------------------------------------------------------------------------------


def test_a_runtime_that_is_there_is_kept():
    program = """
import tvm, tvm_ffi
tvm_ffi.register_global_func("device_api.opencl", lambda: None)
from adrenoc import native
native.load()
print(tvm_ffi.get_global_func("adrenoc.opencl.devices", allow_missing=True))
"""
    assert _run(program) == "None"


def test_no_opencl_library(device):
    program = """
import tvm, tvm_ffi
from adrenoc import native
from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
native.load()
tvm_ffi.get_global_func("adrenoc.opencl.set_library")("/nowhere/libOpenCL.so")
try:
    opencl.devices()
except DeviceError as error:
    print(tvm.opencl(0).exist, str(error).replace("\\n", " "))
"""
    said = _run(program)
    assert said.startswith("False OpenCL devices cannot be listed: No usable OpenCL library.")
    assert "/nowhere/libOpenCL.so" in said


def test_a_library_that_is_not_opencl(device):
    program = """
import sys, tvm_ffi
from adrenoc import native
from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
native.load()
tvm_ffi.get_global_func("adrenoc.opencl.set_library")(sys.argv[1])
try:
    opencl.devices()
except DeviceError as error:
    print(str(error).replace("\\n", " "))
"""
    assert f"{native.build()}: has no clGetPlatformIDs" in _run(program, str(native.build()))


def test_the_software_device_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert native.use_software_device() is False


def test_the_software_device_is_incomplete(device, tmp_path, monkeypatch, request):
    if request.config.getoption("--opencl"):
        pytest.skip("a driver was named, and so none of Intel's is looked for")
    (tmp_path / "lib").mkdir()
    for name in ("libintelocl.so", "libOpenCL.so.1"):
        (tmp_path / "lib" / name).write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(DependencyError, match="software OpenCL device is incomplete"):
        native.use_software_device()


# --- a device that runs out of memory -----------------------------------------------------------


@pytest.fixture
def refusing_library(device, tmp_path) -> Path:
    import tvm_ffi

    real = tvm_ffi.get_global_func("adrenoc.opencl.library")()
    linked = [real, f"-Wl,-rpath,{Path(real).parent}"]
    if not Path(real).is_absolute():
        linked = [f"-l:{real}"]  # the system's own, which the linker finds by its name
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the runtime was built, so there is a compiler"
    library = tmp_path / "librefusing.so"
    source = Path(__file__).with_name("refusing_opencl.c")
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-Wl,--no-as-needed"]
    command += [*linked, "-ldl"]
    subprocess.run(command, check=True)
    return library


def test_a_device_of_an_old_language_is_refused(refusing_library):
    program = """
import sys
sys.path.insert(0, sys.argv[2])
import tvm, tvm_ffi
from adrenoc import native
from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
from tests.native.opencl_source import load_kernels
native.use_software_device()
native.load()
tvm_ffi.get_global_func("adrenoc.opencl.set_library")(sys.argv[1])
try:
    opencl.build_all(load_kernels({"f": "__kernel void f() {}"}))
except DeviceError as error:
    print(opencl.devices()[0]["c_version"], error)
"""
    said = _run(program, str(refusing_library), str(Path(__file__).parent))
    assert said.startswith("120 ")
    assert said.endswith("compiles OpenCL C 1.2; kernels need OpenCL C 2.0 or newer")


_REFUSED = """
import sys, tvm, tvm_ffi
from adrenoc import native
from adrenoc.native import opencl
native.use_software_device()
native.load()
tvm_ffi.get_global_func("adrenoc.opencl.set_library")(sys.argv[1])
height = int(sys.argv[2])
def image(height):
    shape = (1, height, 5, 4)
    return tvm.runtime.empty(shape, "float32", tvm.opencl(0), mem_scope="global.texture")
kept = image(3)
image(7)  # goes to the pool at once
try:
    made = image(height)
    print("allocated", opencl.memory_stats()["pooled_bytes"])
except MemoryError as error:
    print(error)
"""


def test_no_room_on_the_device(refusing_library):
    said = _run(_REFUSED, str(refusing_library), "100")
    assert said.startswith("clCreateImage failed with CL_MEM_OBJECT_ALLOCATION_FAILURE: no room")
    assert "image of 5 x 100 texels in 1 layers (8000 bytes)" in said
    assert "where 240 bytes are in use by this process" in said


def test_the_pool_gives_way_when_memory_is_short(refusing_library):
    assert _run(_REFUSED, str(refusing_library), "50") == "allocated 0"
