"""Kernels are built side by side: each once, and the first that fails is told."""

import shutil
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
from tests.commands import run_program
from tests.compilers import compile_once
from tests.native.opencl_source import load_kernels

HERE = Path(__file__).parent
SOURCES = Path(adrenoc.__file__).parent / "native" / "src"


def test_what_side_by_side_promises(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None, "the runtime was built, so there is a compiler"
    program = tmp_path / "side_by_side"
    files = [str(HERE / "side_by_side.cc"), str(SOURCES / "base/side_by_side.cc")]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCES}"]
    compile_once([compiler, *flags, *files], program)
    done = run_program([str(program)])
    assert (done.returncode, done.stdout) == (0, "")


def test_the_first_broken_kernel_is_told(device):
    good = "__kernel void {0}(__global float* a, __global float* b) {{ b[0] = a[0]; }}"
    bad = "__kernel void {0}(__global float* a, __global float* b) {{ b[0] = missing; }}"
    names = [f"k{i:02}" for i in range(16)]
    texts = {name: (bad if name >= "k05" else good).format(name) for name in names}
    for _ in range(3):
        module = load_kernels(texts)
        with pytest.raises(DeviceError, match=r"Cannot build kernel k05 "):
            opencl.build_all(module)
