"""What is for the real library compiles against headers with the names that it uses."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.errors import OptionError
from adrenoc.native import _include_options
from adrenoc.native.android.runtime_build import build_runtime
from tests.clml.stub_sdk import write_stub_sdk
from tests.commands import run_program

_SOURCE = Path(adrenoc.__file__).parent / "native/src/clml/real_backend.cc"


def _compile(sdk: Path) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    specs = [importlib.util.find_spec(name) for name in ("tvm", "tvm_ffi")]
    folders = [Path(str(spec.origin)).parent for spec in specs if spec is not None]
    includes = [f"-isystem{sdk / 'include'}", *_include_options(*folders)]
    command = [compiler, "-std=c++17", "-fsyntax-only", "-DADRENOC_CLML_SDK", *includes]
    return run_program([*command, str(_SOURCE)])


@pytest.mark.parametrize("major", [1, pytest.param(3, marks=pytest.mark.nightly), 5])
def test_compiles(tmp_path, major):
    result = _compile(write_stub_sdk(tmp_path, major=major))
    assert result.returncode == 0, result.stderr[-3000:]


def test_missing_functions_are_found(tmp_path):
    names = ("clCreateMLOpGemmQCOM", "clUpdateMLTensorMemoryDescriptorSetQCOM")
    sdk = write_stub_sdk(tmp_path, major=2)
    header = sdk / "include" / "CL" / "cl_qcom_ml_ops.h"
    text = header.read_text()
    for number, name in enumerate(names):
        text = text.replace(f"(*{name})", f"(*other{number})")
    header.write_text(text)
    result = _compile(sdk)
    assert result.returncode != 0
    assert all(name in result.stderr for name in names)


def test_a_folder_without_the_header(tmp_path):
    with pytest.raises(OptionError, match=r"is no OpenCL ML SDK: it holds no CL/cl_qcom_ml_ops\.h"):
        build_runtime(clml_sdk=tmp_path, cache=tmp_path / "cache")


def test_nothing_of_the_sdk_is_in_the_sources():
    """Only one file names the SDK's header, and nothing here declares what is in it."""
    native = _SOURCE.parents[2]
    naming = [
        path.name
        for path in native.rglob("*")
        if path.suffix in (".cc", ".h", ".def") and "cl_qcom_ml_ops.h" in path.read_text()
    ]
    assert naming == ["real_library.h"]
