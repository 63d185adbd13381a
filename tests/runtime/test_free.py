"""A model that is freed gives the device all back: counted, not believed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.android.runtime_build import Runtime
from adrenoc.bundle.bundle import Bundle
from tests.runtime.programs import HERE, Finished, compile_against

# Of the context that lives as long as the process: itself and its queue.
KEPT = 2


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counting OpenCL library."""
    library = tmp_path_factory.mktemp("stub") / "libstub_opencl.so"
    sources = sorted((HERE.parent / "native").glob("stub_*.c"))
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), *map(str, sources)]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize("name", ["bundle", "shapes"])
@pytest.mark.parametrize("device", ["stub plain", "stub buffers", "stub recordable"])
def test_all_is_released_whatever_failed(
    name: str,
    device: str,
    runtime: Runtime,
    bundle: Bundle,
    shapes: Bundle,
    stub: Path,
    execute: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    program = compile_against(runtime, "free_program.cc", tmp_path / "free_program", "-ldl")
    path = {"bundle": bundle, "shapes": shapes}[name].path
    told = execute(program, path, stub, device).json()
    assert told["kept"] == KEPT
    assert told["cycles"] == 14
    # Calls that the model does not make cannot fail.
    assert told["failed"] > 40
    assert told["trimmed"] > 0
