"""What a build server runs: the script, and that the recipes run it."""

import os
import re
from pathlib import Path

import pytest

from tests.commands import run_program

_CI = Path(__file__).resolve().parents[2] / "scripts" / "ci"


@pytest.fixture
def project(tmp_path: Path) -> Path:
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
