"""The device list and TVM's questions to a device."""

import pytest

from adrenoc import native
from adrenoc.native import opencl

pytestmark = pytest.mark.usefixtures("device")


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
    import tvm

    absent = tvm.opencl(len(opencl.devices()))
    assert not absent.exist
    with pytest.raises(ValueError, match="There is no OpenCL device"):
        tvm.runtime.empty((4,), "float32", absent)
    with pytest.raises(ValueError, match="There is no OpenCL device"):
        opencl.memory_stats(len(opencl.devices()))


def test_loading_again_changes_nothing():
    import tvm_ffi

    before = tvm_ffi.get_global_func("device_api.opencl")().value
    native.load()
    assert tvm_ffi.get_global_func("device_api.opencl")().value == before


def test_the_library_cannot_be_changed_in_use():
    import tvm_ffi

    opencl.devices()
    with pytest.raises(RuntimeError, match="is already in use by this process"):
        tvm_ffi.get_global_func("adrenoc.opencl.set_library")("/another/libOpenCL.so")


def test_only_the_default_stream_exists(device):
    device.sync()
    with pytest.raises(ValueError, match="default stream only"):
        device.sync(stream=1)
