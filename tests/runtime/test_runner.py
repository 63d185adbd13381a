"""`adrenoc_run` on the software OpenCL device: the same numbers as Python, clear refusals."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import adrenoc
from adrenoc.base.errors import DependencyError, LinkError
from adrenoc.cli.main import main
from adrenoc.native.android import runtime_build
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import RUNNER, SERVER
from adrenoc.native.android.runtime_toolchain import find_tool, find_toolchain
from tests.commands import run_program
from tests.models import graph, write
from tests.runtime.programs import Finished, run_case

Execute = Callable[..., Finished]

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


def test_the_time_of_a_load_holds_that_of_its_digests(runtime, stub, execute, tmp_path):
    """64 MB take more than what else opens a bundle, however fast they are read."""
    weights = {"w": np.ones((4096, 4096), "float32")}
    nodes = "y = MatMul(x, w)"
    model = write(graph(nodes, {"x": (1, 4096)}, ["y"], weights), tmp_path, "wide.onnx")
    path = tmp_path / "wide.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(path)]
    assert main([*words, "--no-cache"]) == 0

    def least(*more: str) -> float:
        told = [execute(runtime.runner, path, "--opencl", stub, *more).json() for _ in range(4)]
        return min(float(one["load_ms"]) for one in told)

    assert least() > least("--trust-files") + 10


@pytest.mark.parametrize("suffix", [".adrenoc", ".tar"])
def test_numbers_equal_python(runtime, bundle, case, opencl, execute, tmp_path, suffix):
    path = bundle.path.with_suffix(suffix)
    told, outputs = run_case(execute, runtime.runner, opencl, path, case, tmp_path)
    assert told["runtime"] == runtime.stamp
    for name, expected in case.outputs.items():
        np.testing.assert_array_equal(outputs[name], expected)


def test_queued_runs_and_the_times_of_kernels(runtime, bundle, opencl, execute, tmp_path):
    times = tmp_path / "times.json"
    command = (runtime.runner, bundle.path, "--opencl", opencl, "--queue", 5, "--profile", times)
    told = execute(*command).json()
    assert told["runs"] == 1 + 1 + 5 + 1  # the first, one to time, the queue, the profile
    assert 0 < told["host_ms"] <= told["queued_ms"]
    launches = json.loads(times.read_text())
    assert {name.removesuffix("_kernel") for name, _, _ in launches} <= {
        kernel.name for kernel in bundle.manifest.kernels
    }
    assert all(start <= end for _, start, end in launches)


def test_the_second_start_takes_kernels_from_the_cache(runtime, bundle, opencl, execute, tmp_path):
    cache = tmp_path / "cache"
    command = (runtime.runner, bundle.path, "--opencl", opencl, "--cache", cache)
    cold, warm = (execute(*command).json() for _ in range(2))
    count = len(bundle.manifest.kernels)
    assert (cold["cache_hits"], cold["cache_misses"], cold["cache_damaged"]) == (0, count, 0)
    assert (warm["cache_hits"], warm["cache_misses"], warm["cache_damaged"]) == (count, 0, 0)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (b"", whole[:40], whole[:-1], whole + b"\0", damaged):
        entry.write_bytes(content)
        again = execute(*command).json()
        assert (again["cache_hits"], again["cache_damaged"]) == (0, count)
        assert len(list(cache.iterdir())) == 1
    assert execute(*command).json()["cache_hits"] == count


def test_a_cache_that_cannot_be_written_is_no_failure(runtime, bundle, opencl, execute, tmp_path):
    cache = tmp_path / "file"
    cache.write_text("in the way")
    told = execute(runtime.runner, bundle.path, "--opencl", opencl, "--cache", cache).json()
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
    copy = tmp_path / "copy.adrenoc"
    shutil.copytree(bundle.root, copy)
    content = bytearray((copy / file).read_bytes())
    content[0] ^= 0x55
    (copy / file).write_bytes(content)
    assert said in execute(runtime.runner, copy, expect=BAD_BUNDLE).err
    (copy / file).unlink()
    assert file in execute(runtime.runner, copy, expect=NOT_FOUND).err


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_cut_library_is_refused_whatever_its_digest(runtime, bundle, execute, tmp_path, kept):
    """Loading it would end the process: the loader reads what the headers promise."""
    copy = tmp_path / "copy.adrenoc"
    shutil.copytree(bundle.root, copy)
    whole = (copy / "model.so").read_bytes()
    cut = whole[: int(len(whole) * kept)]
    (copy / "model.so").write_bytes(cut)
    manifest = json.loads((copy / "manifest.json").read_text())
    entry = next(file for file in manifest["files"] if file["path"] == "model.so")
    entry["bytes"], entry["sha256"] = len(cut), hashlib.sha256(cut).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    said = execute(runtime.runner, copy, expect=BAD_BUNDLE).err
    assert "model.so is" in said and "cut off" in said and f"it has {len(cut)} bytes" in said


def test_a_bundle_for_another_machine_is_refused(runtime, bundle, execute, tmp_path):
    copy = tmp_path / "copy.adrenoc"
    shutil.copytree(bundle.root, copy)
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
    try:
        options = find_toolchain("host", None, 0).options
        command = [find_tool("cmake"), "-G", "Ninja", "-B", str(tmp_path / "build")]
    except DependencyError as error:
        pytest.skip(f"{error.message} ({error.hint})")
    command += ["-S", str(Path(adrenoc.__file__).parent / "native/runtime")]
    command += [f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", *options]
    command += [f"-D{name}={folder}" for name, folder in packages.items()]
    command += ["-DANDROID=ON", f"-DCMAKE_USER_MAKE_RULES_OVERRIDE={rules}"]
    subprocess.run(command, check=True, capture_output=True)
    words = ["ninja", "-C", str(tmp_path / "build"), "-t", "commands", "adrenoc_run", "adrenoc_rpc"]
    told = run_program([find_tool("ninja"), *words[1:]], check=True).stdout.splitlines()
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
