"""The runtime as an archive: programs that hold it, ours and others, need the C library alone."""

import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

import adrenoc
from adrenoc.base.errors import DependencyError
from adrenoc.cli.main import main
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import ARCHIVE, HEADERS, LIBRARY, RUNNER, SERVER
from tests.commands import run_program
from tests.runtime.programs import HERE, Finished, compile_with_archive, read_printed, run_case

RUNTIME_TOOLS = Path(adrenoc.__file__).parent / "native/runtime/tools"
# glibc in its parts.
C_LIBRARY = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}


def test_what_the_command_builds(archive, runtime):
    names = {path.name for path in archive.iterdir()}
    assert {ARCHIVE, RUNNER, SERVER, *HEADERS} <= names
    assert LIBRARY not in names
    assert (archive / ARCHIVE).read_bytes().startswith(b"!<arch>\n")
    for name in (RUNNER, SERVER):
        facts = read_elf(archive / name)
        assert set(facts.needed) <= C_LIBRARY
        assert facts.is_stripped
        assert not read_elf(archive / f"{name}.debug").is_stripped
        assert facts.run_path == "$ORIGIN"


def test_its_runner_gives_the_numbers_of_python(
    archive, runtime, bundle, case, opencl, execute, tmp_path
):
    runner = archive / RUNNER
    told, outputs = run_case(execute, runner, opencl, bundle.path, case, tmp_path)
    assert told["runtime"] == runtime.stamp
    for name, expected in case.outputs.items():
        np.testing.assert_array_equal(outputs[name], expected)
    assert execute(archive / SERVER, "--version").out.strip() == runtime.stamp


def test_a_program_of_an_app_holds_it(archive, bundle, case, opencl, execute, tmp_path):
    program, made = tmp_path / "program", tmp_path / "program.o"
    compile_c = ["cc", "-std=c99", "-D_GNU_SOURCE", "-c", str(HERE / "c_program.c"), f"-I{archive}"]
    subprocess.run([*compile_c, "-o", str(made)], check=True)
    # Whole, since its parts register themselves.
    link = [
        "c++",
        str(made),
        "-Wl,--whole-archive",
        str(archive / ARCHIVE),
        "-Wl,--no-whole-archive",
    ]
    subprocess.run([*link, "-lpthread", "-ldl", "-o", str(program)], check=True)
    assert LIBRARY not in read_elf(program).needed
    command = [program, "path", bundle.path, opencl, tmp_path / "cache"]
    command += case.inputs_of(bundle)
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_a_program_with_the_wrapper_holds_it(archive, bundle, case, opencl, execute, tmp_path):
    program = compile_with_archive(archive, "wrapper_program.cc", tmp_path / "program", "-O2")
    command = [program, bundle.path, "", opencl]
    command += case.inputs_of(bundle)
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def _names(file: Path, *kinds: str) -> set[str]:
    """What an object or an archive defines, of the kinds of `nm` ("W" is a weak function)."""
    listed = run_program(["nm", "-C", "--defined-only", str(file)], check=True).stdout.splitlines()
    words = [line.split(" ", 2) for line in listed]
    found = [word for word in words if len(word) == 3 and (not kinds or word[1] in kinds)]
    return {name for _, _, name in found}


def test_no_name_of_the_runtime_is_one_of_its_users(archive, tmp_path):
    """The linker keeps one of two inline functions of a name: the wrapper's or the runtime's own.

    Programs that used the wrapper died in the destructor of the other `adrenoc::Model`.
    """
    own = _names(archive / ARCHIVE)
    public = re.compile(r"\badrenoc::")
    assert [name for name in own if public.search(name)] == []
    weak = _names(archive / ARCHIVE, "W", "V", "u")
    assert weak
    tools = RUNTIME_TOOLS / "adrenoc_run.cc"
    for source in (HERE / "wrapper_program.cc", HERE / "cpp_program.cc", tools):
        made = tmp_path / f"{source.stem}.o"
        command = ["c++", "-std=c++17", "-c", str(source), f"-I{archive}", "-o", str(made)]
        subprocess.run(command, check=True)
        users = _names(made, "W", "V", "u")
        assert any(public.search(name) for name in users)
        # What both have of the C++ library is the same in both, of structs of the C header, too.
        shared = {re.sub(r"\badrenoc_\w+(?=[,>])", "", name): name for name in weak & users}
        assert [name for plain, name in shared.items() if "adrenoc" in plain] == []


def test_a_package_wants_the_shared_library(archive, bundle, tmp_path, capsys):
    command = ["package", str(bundle.path), "--as", "cmake", "-o", str(tmp_path / "package")]
    assert main([*command, "--runtime", str(archive)]) == DependencyError.exit_code
    assert f"it lacks {LIBRARY}" in capsys.readouterr().err


Execute = Callable[..., Finished]


def test_the_library_shows_the_c_api_alone(runtime):
    exported = read_elf(runtime.library).exported
    assert {"adrenoc_load", "adrenoc_run"} <= exported
    assert all(name.startswith("adrenoc_") for name in exported)


def test_the_library_is_small_in_an_archive(runtime):
    """What an app downloads: 0.6 MB is the goal on a phone, and x86-64 takes about as much."""
    assert len(zlib.compress(runtime.library.read_bytes(), 9)) < 650_000


def test_a_bundle_asks_for_no_library_of_tvm(bundle):
    facts = read_elf(bundle.root / "model.so")
    assert not [name for name in facts.needed if "tvm" in name]
    assert not [name for name in facts.undefined if name.startswith("TVM")]


def test_numbers_are_the_same_where_tvm_was_imported_first(
    runtime, bundle, case, opencl, execute, tmp_path
):
    outputs = [tmp_path / name for name in case.outputs]
    for path, array in zip(outputs, case.outputs.values(), strict=True):
        path.write_bytes(bytes(array.nbytes))
    command = [sys.executable, HERE / "beside_program.py", runtime.library, bundle.path, opencl]
    assert execute(*command, *case.inputs_of(bundle), *outputs).out.strip() == "7"
    for path, array in zip(outputs, case.outputs.values(), strict=True):
        np.testing.assert_array_equal(np.fromfile(path, array.dtype).reshape(array.shape), array)
