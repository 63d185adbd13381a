"""Compiled Relax modules on the OpenCL runtime."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.native import opencl

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def machine(device) -> Any:
    import opencl_model
    from tvm import relax

    return relax.VirtualMachine(opencl_model.build(), [device, device])


def _check(machine: Any, device: Any) -> None:
    import tvm

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
    import tvm
    from tvm import relax

    library = tmp_path / "model.so"
    program = Path(__file__).with_name("opencl_model.py")
    subprocess.run([sys.executable, str(program), str(library)], check=True)
    _check(relax.VirtualMachine(tvm.runtime.load_module(str(library)), [device, device]), device)


def test_a_library_that_our_module_saved(device, tmp_path):
    import opencl_model
    import tvm
    from tvm import relax

    library = tmp_path / "model.so"
    opencl_model.build().export_library(str(library))
    module = tvm.runtime.load_module(str(library))
    assert set(opencl.build_all(module)) == {"spread_kernel", "shift_kernel"}
    assert all(time_ms == 0 for time_ms in opencl.build_all(module).values())
    _check(relax.VirtualMachine(module, [device, device]), device)


def test_time_evaluator_uses_the_device_clock(machine, device):
    import tvm

    argument = tvm.runtime.tensor(np.zeros((2, 3, 5), "float32"), device)
    timed = machine.time_evaluator("main", device, number=3, repeat=2)(argument)
    assert len(timed.results) == 2
    assert all(seconds > 0 for seconds in timed.results)


# --- storage shared by planning -----------------------------------------------------------------


def _storage_machine(device: Any, storage: tuple[int, ...], view: tuple[int, ...]) -> Any:
    """A machine that puts a texture of shape `view` into an image planned for `storage`."""
    import tvm
    from tvm import relax
    from tvm.relax import VDevice

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
