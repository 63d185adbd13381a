"""What the tests of the OpenCL runtime share: the memory statistics of a device."""

from collections.abc import Callable

import pytest

from adrenoc.native import opencl


@pytest.fixture
def stats(device) -> Callable[[], dict[str, int]]:
    """Memory statistics, counted from an empty pool."""
    device.sync()
    opencl.release_pool()
    return opencl.memory_stats
