"""The C API from a C program and from C++: numbers, memory, threads, wrong calls."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.native.android.runtime_build import Runtime, build_runtime
from tests.runtime.programs import Finished, compile_against, compile_opencl, read_printed

Execute = Callable[..., Finished]

DRIVER = ("libintelocl.so", "libtbb.so.12", "libOpenCL.so.1")
RUNS = 2000
# The allocator's noise; a leak of one tensor of this network a run would be 3,000.
GROWTH_KIB = 512


@pytest.fixture(scope="module")
def c_program(runtime: Runtime, work: Path) -> Path:
    return compile_against(runtime, "c_program.c", work / "c_program")


@pytest.fixture(scope="module")
def cache(work: Path) -> Path:
    return work / "cache"


@pytest.mark.parametrize("mode", ["path", "fd", "memory", "pair"])
def test_numbers_equal_python(mode, c_program, bundle, case, opencl, cache, execute, tmp_path):
    path = bundle.path.with_suffix(".tar") if mode in {"fd", "memory"} else bundle.path
    command = [c_program, mode, path, opencl, cache, *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_wrong_calls_are_answered(c_program, bundle, opencl, cache, execute):
    execute(c_program, "errors", bundle.path, opencl, cache, "-")


def test_runs_do_not_grow(c_program, bundle, case, opencl, cache, execute):
    command = [c_program, "repeat", bundle.path, opencl, cache, *case.inputs_of(bundle)]
    # Intel's driver keeps 2 KiB a kernel of each command buffer that it is given.
    grown_kib = int(execute(*command, RUNS=str(RUNS), NO_RECORD="1").out)
    assert grown_kib < GROWTH_KIB


def test_the_cpp_wrapper_on_threads(runtime, bundle, case, opencl, cache, execute, work, tmp_path):
    program = compile_against(runtime, "cpp_program.cc", work / "cpp_program")
    command = [program, bundle.path, opencl, cache, *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


@pytest.mark.nightly
def test_threads_of_the_cpp_wrapper_do_not_race(bundle, case, opencl, execute, tmp_path):
    """What the driver does inside of itself is no race of ours; TVM's would be."""
    sanitized = build_runtime(sanitize="thread")
    program = compile_against(sanitized, "cpp_program.cc", tmp_path / "cpp", "-fsanitize=thread")
    (tmp_path / "known").write_text("".join(f"called_from_lib:{name}\n" for name in DRIVER))
    places = [program, bundle.path, opencl, tmp_path / "cache", *case.inputs_of(bundle)]
    words = " ".join(f"'{place}'" for place in places)
    options = f"ignore_noninstrumented_modules=1 suppressions={tmp_path / 'known'}"
    done = execute("sh", "-c", f"exec {words} > /dev/null", TSAN_OPTIONS=options)
    assert "WARNING: ThreadSanitizer" not in done.err, done.err


def test_a_run_that_fails_ends_its_profile(runtime, bundle, case, opencl, cache, execute, work):
    program = compile_against(runtime, "failing_launch.c", work / "failing_launch")
    library = compile_opencl("failing_opencl.c", work, opencl)
    told = execute(program, bundle.path, library, cache, *case.inputs_of(bundle)).json()
    assert len(told) == len(bundle.launches())
