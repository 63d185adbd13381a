"""What the tests of whole models share: the software OpenCL device."""

from __future__ import annotations

from typing import Any

import pytest

from adrenoc import native
from adrenoc.errors import DeviceError
from adrenoc.native import opencl


@pytest.fixture(scope="session")
def device() -> Any:
    """An OpenCL device with images: the software one where it is installed."""
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
