"""Lists that promise: errors, rows of acceptance, known failures, questions of operators."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from adrenoc.base.errors import AdrenocError
from tests.commands import run_program
from tests.opencl.known import known_drivers, known_failures
from tests.script_module import load_script
from tests.sources import texts

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


def _subclasses(kind: type[AdrenocError]) -> list[type[AdrenocError]]:
    direct = kind.__subclasses__()
    return direct + [deeper for subclass in direct for deeper in _subclasses(subclass)]


def test_all_live_in_one_module_with_codes_of_their_own():
    kinds = [AdrenocError, *_subclasses(AdrenocError)]
    assert {kind.__module__ for kind in kinds} == {"adrenoc.base.errors"}
    codes = [vars(kind)["exit_code"] for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert min(codes) >= 10
    # Above 125 a shell reads signals and its own failures.
    assert max(codes) < 126


def test_every_one_is_raised_somewhere():
    made = {name for text in texts().values() for name in re.findall(r"(?<!class )\b(\w+)\(", text)}
    unused = {kind.__name__ for kind in _subclasses(AdrenocError)} - made
    assert not unused, f"never raised: {unused}"


def test_message_and_hint_are_kept():
    error = AdrenocError("what and where", hint="adrenoc doctor")
    assert str(error) == error.message == "what and where"
    assert error.hint == "adrenoc doctor"


ROOT = Path(__file__).parents[2]


def test_known_failures_are_tests():
    assert known_drivers() == ("rusticl",)
    for driver in known_drivers():
        known = known_failures(driver)
        assert known
        for test, why in known.items():
            path, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
            assert why.startswith(f"{driver}: ")
    assert known_failures("") == {}


MOST_COMPARISONS = 14
"""Outside of the families: `Node`'s own predicates, and what has to know each name."""


_COMPARED = re.compile(
    r"\.op (?:[!=]=|in|not in) |[!=]= [\w.\[\]]+\.op\b"
    r"|\.op\.(?:starts|ends)with\(|match [\w.]+\.op:"
)
"""`==`, `in`, `match` or `startswith` of a node's operator, whatever the node is called."""


def _comparisons(text: str) -> list[str]:
    """The lines that compare a node's operator; TVM's calls have an attribute of this name, too."""
    lines = text.splitlines()
    return [line for line in lines if _COMPARED.search(line) and "Op.get(" not in line]


def test_operators_are_told_apart_by_their_records():
    found = [
        f"{path}: {line}"
        for path, text in texts().items()
        if path.parts[:2] != ("kernels", "families")
        for line in _comparisons(text)
    ]
    assert len(found) <= MOST_COMPARISONS, found


@pytest.mark.parametrize(
    "text",
    [
        'node.op == "conv2d"',
        'node.op not in ("sum", "mean")',
        'node.op.startswith("conv")',
        'graph.producers[name].op != "matmul"',
        'match node.op:\n    case "map":\n        pass',
    ],
)
def test_a_comparison_is_found_whatever_it_looks_like(text):
    assert len(_comparisons(text)) == 1


def test_a_call_of_tvm_is_none():
    assert not _comparisons('call.op == Op.get("relax.call_tir")')
