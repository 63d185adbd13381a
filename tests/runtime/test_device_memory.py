"""Memory of loads, budgets, what an app made, and that a freed model gives all back."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.commands import compile_model, run_program
from tests.models import graph, write
from tests.runtime.programs import compile_against, compile_opencl, read_printed
from tests.runtime.servers import SOFTWARE_ENVIRONMENT


@pytest.fixture(scope="module")
def program(runtime, work) -> Path:
    # What plays the part of Android's libraries has to be visible to the runtime.
    return compile_against(runtime, "device_memory.cc", work / "device_memory", "-rdynamic", "-ldl")


@pytest.fixture(scope="module")
def accepting(work, opencl) -> Path:
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


KIB = 1024
ROWS = {"small": 16, "large": 1 << 17}
WIDTH = 256
BYTES = ROWS["large"] * WIDTH * 4


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", [".adrenoc", ".tar"])
def test_a_constant_is_in_memory_once(runtime, opencl, tmp_path, suffix):
    peaks = {}
    for name, rows in ROWS.items():
        table = np.ones((rows, WIDTH), np.float32)
        nodes = "index = Cast <to = 7>(at) row = Gather(table, index)"
        made = graph(nodes, {"at": (3,)}, ["row"], {"table": table})
        bundle = tmp_path / f"{name}{suffix}"
        compile_model(write(made, tmp_path, f"{name}.onnx"), bundle)
        # The driver's compiler has tens of MiB more in some runs than in others.
        peaks[name] = min(
            measure_peak_bytes(runtime.runner, bundle, "--opencl", opencl) for _ in range(3)
        )
    # With the file's pages held, it were twice the constant.
    assert 0.8 * BYTES < peaks["large"] - peaks["small"] < 1.5 * BYTES


def measure_peak_bytes(*command: object) -> int:
    """The most memory that a program had.

    Another one starts it, which is small: a program's peak counts what had been before it in its
    process, here all that pytest holds.
    """
    found = {name: SOFTWARE_ENVIRONMENT[name] for name in ("LD_LIBRARY_PATH", "OCL_ICD_FILENAMES")}
    measure = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    env = {**os.environ, **found}
    done = run_program([sys.executable, "-c", measure, *map(str, command)], check=True, env=env)
    return int(done.stdout) * KIB


TIMES = 40


@pytest.mark.nightly
def test_models_within_a_budget(
    runtime, bundle, shapes, decoder, long_chain, opencl, execute, work, tmp_path
):
    """Two in turn, one too large, a decoder's context, and threads that trim and run."""
    program = compile_against(runtime, "budget_program.cc", tmp_path / "budget")
    paths = (bundle.path, shapes.path, decoder.path, long_chain.path)
    told = execute(program, *paths, opencl, work / "budget-cache", TIMES).json()
    assert told["evictions"] > TIMES
    assert 0 < told["returns"] <= told["evictions"]
    assert told["return_ms"] > 0


# Of the context that lives as long as the process: itself and its queue.
KEPT = 2


@pytest.mark.parametrize("name", ["bundle", "shapes"])
@pytest.mark.parametrize("device", ["stub plain", "stub buffers", "stub recordable"])
def test_all_is_released_whatever_failed(
    name, device, runtime, bundle, shapes, stub, execute, tmp_path
):
    program = compile_against(runtime, "free_program.cc", tmp_path / "free_program", "-ldl")
    path = {"bundle": bundle, "shapes": shapes}[name].path
    told = execute(program, path, stub, device).json()
    assert told["kept"] == KEPT
    assert told["cycles"] == 14
    # Calls that the model does not make cannot fail.
    assert told["failed"] > 40
    assert told["trimmed"] > 0


RUNS = 10_000
# The allocator's noise; four bytes a run would be 30.
GROWTH_KIB = 256


@pytest.fixture(scope="module")
def program_models(runtime, work) -> Path:
    return compile_against(runtime, "models_program.cc", work / "models_program")


@pytest.fixture(scope="module")
def cache(work) -> Path:
    return work / "many-models-cache"


@pytest.mark.parametrize("way", ["recorded", "plain"])
def test_two_models_are_right(way, program_models, bundle, shapes, opencl, cache, execute):
    extra = {"NO_RECORD": "1"} if way == "plain" else {}
    told = execute(program_models, bundle.path, shapes.path, opencl, cache, 300, **extra).json()
    assert told["contexts"] == 1


def test_memory_does_not_grow(program_models, bundle, shapes, opencl, cache, execute):
    command = (program_models, bundle.path, shapes.path, opencl, cache, RUNS)
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
