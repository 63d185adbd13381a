"""Two models at once in one process: right numbers, on threads too, and nothing that leaks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.native.android.runtime_build import Runtime
from tests.runtime.programs import Finished, compile_against

Execute = Callable[..., Finished]

RUNS = 10_000
# The allocator's noise; four bytes a run would be 30.
GROWTH_KIB = 256
# Of the context that lives as long as the process: itself and its queue.
KEPT = 2


@pytest.fixture(scope="module")
def program(runtime: Runtime, work: Path) -> Path:
    return compile_against(runtime, "models_program.cc", work / "models_program")


@pytest.fixture(scope="module")
def cache(work: Path) -> Path:
    return work / "many-models-cache"


@pytest.mark.parametrize("way", ["recorded", "plain"])
def test_two_models_are_right(way, program, bundle, shapes, opencl, cache, execute):
    extra = {"NO_RECORD": "1"} if way == "plain" else {}
    told = execute(program, bundle.path, shapes.path, opencl, cache, 300, **extra).json()
    assert told["contexts"] == 1


def test_memory_does_not_grow(program, bundle, shapes, opencl, cache, execute):
    command = (program, bundle.path, shapes.path, opencl, cache, RUNS)
    told = execute(*command, NO_RECORD="1").json()
    assert told["runs"] == RUNS
    assert told["grown_kib"] < GROWTH_KIB


@pytest.mark.parametrize("device", ["stub plain", "stub buffers", "stub recordable"])
def test_all_objects_come_back(device, runtime, stub, bundle, shapes, execute, tmp_path):
    counted = compile_against(runtime, "counted_models.cc", tmp_path / "counted", "-ldl")
    told = execute(counted, bundle.path, shapes.path, stub, device, RUNS).json()
    assert len(set(told["live"])) == 1
    assert told["live"][0] > KEPT
    assert told["kept"] == KEPT
    assert told["grown_kib"] < GROWTH_KIB
