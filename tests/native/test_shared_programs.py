"""Kernels that run one program with constants of their own, and programs of several kernels."""

from typing import Any

import numpy as np
import pytest

from adrenoc.kernels.codegen.opencl_source import prelude
from adrenoc.native import opencl
from tests.native.opencl_source import MEMORY, load_kernels, pointer

pytestmark = pytest.mark.usefixtures("device")

FILL = """// Constants: int 7, float 2.5e-1f
__kernel void fill(__global float* a, __global float* b, int c0, float c1) {
  b[get_global_id(0)] = c0 + c1;
}"""
KERNELS = {
    "fill": FILL,
    "other": "// Program: fill\n// Constants: int -3, float 1.0f",
    "same": "// Program: fill\n// Constants: int 7, float 2.5e-1f",
}
WANTED = {"fill": 7.25, "other": -2.0, "same": 7.25}
# A helper of each text that has the other's name: together they do not compile.
HELPER = """static float help(float x) {{ return x * {0}; }}
__kernel void {1}(__global float* a, __global float* b) {{ b[get_global_id(0)] = help(1.0f); }}"""


def _filled(module: Any, name: str, device: Any) -> np.ndarray:
    import tvm

    tensor = tvm.runtime.empty((8,), "float32", device)
    tensor.copyfrom(np.zeros(8, "float32"))
    module[name](pointer(tensor), pointer(tensor), 2, 4)
    found: np.ndarray = tensor.numpy()
    return found


@pytest.mark.parametrize("built", [True, False])
def test_constants_reach_their_kernel(device, built):
    module = load_kernels(KERNELS)
    if built:
        times = opencl.build_all(module)
        assert times["fill"] > 0
        assert times["other"] == times["same"] == 0
    for _ in range(2):
        for name, number in WANTED.items():
            np.testing.assert_array_equal(_filled(module, name, device), np.full(8, number))
    assert set(opencl.build_all(module).values()) == {0}


def test_binaries_of_shared_programs(device):
    saved = load_kernels(KERNELS)["opencl.GetPreCompiledPrograms"]()
    module = load_kernels(KERNELS)
    module["opencl.SetPreCompiledPrograms"](saved)
    assert set(opencl.build_all(module).values()) == {0}
    for name, number in WANTED.items():
        np.testing.assert_array_equal(_filled(module, name, device), np.full(8, number))


def test_texts_that_do_not_go_together_are_built_alone(device):
    names = [f"k{i}" for i in range(20)]
    module = load_kernels({name: HELPER.format(f"{i}.0f", name) for i, name in enumerate(names)})
    assert all(time_ms > 0 for time_ms in opencl.build_all(module).values())
    for i, name in enumerate(names):
        np.testing.assert_array_equal(_filled(module, name, device), np.full(8, i))


def test_functions_that_all_texts_have_are_defined_once_a_program(device):
    functions = "".join(text for _, text in prelude() if "static " in text and "half" not in text)
    assert functions
    names = [f"k{i}" for i in range(40)]
    kernel = "__kernel void {0}(__global float* a, __global float* b) {{ *a = *b; }}"
    texts = {name: functions + kernel.format(name) for name in names}
    times = opencl.build_all(load_kernels(texts))
    assert len(set(times.values())) < len(names), "each was built alone"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            "// Program: missing\n",
            "Kernel bad runs the program of missing, which the OpenCL source",
        ),
        ("// Program: other\n", "Kernel bad runs the program of other, which the OpenCL source"),
        ("// Program: bad\n", "Kernel bad runs the program of bad, which the OpenCL source"),
        ("// Program: fill\n// Constants: int x, float 1.0f", 'has the constant "int x"; expected'),
        ("// Program: fill\n// Constants: int 99999999999", 'constant "int 99999999999"; expected'),
        ("// Program: fill\n// Constants: double 1.0", 'has the constant "double 1.0"; expected'),
        ("// Program: fill\n// Constants: int", 'has the constant "int"; expected "int NUMBER"'),
        ("// Program: fill\n// Constants: float 1.0", 'has the constant "float 1.0"; expected'),
    ],
)
def test_sections_that_cannot_be_read(section, said):
    with pytest.raises(ValueError, match=said):
        load_kernels({**KERNELS, "bad": section}, arguments=(MEMORY, MEMORY))
