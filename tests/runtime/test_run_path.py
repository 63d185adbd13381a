"""Programs find the runtime in their own folder, by whatever command they are started."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.errors import DependencyError, LinkError
from adrenoc.native.android import runtime_build
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import RUNNER, SERVER
from adrenoc.native.android.runtime_toolchain import find_tool, find_toolchain
from tests.commands import run_program

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
