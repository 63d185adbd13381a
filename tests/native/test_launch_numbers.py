"""What repeated runs compute, on a device."""

import json
from typing import Any

import numpy as np
import pytest

from tests.native.opencl_source import INT32, MEMORY, load_kernels, pointer

STEPS = 6
KEPT, BUFFER = "kept arguments", "a command buffer"

# Each step depends on the one before, and on its own number.
STEP = """
__kernel void next_of(__global const float* a, __global float* b, int n) {
  int i = get_global_id(0);
  b[i] = a[63 - i] * 1.25f + (float)n;
}"""


class _Net:
    """A chain of launches on fresh memory."""

    def __init__(self, device: Any) -> None:
        import tvm

        self._device = device
        module = load_kernels({"next_of": STEP}, arguments=(MEMORY, MEMORY, INT32))
        self._kernel = module["next_of"]
        self.input = tvm.runtime.empty((64,), "float32", device)

    def main(self, tensor: Any) -> Any:
        import tvm

        for step in range(STEPS):
            made = tvm.runtime.empty((64,), "float32", self._device)
            self._kernel(pointer(tensor), pointer(made), step, 4, 16)
            tensor = made
        return tensor

    def bind(self, recording: str, number: int = 0) -> Any:
        import tvm_ffi

        bind = tvm_ffi.get_global_func("adrenoc.opencl.bind_run")
        return bind(tvm_ffi.convert(self.main), "", number, recording, self.input)


@pytest.mark.parametrize("recording", ["best", "always", "kept"])
def test_replays_compute_what_the_first_run_computes(device, recording):
    net = _Net(device)
    plain, bound = net.bind("off"), net.bind(recording)
    random = np.random.default_rng(7)
    for _ in range(8):
        net.input.copyfrom(random.standard_normal(64).astype("float32"))
        expected = plain["run"]().numpy()
        np.testing.assert_array_equal(bound["run"]().numpy(), expected)
    mode = json.loads(bound["report"]())["mode"]
    assert mode == KEPT if recording == "kept" else mode in (KEPT, BUFFER)


def test_runs_in_a_queue_do_not_get_in_each_others_way(device):
    net = _Net(device)
    bound = net.bind("always")
    net.input.copyfrom(np.arange(64, dtype="float32"))
    expected = bound["run"]().numpy()
    for _ in range(30):
        bound["run"]()
    np.testing.assert_array_equal(bound["run"]().numpy(), expected)


@pytest.mark.parametrize("recording", ["always", "kept"])
def test_numbers_of_an_input_that_is_bound_to_other_memory(device, recording):
    import tvm

    net = _Net(device)
    plain, bound = net.bind("off"), net.bind(recording)
    random = np.random.default_rng(11)
    for _ in range(3):
        tensor = tvm.runtime.empty((64,), "float32", device)
        tensor.copyfrom(random.standard_normal(64).astype("float32"))
        plain["rebind"](0, tensor)
        bound["rebind"](0, tensor)
        for _ in range(4):
            expected = plain["run"]().numpy()
            np.testing.assert_array_equal(bound["run"]().numpy(), expected)


def test_an_input_that_is_an_output(device):
    """What is given back is the memory that is bound, in every run."""
    import tvm
    import tvm_ffi

    net = _Net(device)

    def passing(tensor: Any) -> Any:
        return tvm_ffi.convert([tensor, net.main(tensor)])

    net.input.copyfrom(np.arange(64, dtype="float32"))
    bind = tvm_ffi.get_global_func("adrenoc.opencl.bind_run")
    bound = bind(tvm_ffi.convert(passing), "", 0, "always", net.input)
    other = tvm.runtime.empty((64,), "float32", device)
    other.copyfrom(np.full(64, 3, "float32"))
    for tensor in (net.input, other):
        bound["rebind"](0, tensor)
        for _ in range(3):
            given, made = bound["run"]()
            np.testing.assert_array_equal(given.numpy(), tensor.numpy())
            np.testing.assert_array_equal(made.numpy(), net.main(tensor).numpy())
            del given, made


def test_an_unknown_way_to_record(device):
    with pytest.raises(ValueError, match=r'recording is "fast", expected best, always, kept'):
        _Net(device).bind("fast")


def test_numbers_on_pocl(device):
    import tvm

    from adrenoc.native import opencl

    found = opencl.devices()
    numbers = [n for n, facts in enumerate(found) if "Portable" in facts["platform"]]
    if not numbers:
        pytest.skip("PoCL is not installed (apt-get install pocl-opencl-icd)")
    import tvm_ffi

    pocl = tvm.runtime.device("opencl", numbers[0])
    set_device = tvm_ffi.get_global_func("__tvm_set_device")
    set_device(pocl.dlpack_device_type(), numbers[0])
    try:
        net = _Net(pocl)
        bound = net.bind("always", numbers[0])
        net.input.copyfrom(np.arange(64, dtype="float32"))
        expected = bound["run"]().numpy()
        for _ in range(3):
            np.testing.assert_array_equal(bound["run"]().numpy(), expected)
        said = json.loads(bound["report"]())
        has_buffers = "cl_khr_command_buffer" in found[numbers[0]]["extensions"]
        assert said["mode"] == (BUFFER if has_buffers else KEPT), said
    finally:
        set_device(device.dlpack_device_type(), 0)
