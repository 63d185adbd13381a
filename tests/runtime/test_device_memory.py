"""Memory of the device that an app made: OpenCL buffers, and Android's hardware buffers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.native.android.runtime_build import Runtime
from tests.runtime.programs import Finished, compile_against, compile_opencl, read_printed

Execute = Callable[..., Finished]


@pytest.fixture(scope="module")
def program(runtime: Runtime, work: Path) -> Path:
    # What plays the part of Android's libraries has to be visible to the runtime.
    return compile_against(runtime, "device_memory.cc", work / "device_memory", "-rdynamic", "-ldl")


@pytest.fixture(scope="module")
def accepting(work: Path, opencl: str) -> Path:
    """An OpenCL library whose devices take AHardwareBuffers."""
    return compile_opencl("hardware_buffer_opencl.c", work, opencl)


@pytest.mark.parametrize("kind", ["buffers", "qcom", "khr"])
def test_numbers_equal_python(
    kind, program, accepting, bundle, case, opencl, execute, work, tmp_path
):
    is_buffer = kind == "buffers"
    command = [program, bundle.path, opencl if is_buffer else accepting, work / "memory-cache"]
    command += case.inputs_of(bundle)
    extra = {} if is_buffer else {"ADRENOC_TEST_HARDWARE_BUFFER": kind}
    assert read_printed(execute, command, tmp_path, **extra) == case.bytes_of(bundle)
