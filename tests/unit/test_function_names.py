"""Functions say the deed: no bare participle (`packed`), no preposition first (`of_planes`).

A reader of a call has to see whether it computes, tests or makes.  Rooms whose names are not yet
mended join `_ROOMS` then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_PACKAGE = Path(__file__).parents[2] / "adrenoc"
_ROOMS = (
    *("families", "ir", "kernels", "codegen", "pipeline", "rewrites", "relax", "clml"),
    *(
        f"passes/{room}"
        for room in ("analyse", "fuse", "lower", "place", "precision", "read", "verify")
    ),
    *("bundle", "android", "host", "text", "native", "calibrate", "cli", "cpu", "device"),
    *("fleet", "mcu", "prove", "report", "target", "tune"),
)
_PREPOSITIONS = frozenset(
    [
        "of",
        "from",
        "with",
        "by",
        "in",
        "on",
        "at",
        "to",
        "for",
        "as",
        "under",
        "over",
        "within",
        "without",
        "into",
        "onto",
        "through",
        "between",
        "among",
        "across",
        "after",
        "before",
        "beside",
        "behind",
        "along",
        "against",
        "per",
        "than",
        "about",
        "beyond",
        "outside",
        "inside",
    ]
)
_IRREGULAR = frozenset(
    [
        "made",
        "kept",
        "built",
        "held",
        "drawn",
        "written",
        "seen",
        "found",
        "told",
        "known",
        "given",
        "taken",
        "chosen",
        "grown",
        "shown",
        "left",
        "lost",
        "sent",
        "bound",
        "met",
        "said",
        "done",
        "gone",
        "laid",
        "paid",
        "brought",
        "bought",
    ]
)
_ALLOWED = {
    "to_json": "the field's own for a conversion",
    "to_plain": "the field's own for a conversion",
    "from_plain": "the field's own for a conversion",
    "to_model": "the field's own for a conversion",
    "to_firmware": "the field's own for a conversion",
    "to_proto": "the field's own for a conversion",
}


def _is_noun(function: ast.FunctionDef) -> bool:
    """Whether it is a property, which is read as a fact, or a constructor `from_x`."""
    marks = {mark.id for mark in function.decorator_list if isinstance(mark, ast.Name)}
    makes = {"staticmethod", "classmethod"} & marks and function.name.startswith("from_")
    return bool(makes or {"property", "cached_property"} & marks)


def _fault(name: str) -> str:
    first, *more = name.strip("_").split("_")
    if first in _PREPOSITIONS:
        return "begins with a preposition"
    is_participle = first in _IRREGULAR or (first.endswith("ed") and len(first) > 4)
    return "is a bare participle" if is_participle and not more else ""


def _faults(text: str, where: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            fault = "" if node.name in _ALLOWED or _is_noun(node) else _fault(node.name)
            if fault:
                yield f"{where}:{node.lineno}: {node.name} {fault}: begin with the verb"


@pytest.mark.parametrize("room", _ROOMS)
def test_functions_say_the_deed(room: str) -> None:
    paths = sorted((_PACKAGE / room).rglob("*.py"))
    assert paths
    found = [fault for path in paths for fault in _faults(path.read_text(), path.name)]
    assert not found, "\n".join(found)


def test_what_is_refused() -> None:
    text = "def {}(x): ...\n"
    names = ("packed", "_made", "of_planes", "_with_rows", "in_float")
    assert all(list(_faults(text.format(name), "a.py")) for name in names)
    fine = ("pack", "find_makers", "shared_bytes", "seed", "to_json", "intern")
    assert not any(list(_faults(text.format(name), "a.py")) for name in fine)
    assert not list(_faults("class A:\n    @property\n    def untuned(self): ...", "a.py"))
