"""What the tests of the OpenCL runtime share: a device and its memory statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adrenoc import native
from adrenoc.errors import DeviceError
from adrenoc.native import opencl


@pytest.fixture(scope="session")
def device() -> Any:
    """The first OpenCL device; it must have images."""
    native.use_software_device()
    native.load()
    try:
        found = opencl.devices()
    except DeviceError as error:
        pytest.skip(f"no OpenCL on this machine: {error}")
    if not found or not found[0]["images"]["supported"]:
        pytest.skip("no OpenCL device with images on this machine")
    import tvm

    return tvm.opencl(0)


@pytest.fixture
def stats(device: Any) -> Callable[[], dict[str, int]]:
    """Memory statistics, counted from an empty pool."""
    device.sync()
    opencl.release_pool()
    return opencl.memory_stats
