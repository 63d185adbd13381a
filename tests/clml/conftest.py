"""What the tests of OpenCL ML share: the emulator on a software device."""

import gc
import json
from collections.abc import Callable, Iterator

import pytest
import tvm_ffi

from tests.clml.regions import Emulate


@pytest.fixture
def emulate(device) -> Iterator[Emulate]:
    """Sets the emulator up, as all the settings say (none: a device of version 4)."""
    function = tvm_ffi.get_global_func("adrenoc.clml.emulate")

    def apply(**settings) -> None:
        function(json.dumps(settings))

    yield apply
    function("")


@pytest.fixture
def live_objects(device) -> Callable[[], int]:
    """How many objects of emulated libraries the process has not given back."""
    function: Callable[[], int] = tvm_ffi.get_global_func("adrenoc.clml.emulated_objects")
    gc.collect()  # what earlier tests left behind
    return function
