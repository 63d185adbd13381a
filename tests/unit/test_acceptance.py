"""The table of promises can be read, and a promise that is not kept is seen."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.commands import run_program
from tests.script_module import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "accept"


@pytest.fixture(scope="module")
def accept() -> ModuleType:
    return load_script("accept")


def test_each_row_names_who_promised_it(accept):
    rows = accept.read_rows()
    assert len(rows) > 50
    assert all(row.run and row.promise.startswith(("README: ", "issue ")) for row in rows)


@pytest.mark.parametrize(
    ("row", "code", "why"),
    [
        ({}, 0, ""),
        ({"code": 33}, 33, ""),
        ({"shows": ("copies",)}, 0, "does not say /copies/"),
        ({"hides": ("launches",)}, 0, "says /launches/"),
        ({}, 3, "exit code 3, expected 0: launches 5"),
        ({"code": 33}, 0, "exit code 0, expected 33"),
        ({"figures": ({"find": r"launches (\d+)", "at_most": 4},)}, 0, "5 is more than 4"),
        ({"figures": ({"find": r"launches (\d+)", "at_least": 6},)}, 0, "5 is less than 6"),
        ({"figures": ({"find": r"copies (\d+)", "at_most": 4},)}, 0, "does not say /copies"),
        ({}, None, "not done after 10 min"),
    ],
)
def test_a_promise_that_is_not_kept_fails(accept, monkeypatch, tmp_path, row, code, why):
    monkeypatch.setattr(accept.tempfile, "gettempdir", lambda: "/nowhere")
    made = accept.Row(name="r", promise="p", run=("true",), **row)
    seen = accept.verdict_on(made, code, "launches 5\n", tmp_path)
    assert seen.verdict == ("FAILED" if why else "passed")
    assert why in seen.why


def test_a_python_without_packages_gets_the_command_to_type():
    bare = run_program([sys.executable, "-S", str(SCRIPT), "quickstart", "--keep", "a b"])
    assert (bare.returncode, bare.stdout) == (2, "")
    said, command = bare.stderr.splitlines()
    assert said.startswith(f"error: {sys.executable} has no package onnx")
    assert command == f"  try: {SCRIPT.with_name('test')} acceptance quickstart --keep 'a b'"
