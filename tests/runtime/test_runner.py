"""`adrenoc_run` on the software OpenCL device: the same numbers as Python, clear refusals."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import adrenoc
from adrenoc.base.errors import DependencyError, LinkError
from adrenoc.native.android import runtime_build
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import ARCHIVE, HEADERS, LIBRARY, RUNNER, SERVER
from adrenoc.native.android.runtime_toolchain import find_tool, find_toolchain
from tests.commands import compile_model, refuse, run_program, skip_where_lacking
from tests.models import graph, write
from tests.runtime.programs import (
    HERE,
    compile_with_archive,
    flip_bits,
    read_printed,
    replace_file,
    run_case,
)

USAGE = 2
NOT_FOUND = 22
BAD_BUNDLE = 23
NO_DEVICE = 24


def test_programs_tell_the_version(runtime, execute):
    for program in (runtime.runner, runtime.server):
        assert execute(program, "--version").out.strip() == runtime.stamp


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("program", ["adrenoc_run", "adrenoc_rpc"])
def test_programs_tell_how_they_are_used(runtime, program, option):
    done = run_program([runtime.folder / program, option])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {program} ")
    source = (Path(adrenoc.__file__).parent / f"native/runtime/tools/{program}.cc").read_text()
    options = set(re.findall(r'{"(--[a-z-]+)",', source))
    assert len(options) >= 10
    for known in options:
        assert f"  {known}" in done.stdout


def test_the_time_of_a_load_holds_that_of_its_digests(runner, stub, tmp_path):
    """64 MB take more than what else opens a bundle, however fast they are read."""
    weights = {"w": np.ones((4096, 4096), "float32")}
    nodes = "y = MatMul(x, w)"
    model = write(graph(nodes, {"x": (1, 4096)}, ["y"], weights), tmp_path, "wide.onnx")
    path = compile_model(model, tmp_path / "wide.adrenoc", "--no-cache").path

    def least(*more: str) -> float:
        told = [runner(path, *more, library=stub).json() for _ in range(4)]
        return min(float(one["load_ms"]) for one in told)

    assert least() > least("--trust-files") + 10


@pytest.mark.parametrize("suffix", [".adrenoc", ".tar"])
def test_numbers_equal_python(runtime, bundle, case, runner, tmp_path, suffix):
    told, outputs = run_case(runner, bundle.path.with_suffix(suffix), case, tmp_path)
    assert told["runtime"] == runtime.stamp
    case.check(outputs)


def test_queued_runs_and_the_times_of_kernels(bundle, runner, tmp_path):
    times = tmp_path / "times.json"
    told = runner(bundle.path, "--queue", 5, "--profile", times).json()
    assert told["runs"] == 1 + 1 + 5 + 1  # the first, one to time, the queue, the profile
    assert 0 < told["host_ms"] <= told["queued_ms"]
    launches = json.loads(times.read_text())
    assert {name.removesuffix("_kernel") for name, _, _ in launches} <= {
        kernel.name for kernel in bundle.manifest.kernels
    }
    assert all(start <= end for _, start, end in launches)


def test_the_second_start_takes_kernels_from_the_cache(bundle, runner, tmp_path):
    cache = tmp_path / "cache"
    run = partial(runner, bundle.path, "--cache", cache)
    cold, warm = (run().json() for _ in range(2))
    count = len(bundle.manifest.kernels)
    assert (cold["cache_hits"], cold["cache_misses"], cold["cache_damaged"]) == (0, count, 0)
    assert (warm["cache_hits"], warm["cache_misses"], warm["cache_damaged"]) == (count, 0, 0)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (b"", whole[:40], whole[:-1], whole + b"\0", damaged):
        entry.write_bytes(content)
        again = run().json()
        assert (again["cache_hits"], again["cache_damaged"]) == (0, count)
        assert len(list(cache.iterdir())) == 1
    assert run().json()["cache_hits"] == count


def test_a_cache_that_cannot_be_written_is_no_failure(bundle, runner, tmp_path):
    cache = tmp_path / "file"
    cache.write_text("in the way")
    told = runner(bundle.path, "--cache", cache).json()
    assert (told["cache_hits"], told["cache_misses"]) == (0, len(bundle.manifest.kernels))
    assert cache.read_text() == "in the way"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), USAGE, "no bundle is named"),
        (("BUNDLE", "--input", "nothing=x"), USAGE, "the model has no input `nothing`"),
        (("BUNDLE", "--input", "image=/dev/null"), USAGE, "but `image` has 1728"),
        (("BUNDLE", "--fast"), USAGE, "unknown option --fast"),
        (("nowhere.adrenoc",), NOT_FOUND, "cannot read nowhere.adrenoc: No such file"),
        (("BUNDLE", "--device", "Voodoo"), NO_DEVICE, 'no OpenCL device "Voodoo"; there is 0 = '),
        (
            ("BUNDLE", "--opencl", "/none.so"),
            NO_DEVICE,
            "No usable OpenCL library. Tried: /none.so: ",
        ),
    ],
)
def test_refusals(runtime, bundle, opencl, execute, arguments, code, said):
    words = [str(bundle.path) if word == "BUNDLE" else word for word in arguments]
    if "--opencl" not in words:
        words += ["--opencl", opencl]
    done = execute(runtime.runner, *words, expect=code)
    assert said in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("model.so", "model.so is not what was compiled (its SHA-256 differs)"),
        ("params.safetensors", "params.safetensors is not what was compiled"),
        ("manifest.json", "manifest.json is not JSON"),
    ],
)
def test_a_damaged_file_is_named(runtime, bundle, execute, tmp_path, file, said):
    copy = Path(shutil.copytree(bundle.root, tmp_path / "copy.adrenoc"))
    flip_bits(copy / file, 0, 0x55)
    assert said in execute(runtime.runner, copy, expect=BAD_BUNDLE).err
    (copy / file).unlink()
    assert file in execute(runtime.runner, copy, expect=NOT_FOUND).err


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_cut_library_is_refused_whatever_its_digest(runtime, bundle, execute, tmp_path, kept):
    """Loading it would end the process: the loader reads what the headers promise."""
    copy = Path(shutil.copytree(bundle.root, tmp_path / "copy.adrenoc"))
    whole = (copy / "model.so").read_bytes()
    cut = whole[: int(len(whole) * kept)]
    replace_file(copy, "model.so", cut)
    said = execute(runtime.runner, copy, expect=BAD_BUNDLE).err
    assert "model.so is" in said and "cut off" in said and f"it has {len(cut)} bytes" in said


def test_a_bundle_for_another_machine_is_refused(runtime, bundle, execute, tmp_path):
    copy = Path(shutil.copytree(bundle.root, tmp_path / "copy.adrenoc"))
    manifest = (copy / "manifest.json").read_text()
    machine = bundle.manifest.library.machine
    (copy / "manifest.json").write_text(manifest.replace(f'"{machine}"', '"riscv64"'))
    done = execute(runtime.runner, copy, expect=BAD_BUNDLE)
    assert "the bundle is for riscv64 (host), this machine is" in done.err


def test_a_compiled_header_is_plain_c(runtime, tmp_path):
    source = tmp_path / "header.c"
    source.write_text('#include "adrenoc.h"\nint main(void) { return ADRENOC_OK; }\n')
    command = ["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [*command, f"-I{runtime.folder}", "-c", str(source), "-o", "/dev/null"], check=True
    )


BESIDE = "$ORIGIN"


def test_programs_say_so(runtime):
    for name in (RUNNER, SERVER):
        assert read_elf(runtime.folder / name).run_path == BESIDE
    assert read_elf(runtime.library).run_path == ""


def test_they_run_from_any_folder(runtime, tmp_path):
    shutil.copytree(runtime.folder, tmp_path / "there")
    for name in (RUNNER, SERVER):
        command = [str(tmp_path / "there" / name), "--version"]
        said = run_program(command, cwd="/", env={}, check=True).stdout
        assert said.strip() == runtime.stamp


def test_where_cmake_has_no_flag_for_it(tmp_path):
    """CMake's own files for Android empty the flag that says where to look."""
    rules = tmp_path / "rules.cmake"
    flags = [f"CMAKE_SHARED_LIBRARY_RUNTIME_{language}_FLAG" for language in ("C", "CXX")]
    rules.write_text("".join(f'set({flag} "")\n' for flag in flags))
    packages = {
        f"{name.upper()}_HOME": Path(runtime_build.package_folder(name))
        for name in ("tvm", "tvm_ffi")
    }
    with skip_where_lacking():
        options = find_toolchain("host", None, 0).options
        command = [find_tool("cmake"), "-G", "Ninja", "-B", str(tmp_path / "build")]
    command += ["-S", str(Path(adrenoc.__file__).parent / "native/runtime")]
    command += [f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", *options]
    command += [f"-D{name}={folder}" for name, folder in packages.items()]
    command += ["-DANDROID=ON", f"-DCMAKE_USER_MAKE_RULES_OVERRIDE={rules}"]
    subprocess.run(command, check=True, capture_output=True)
    words = ["-C", tmp_path / "build", "-t", "commands", "adrenoc_run", "adrenoc_rpc"]
    told = run_program([find_tool("ninja"), *words], check=True).stdout.splitlines()
    links = [line for line in told if " -o out/adrenoc_" in line]
    assert len(links) == 2
    for line in links:
        assert f"-Wl,--enable-new-dtags,-rpath,{BESIDE}" in shlex.split(line)


def test_a_program_that_does_not_is_refused(tmp_path):
    source = tmp_path / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    flags = ["-Wl,-z,max-page-size=16384", "-Wl,-z,noexecstack"]
    toolchain = find_toolchain("host", None, 0)
    for name, more in ((RUNNER, [f"-Wl,--enable-new-dtags,-rpath,{BESIDE}"]), (SERVER, [])):
        command = ["cc", *flags, *more, str(source), "-o", str(tmp_path / name)]
        subprocess.run(command, check=True)
    runtime_build._check(tmp_path, toolchain, files=(RUNNER,))
    with pytest.raises(LinkError, match=r"adrenoc_rpc looks for its libraries in ``, expected"):
        runtime_build._check(tmp_path, toolchain, files=(RUNNER, SERVER))


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
    archive, runtime, runner, bundle, case, execute, tmp_path
):
    run = partial(runner, of=replace(runtime, folder=archive))
    told, outputs = run_case(run, bundle.path, case, tmp_path)
    assert told["runtime"] == runtime.stamp
    case.check(outputs)
    assert execute(archive / SERVER, "--version").out.strip() == runtime.stamp


def test_a_program_of_an_app_holds_it(archive, bundle, case, opencl, execute, tmp_path):
    program, made = tmp_path / "program", tmp_path / "program.o"
    compile_c = ["cc", "-std=c99", "-D_GNU_SOURCE", "-c", str(HERE / "c_program.c"), f"-I{archive}"]
    subprocess.run([*compile_c, "-o", str(made)], check=True)
    # Whole, since its parts register themselves.
    whole = ["-Wl,--whole-archive", str(archive / ARCHIVE), "-Wl,--no-whole-archive"]
    link = ["c++", str(made), *whole, "-lpthread", "-ldl", "-o", str(program)]
    subprocess.run(link, check=True)
    assert LIBRARY not in read_elf(program).needed
    command = [program, "path", bundle.path, opencl, tmp_path / "cache", *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_a_program_with_the_wrapper_holds_it(archive, bundle, case, opencl, execute, tmp_path):
    program = compile_with_archive(archive, "wrapper_program.cc", tmp_path / "program", "-O2")
    command = [program, bundle.path, "", opencl, *case.inputs_of(bundle)]
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


def test_a_package_wants_the_shared_library(archive, bundle, tmp_path):
    command = ["package", str(bundle.path), "--as", "cmake", "-o", str(tmp_path / "package")]
    assert f"it lacks {LIBRARY}" in refuse(DependencyError, *command, "--runtime", archive)


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
