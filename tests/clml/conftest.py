"""What the tests of OpenCL ML share: a software device, and the emulator on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tvm_ffi

from adrenoc import native
from adrenoc.errors import DeviceError
from adrenoc.native import opencl
from tests.clml.regions import Emulate


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


@pytest.fixture
def emulate(device: Any) -> Iterator[Emulate]:
    """Sets the emulator up, as all the settings say (none: a device of version 4)."""
    function = tvm_ffi.get_global_func("adrenoc.clml.emulate")

    def apply(**settings: Any) -> None:
        function(json.dumps(settings))

    yield apply
    function("")


@pytest.fixture
def live_objects(device: Any) -> Callable[[], int]:
    """How many objects of emulated libraries have not been given back."""
    function: Callable[[], int] = tvm_ffi.get_global_func("adrenoc.clml.emulated_objects")
    return function
