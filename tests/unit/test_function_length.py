"""No function is longer than sixty lines, from its `def` to its end; no module than four hundred.

Decorators stand apart: the options of a command are a table, and its function takes them as one
record (`adrenoc/cli/options.py`, `give_options`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_MOST = 60
_MOST_OF_A_MODULE = 600
_LONGER = {
    "adrenoc/cli/compile.py: compile_command": "its options still come one by one",
    "adrenoc/cli/run.py: run_command": "its options still come one by one",
}


def _sources() -> Iterator[Path]:
    yield from sorted((_ROOT / "adrenoc").rglob("*.py"))
    for path in sorted((_ROOT / "scripts").rglob("*")):
        is_script = path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python3")
        if path.suffix == ".py" or is_script:
            yield path


def _long_functions(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > _MOST:
                yield node.name, lines


def test_functions_are_short() -> None:
    sources = list(_sources())
    assert len(sources) > 700
    found = {
        f"{path.relative_to(_ROOT).as_posix()}: {name}": lines
        for path in sources
        for name, lines in _long_functions(path.read_text(encoding="utf-8"))
    }
    assert {name: lines for name, lines in found.items() if name not in _LONGER} == {}
    assert set(_LONGER) <= set(found), "take out of the list what is short by now"


def test_what_is_too_long() -> None:
    long = "@option(\n)\ndef f(\n    a,\n):\n" + "    a\n" * (_MOST - 2)
    assert list(_long_functions(long)) == [("f", _MOST + 1)]
    assert not list(_long_functions(long.replace("    a,\n", "")))


def test_modules_are_short() -> None:
    """One idea a file; what has outgrown it becomes two."""
    lengths = {
        str(path.relative_to(_ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted((_ROOT / "adrenoc").rglob("*.py"))
    }
    assert len(lengths) > 700
    assert {name: lines for name, lines in lengths.items() if lines > _MOST_OF_A_MODULE} == {}
