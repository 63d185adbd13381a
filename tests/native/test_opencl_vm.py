"""Compiled modules on the OpenCL runtime, its devices, and kernels that share programs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import opencl_model
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import VDevice

from adrenoc import native
from adrenoc.kernels.codegen.opencl_source import prelude
from adrenoc.native import opencl
from tests.native.opencl_source import MEMORY, load_kernels, pointer

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def machine(device):
    return relax.VirtualMachine(opencl_model.build(), [device, device])


def _check(machine, device) -> None:
    numbers = np.random.default_rng(3).standard_normal((2, 3, 5)).astype("float32")
    result = machine["main"](tvm.runtime.tensor(numbers, device)).numpy()
    expected = np.zeros((2, 3, 5, 4), "float32")
    expected[:, :, 1:] = numbers[:, :, :-1, None]
    np.testing.assert_array_equal(result, expected)


def test_a_model_with_buffers_and_textures(machine, device):
    _check(machine, device)


def test_nothing_is_allocated_by_a_second_run(machine, device):
    _check(machine, device)
    before = opencl.memory_stats()
    for _ in range(3):
        _check(machine, device)
    after = opencl.memory_stats()
    assert after["peak_bytes"] == before["peak_bytes"]
    assert after["allocated_bytes"] == before["allocated_bytes"]
    assert after["reuses"] > before["reuses"]


def test_the_storage_that_is_planned_for_a_texture_takes_no_memory(machine, device):
    _check(machine, device)
    device.sync()
    opencl.release_pool()
    before = opencl.memory_stats()["peak_bytes"]
    _check(machine, device)
    # The input, the image and the output, with what size classes round up.
    assert opencl.memory_stats()["peak_bytes"] - before <= 256 + 2 * 3 * 5 * 16 + 512


def test_a_library_that_tvm_saved_by_itself(device, tmp_path):
    library = tmp_path / "model.so"
    program = Path(__file__).with_name("opencl_model.py")
    subprocess.run([sys.executable, str(program), str(library)], check=True)
    _check(relax.VirtualMachine(tvm.runtime.load_module(str(library)), [device, device]), device)


def test_a_library_that_our_module_saved(device, tmp_path):
    library = tmp_path / "model.so"
    opencl_model.build().export_library(str(library))
    module = tvm.runtime.load_module(str(library))
    assert set(opencl.build_all(module)) == {"spread_kernel", "shift_kernel"}
    assert all(time_ms == 0 for time_ms in opencl.build_all(module).values())
    _check(relax.VirtualMachine(module, [device, device]), device)


def test_time_evaluator_uses_the_device_clock(machine, device):
    argument = tvm.runtime.tensor(np.zeros((2, 3, 5), "float32"), device)
    timed = machine.time_evaluator("main", device, number=3, repeat=2)(argument)
    assert len(timed.results) == 2
    assert all(seconds > 0 for seconds in timed.results)


# --- storage shared by planning -----------------------------------------------------------------


def _storage_machine(device, storage: tuple[int, ...], view: tuple[int, ...]):
    """A machine that puts a texture of shape `view` into an image planned for `storage`."""
    texture = VDevice({"kind": "opencl"}, 0, "global.texture")
    builder = relax.BlockBuilder()
    builder.get().update_global_info("vdevice", [texture])
    plan = relax.op.vm.alloc_storage(list(storage), 0, "float32", "global.texture")
    with builder.function("main", []):
        whole = builder.emit(plan)
        made = relax.op.vm.alloc_tensor(whole, 0, relax.ShapeExpr(view), "float32", 0)
        builder.emit_func_output(builder.emit(made))
    target = tvm.target.Target({"kind": "opencl"}, host="llvm")
    built = relax.build(builder.get(), target=target, relax_pipeline=None)
    return relax.VirtualMachine(built, [device])


def test_textures_share_a_planned_image(device):
    machine = _storage_machine(device, (4, 3, 5, 4), (2, 3, 5, 4))
    device.sync()
    opencl.release_pool()
    before = opencl.memory_stats()
    tensor = machine["main"]()
    after = opencl.memory_stats()
    assert after["images"] - before["images"] == 1
    assert after["allocated_bytes"] - before["allocated_bytes"] == 4 * 3 * 5 * 16
    array = np.random.default_rng(5).standard_normal((2, 3, 5, 4)).astype("float32")
    tensor.copyfrom(array)
    np.testing.assert_array_equal(tensor.numpy(), array)
    del tensor, machine  # the machine keeps its last result
    assert opencl.memory_stats()["images"] == before["images"]


@pytest.mark.parametrize("view", [(1, 3, 4, 4), (1, 2, 5, 4)])
def test_a_texture_that_has_no_place_in_a_planned_image(device, view):
    machine = _storage_machine(device, (4, 3, 5, 4), view)
    with pytest.raises(ValueError, match="cannot share the memory of an image of 5 x 3 texels"):
        machine["main"]()


def test_a_device_describes_itself():
    facts = opencl.devices()[0]
    assert facts["name"] and facts["vendor"] and facts["driver"]
    assert facts["version"].startswith("OpenCL ")
    assert facts["type"] in ("gpu", "accelerator", "cpu", "custom")
    assert facts["c_version"] >= 200
    assert facts["fp16"] == ("cl_khr_fp16" in facts["extensions"])
    assert facts["images"]["max_width"] >= 2048  # the least that OpenCL 2.0 allows
    assert facts["images"]["max_layers"] >= 256
    assert len(facts["limits"]["max_work_item_sizes"]) == 3
    assert facts["limits"]["max_allocation_bytes"] >= 1 << 27


def test_gpus_come_before_cpus():
    ranks = [["gpu", "accelerator", "cpu", "custom"].index(d["type"]) for d in opencl.devices()]
    assert ranks == sorted(ranks)


def test_tvm_sees_the_same_facts(device):
    facts = opencl.devices()[0]
    assert device.exist
    assert device.device_name == facts["name"]
    assert device.max_threads_per_block == facts["limits"]["max_work_group_size"]
    assert device.max_shared_memory_per_block == facts["limits"]["local_memory_bytes"]
    assert list(device.max_thread_dimensions) == facts["limits"]["max_work_item_sizes"]
    assert device.multi_processor_count == facts["limits"]["compute_units"]
    assert device.max_clock_rate == facts["limits"]["clock_mhz"] * 1000
    assert device.total_global_memory == facts["limits"]["global_memory_bytes"]
    assert device.l2_cache_size_bytes == facts["limits"]["global_cache_bytes"]
    assert device.api_version == facts["c_version"]
    assert facts["version"].split()[:2] == ["OpenCL", device.compute_version]
    assert device.warp_size == 1


def test_a_device_that_is_not_there():
    absent = tvm.opencl(len(opencl.devices()))
    assert not absent.exist
    with pytest.raises(ValueError, match="There is no OpenCL device"):
        tvm.runtime.empty((4,), "float32", absent)
    with pytest.raises(ValueError, match="There is no OpenCL device"):
        opencl.memory_stats(len(opencl.devices()))


def test_loading_again_changes_nothing():
    before = tvm_ffi.get_global_func("device_api.opencl")().value
    native.load()
    assert tvm_ffi.get_global_func("device_api.opencl")().value == before


def test_the_library_cannot_be_changed_in_use():
    opencl.devices()
    with pytest.raises(RuntimeError, match="is already in use by this process"):
        tvm_ffi.get_global_func("adrenoc.opencl.set_library")("/another/libOpenCL.so")


def test_only_the_default_stream_exists(device):
    device.sync()
    with pytest.raises(ValueError, match="default stream only"):
        device.sync(stream=1)


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


def _filled(module, name: str, device) -> np.ndarray:
    tensor = tvm.runtime.empty((8,), "float32", device)
    tensor.copyfrom(np.zeros(8, "float32"))
    module[name](pointer(tensor), pointer(tensor), 2, 4)
    return tensor.numpy()


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
