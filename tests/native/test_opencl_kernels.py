"""Modules of kind "opencl": building, launching, saving."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
import tvm_ffi

from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
from tests.native.opencl_source import INT32, MEMORY, load_kernels, pointer, serialised_module

pytestmark = pytest.mark.usefixtures("device")

DOUBLE = """
__kernel void double_it(__global const float* a, __global float* b) {
  b[get_global_id(0)] = 2.0f * a[get_global_id(0)];
}"""

# Reads one texel to the left of its own, so the first column comes from outside.
SHIFT = """
__kernel void shift(__read_only image2d_array_t a, __write_only image2d_array_t b) {
  const sampler_t border =
      CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
  int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
  write_imagef(b, at, read_imagef(a, border, at + (int4)(-1, -1, 0, 0)));
}"""


def _tensor(array: np.ndarray, device, scope: str = "global"):
    tensor = tvm.runtime.empty(array.shape, str(array.dtype), device, mem_scope=scope)
    tensor.copyfrom(array)
    return tensor


def test_a_kernel_on_buffers(device):
    numbers = np.arange(64, dtype="float32")
    source, target = _tensor(numbers, device), _tensor(np.zeros(64, "float32"), device)
    load_kernels({"double_it": DOUBLE})["double_it"](pointer(source), pointer(target), 4, 16)
    np.testing.assert_array_equal(target.numpy(), 2 * numbers)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_reads_outside_an_image_give_zero(device, dtype):
    numbers = np.random.default_rng(1).standard_normal((3, 5, 7, 4)).astype(dtype)
    source = _tensor(numbers, device, "global.texture")
    target = _tensor(np.full_like(numbers, 9), device, "global.texture")
    tags = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
    shift = load_kernels({"shift": SHIFT}, tags=tags)["shift"]
    shift(pointer(source), pointer(target), 7, 5, 3)
    expected = np.zeros_like(numbers)
    expected[:, 1:, 1:] = numbers[:, :-1, :-1]
    np.testing.assert_array_equal(target.numpy(), expected)


def test_scalars_reach_the_kernel(device):
    source = """
__kernel void fill(__global float* b, int start) {
  b[get_global_id(0)] = start + (int)get_global_id(0);
}"""
    target = _tensor(np.zeros(8, "float32"), device)
    kernels = load_kernels({"fill": source}, arguments=(MEMORY, INT32))
    kernels["fill"](pointer(target), -3, 2, 4)
    np.testing.assert_array_equal(target.numpy(), np.arange(-3, 5))


def test_threads_share_a_kernel(device):
    kernel = load_kernels({"double_it": DOUBLE})["double_it"]

    def run(seed: int) -> bool:
        numbers = np.full(64, seed, "float32")
        for _ in range(50):
            source, target = _tensor(numbers, device), _tensor(np.zeros(64, "float32"), device)
            kernel(pointer(source), pointer(target), 4, 16)
            if not (target.numpy() == 2 * seed).all():
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(1, 9)))


# --- refusals -----------------------------------------------------------------------------------


BROKEN = "__kernel void broken(__global float* a) { a[0] = nonsense; }"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("broken", BROKEN, r"(?s)Cannot build kernel broken .*nonsense"),
        ("broken", BROKEN, "CL_BUILD_PROGRAM_FAILURE"),
        ("broken", BROKEN, "-cl-std=CL"),
        ("wanted", DOUBLE, "source of kernel wanted does not define it"),
    ],
)
def test_sources_that_are_no_kernel(device, name, text, said):
    with pytest.raises(DeviceError, match=said):
        opencl.build_all(load_kernels({name: text}))


def test_a_work_group_that_is_too_large(device):
    limit = opencl.devices()[0]["limits"]["max_work_group_size"]
    tensor = _tensor(np.zeros(4 * limit, "float32"), device)
    kernels = load_kernels(
        {"double_it": DOUBLE}, tags=("blockIdx.x", "threadIdx.x", "threadIdx.y", "threadIdx.z")
    )
    with pytest.raises(ValueError, match=rf"double_it has a work-group of {limit} x 2 x 2 = "):
        kernels["double_it"](pointer(tensor), pointer(tensor), 1, limit, 2, 2)
    with pytest.raises(ValueError, match=r"takes at most \d+ in dimension 0"):
        kernels["double_it"](pointer(tensor), pointer(tensor), 1, 1 << 40, 1, 1)


@pytest.mark.parametrize(
    ("kernel", "scope", "error", "said"),
    [
        ("shift", "global", RuntimeError, "Argument 0 of kernel shift: .* a buffer of 256 bytes"),
        ("double_it", "global.texture", RuntimeError, "of kernel double_it: expected a buffer"),
        ("double_it", "", ValueError, "Argument 0 of kernel double_it is null"),
    ],
)
def test_arguments_that_are_no_memory_of_the_kernel(device, kernel, scope, error, said):
    given = ctypes.c_void_p(0)
    if scope:
        held = _tensor(np.zeros((1, 4, 4, 4), "float32"), device, scope)
        given = pointer(held)
    launch = load_kernels({kernel: {"shift": SHIFT, "double_it": DOUBLE}[kernel]})[kernel]
    with pytest.raises(error, match=said):
        launch(given, given, 1, 1)


def test_an_argument_type_that_cannot_be_passed(device):
    module = load_kernels({"double_it": DOUBLE}, arguments=(MEMORY, (2, 32, 4)))
    with pytest.raises(ValueError, match="double_it has an argument of type float32x4"):
        module["double_it"]


def test_dynamic_local_memory(device):
    tags = ("blockIdx.x", "threadIdx.x", "tirx.use_dyn_shared_memory")
    kernels = load_kernels({"double_it": DOUBLE}, tags=tags)
    tensor = _tensor(np.zeros(64, "float32"), device)
    with pytest.raises(ValueError, match="asks for 512 bytes of dynamic local memory"):
        kernels["double_it"](pointer(tensor), pointer(tensor), 1, 1, 512)


# --- the module as data -------------------------------------------------------------------------


def test_a_module_saves_what_it_was_loaded_from(device):
    module = load_kernels({"double_it": DOUBLE})
    assert module.kind == "opencl"
    assert DOUBLE in module.inspect_source()
    assert module.implements_function("double_it")
    assert not module.implements_function("other")


_WHOLE = serialised_module(f"// Function: f\n{DOUBLE}", {"f": (MEMORY,)}, ())
_LACKING = serialised_module("// Function: there\n", {"there": (), "missing": ()}, ())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *((_WHOLE[:n], "serialised OpenCL module ends too early") for n in (0, 5, 40, -1)),
        (_LACKING, r'no section "// Function: missing"'),
        (_WHOLE.replace(b"cl", b"xc", 1), r'has the format "cl" .* but got "xc"'),
    ],
)
def test_what_is_no_module(device, data, said):
    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.opencl")
    with pytest.raises(ValueError, match=said):
        load(data)


# --- binaries -----------------------------------------------------------------------------------


def test_binaries_spare_the_compiler(device):
    saved = load_kernels({"double_it": DOUBLE})["opencl.GetPreCompiledPrograms"]()
    module = load_kernels({"double_it": DOUBLE})
    module["opencl.SetPreCompiledPrograms"](saved)
    assert opencl.build_all(module) == {"double_it": 0.0}
    numbers = np.arange(16, dtype="float32")
    source, target = _tensor(numbers, device), _tensor(np.zeros(16, "float32"), device)
    module["double_it"](pointer(source), pointer(target), 1, 16)
    np.testing.assert_array_equal(target.numpy(), 2 * numbers)


def test_binaries_of_another_source(device):
    saved = load_kernels({"double_it": DOUBLE})["opencl.GetPreCompiledPrograms"]()
    module = load_kernels({"double_it": DOUBLE.replace("2.0f", "3.0f")})
    with pytest.raises(ValueError, match="kernel double_it was made of another source"):
        module["opencl.SetPreCompiledPrograms"](saved)
    assert opencl.build_all(module)["double_it"] > 0


def test_binaries_of_another_device(device):
    module = load_kernels({"double_it": DOUBLE})
    saved = bytes(module["opencl.GetPreCompiledPrograms"]())
    name = opencl.devices()[0]["name"].encode()
    for wrong, said in (
        (saved.replace(name, b"?" * len(name), 1), "for another device or driver"),
        (b"\2" + b"\0" * 7 + b"ab", "not kernel binaries of this runtime"),
        (saved[:-1], "kernel binaries ends too early"),
    ):
        with pytest.raises(ValueError, match=said):
            load_kernels({"double_it": DOUBLE})["opencl.SetPreCompiledPrograms"](wrong)


# --- profiling ----------------------------------------------------------------------------------


def test_each_launch_is_recorded(device):
    tensor = _tensor(np.zeros(64, "float32"), device)
    kernel = load_kernels({"double_it": DOUBLE})["double_it"]
    kernel(pointer(tensor), pointer(tensor), 4, 16)
    with opencl.profile_kernels() as profile:
        assert profile.launches == []
        kernel(pointer(tensor), pointer(tensor), 4, 16)
        kernel(pointer(tensor), pointer(tensor), 4, 16)
    kernel(pointer(tensor), pointer(tensor), 4, 16)
    assert [launch.kernel for launch in profile.launches] == ["double_it", "double_it"]
    first, second = profile.launches
    assert first.start_ns < first.end_ns <= second.start_ns < second.end_ns
    total = first.end_ns - first.start_ns + second.end_ns - second.start_ns
    assert profile.total_ns() == {"double_it": total}


def test_profiling_does_not_nest(device):
    refused = pytest.raises(RuntimeError, match="already been started")
    with opencl.profile_kernels() as profile, refused, opencl.profile_kernels():
        pass
    assert profile.launches == []
