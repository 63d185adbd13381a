"""The wheel of built runtimes: made as a release makes it, installed, and taken without an NDK."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.errors import DependencyError
from adrenoc.check.doctor import examine
from adrenoc.cli.console import ConsoleReporter
from adrenoc.cli.main import main
from adrenoc.device import adb
from adrenoc.native import package_folder
from adrenoc.native.android import runtime_build
from adrenoc.native.android.runtime_build import (
    PACKAGE,
    SOURCES_FILE,
    Runtime,
    copy_runtime,
    find_runtime,
    look_at_wheel,
)
from adrenoc.native.android.runtime_toolchain import MIN_API, find_toolchain
from tests.commands import run_program
from tests.ndks import forget_ndks
from tests.runtime.fake_adb import fake_adb_process, what_happened
from tests.runtime.servers import SOFTWARE_ENVIRONMENT
from tests.sources import load_script

_PHONE, _ABI = "R58M12ABCDE", "arm64-v8a"


def _no_version(package: str) -> str:
    raise PackageNotFoundError(package)


@pytest.fixture(scope="module")
def release():
    return load_script("ci/release")


def _project(release, runtime: Runtime, folder: Path) -> Path:
    """A wheel's project with this machine's runtime, as if it were an Android's."""
    project: Path = release.lay_out(folder)
    copy_runtime(runtime, project / PACKAGE / _ABI)
    return project


@pytest.fixture
def installed(release, runtime, tmp_path, monkeypatch) -> Iterator[Path]:
    """The package, as pip installs it; its runtime is this machine's, for the imitated phone."""
    project = _project(release, runtime, tmp_path / "project")
    tools, wheels, site = Path(sys.executable).parent, tmp_path / "wheels", tmp_path / "site"
    release.pack(tools, project, wheels, "-t", "wheel")
    (wheel,) = wheels.iterdir()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(site), str(wheel)], check=True)
    monkeypatch.syspath_prepend(str(site))
    for name in ("ANDROID_NDK_HOME", "ADRENOC_RUNTIME"):
        monkeypatch.delenv(name, raising=False)
    yield site / PACKAGE
    sys.modules.pop(PACKAGE, None)


def test_a_phone_needs_no_ndk(installed, bundle, opencl, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(adb, "DEVICE_FOLDER", str(tmp_path / "phone"))
    with fake_adb_process({_PHONE: "device"}, SOFTWARE_ENVIRONMENT) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        command = ["run", str(bundle.path), "--on", f"adb:{_PHONE}", "--repeat", "1", "--json"]
        assert main(command) == 0
        said = capsys.readouterr()
        assert said.err == ""
        assert json.loads(said.out)["outputs"]
        assert what_happened(port)["pushed"]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (SOURCES_FILE, "it is of 0.0.1 x, this adrenoc of "),
        (f"{_ABI}/adrenoc_rpc", "adrenoc_rpc is damaged"),
    ],
)
def test_another_wheel_is_not_taken(installed, file, why, capsys):
    (installed / file).write_text("0.0.1 x\n")
    with pytest.raises(DependencyError, match="needs an Android NDK"), ConsoleReporter() as shown:
        find_runtime(_ABI, shown)
    assert why in " ".join(capsys.readouterr().err.split())


def test_doctor_tells_of_the_wheel(installed, tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    (found,) = (one for one in examine() if one.subject == "Android NDK")
    assert (found.state, found.fix) == ("ok", "")
    assert found.seen == "none, and phones need none: adrenoc-runtime brings arm64-v8a"
    (installed / SOURCES_FILE).write_text("0.0.1 x\n")
    (found,) = (one for one in examine() if one.subject == "Android NDK")
    assert found.state == "missing"
    assert "adrenoc-runtime is not taken: it is of 0.0.1 x, this adrenoc of " in found.seen
    monkeypatch.setattr(runtime_build, "version", _no_version)
    assert look_at_wheel() == ([_ABI], "apache-tvm is not installed")


def test_a_runtime_tells_no_folder_of_this_machine(runtime):
    """Who builds it elsewhere gets the same bytes."""
    # Servers of other tests have folders of sessions there.
    for path in sorted(path for path in runtime.folder.iterdir() if path.is_file()):
        content = path.read_bytes()
        for folder in (package_folder("tvm").parent, Path(adrenoc.__file__).parent, Path.home()):
            assert f"{folder}/".encode() not in content, (path.name, folder)


def test_a_release_replaces_nothing(release, tmp_path, monkeypatch):
    (tmp_path / "thesis.tex").write_text("precious")
    monkeypatch.setattr("sys.argv", ["release", "-o", str(tmp_path)])
    assert "will not delete it" in release.main()
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_pages_in_an_archive(release, tmp_path):
    pytest.importorskip("mkdocs", reason="pip install '.[docs]'")
    release.pack_pages(tmp_path / "site", tmp_path / "docs.zip")
    with zipfile.ZipFile(tmp_path / "docs.zip") as pages:
        held = set(pages.namelist())
    assert {"index.html", "how-to/install/index.html", "reference/index.html"} <= held


def test_equal_runtimes_give_equal_wheels(release, runtime, tmp_path):
    tools, made = Path(sys.executable).parent, []
    for name in ("one", "two"):
        project = _project(release, runtime, tmp_path / name)
        release.pack(tools, project, tmp_path / f"{name}-wheel", "-t", "wheel")
        (wheel,) = (tmp_path / f"{name}-wheel").iterdir()
        made.append(wheel.read_bytes())
    assert made[0] == made[1]


@pytest.mark.nightly
def test_a_release_ends_whole_and_again(release, tmp_path, monkeypatch):
    """For Linux on arm64, whose compiler is a package of Debian's; the second is of the cache."""
    try:
        find_toolchain("aarch64-linux", None, MIN_API)
    except DependencyError as error:
        pytest.skip(error.message)
    for package in ("mkdocs", "onnxruntime"):
        pytest.importorskip(package, reason="pip install '.[docs,check]'")
    output, made = tmp_path / "new" / "release", []
    monkeypatch.setattr("sys.argv", ["release", "--abi", "aarch64-linux", "-o", str(output)])
    for _ in range(2):
        assert release.main() == 0
        made.append((output / "SHA256SUMS").read_text())
        check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
        subprocess.run(check, cwd=output, check=True)
    assert made[0] == made[1]
    named = {line.split("  ")[1] for line in made[0].splitlines()}
    version = adrenoc.__version__
    assert named == {
        "adrenoc.cdx.json",
        f"adrenoc-{version}-py3-none-any.whl",
        f"adrenoc-{version}.tar.gz",
        f"adrenoc-docs-{version}.zip",
        f"adrenoc_runtime-{version}-py3-none-any.whl",
    }
    assert json.loads((output / "adrenoc.cdx.json").read_text())["bomFormat"] == "CycloneDX"


_CI = Path(__file__).resolve().parents[2] / "scripts" / "ci"


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with a project, and an adrenoc on the PATH that tells what it was given."""
    tool = tmp_path / "bin" / "adrenoc"
    tool.parent.mkdir()
    tool.write_text('#!/usr/bin/env bash\necho "$@" >> told; exit "${ENDS:-0}"\n')
    tool.chmod(0o755)
    (tmp_path / "adrenoc.toml").touch()
    return tmp_path


def run(folder: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
    done = run_program(
        [str(_CI / "build"), *words], cwd=folder, env={**kept, "PATH": path, **variables}
    )
    return done.returncode, (folder / "told").read_text().splitlines()[-1], done.stderr


def test_the_first_run_makes_the_lock_and_fails(project):
    code, told, said = run(project)
    assert code == 45 and "commit it" in said
    assert told == "build adrenoc.toml --junit build/adrenoc/adrenoc.xml"


def test_later_runs_hold_to_the_lock(project):
    (project / "adrenoc.lock").touch()
    code, told, said = run(project, "--jobs", "4", ADRENOC_RESULTS="out")
    assert (code, said) == (0, "")
    assert told == ("build adrenoc.toml --locked --junit out/adrenoc.xml --jobs 4")
    assert (project / "out").is_dir()


@pytest.mark.parametrize("has_lock", [False, True])
def test_a_failing_build_fails_with_its_code(project, has_lock):
    (project / "models").mkdir()
    if has_lock:
        (project / "models" / "adrenoc.lock").touch()
    code, told, said = run(project, "models/adrenoc.toml", ENDS="33")
    assert code == 33 and told.startswith("build models/adrenoc.toml") and "commit" not in said


def test_the_action_uses_what_it_declares():
    text = (_CI / "action.yml").read_text()
    declared = set(re.findall(r"^  ([\w-]+):\n    description", text, re.MULTILINE)) - {"results"}
    assert (
        declared
        == set(re.findall(r"inputs\.([\w-]+)", text))
        == {*("project", "options", "python-version")}
    )
    given = set(re.findall(r"^        (ADRENOC_\w+):", text, re.MULTILINE))
    read = set(re.findall(r"\$(ADRENOC_\w+)", text))
    assert given == read and '"$ADRENOC_ACTION/build"' in text


def test_the_container_has_the_script():
    assert "scripts/ci/build" in (_CI / "Containerfile").read_text()
