"""Options of the whole suite, and the device that kernels run on."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from tests.examples import PROFILE

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # of tests that import onnxruntime themselves
# A server of adb's would stay for the tests that follow, and hide what the first of them does.
os.environ["ADBUTILS_ADB_PATH"] = "/nowhere/adb"
settings.register_profile("adrenoc", PROFILE)
settings.load_profile("adrenoc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


@pytest.fixture(scope="session")
def device() -> Any:
    """An OpenCL device with images: the software one where it is installed."""
    from adrenoc import native
    from adrenoc.errors import DeviceError
    from adrenoc.native import opencl

    installed = native.use_software_device()
    native.load()
    try:
        found = opencl.devices()
    except DeviceError as error:
        if installed:  # a driver that does not work must not pass for one that is not there
            raise
        pytest.skip(f"no OpenCL on this machine: {error}")
    if not found or not found[0]["images"]["supported"]:
        pytest.skip("no OpenCL device with images on this machine")
    import tvm

    return tvm.opencl(0)
