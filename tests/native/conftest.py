"""What the tests of the OpenCL runtime share: the counting library, statistics of a device."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adrenoc import native
from adrenoc.native import opencl
from tests.commands import run_program
from tests.compilers import compile_stub


@pytest.fixture(scope="session")
def counted(tmp_path_factory) -> Callable[..., dict[str, Any]]:
    """What a program of this folder sees of the counting OpenCL library."""
    native.build()
    library = compile_stub(tmp_path_factory.mktemp("stub"))

    def see(program: str) -> dict[str, Any]:
        done = run_program([sys.executable, Path(__file__).with_name(program), library])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return see


@pytest.fixture
def stats(device) -> Callable[[], dict[str, int]]:
    """Memory statistics, counted from an empty pool."""
    device.sync()
    opencl.release_pool()
    return opencl.memory_stats
