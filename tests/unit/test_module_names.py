"""One word, one thing: no two modules of the compiler have one name, nor do two of the tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

_PACKAGE = Path(__file__).parents[2] / "adrenoc"
_TESTS = Path(__file__).parents[1]
_ROOMS = (
    *("bundle", "clml", "codegen", "compile", "families", "ir", "kernels", "passes"),
    *("pipeline", "relax", "rewrites", "target"),
)
_ALLOWED = {
    "operator": "the record of a family's operators, in the folder of each",
    "context": "what a pass has at hand, what a rule has",
    "expression": "kernels evaluate one; the precision of one is known",
    "typical": "what operators' functions of typical sizes share, and the run that calls them",
}


def _namesakes() -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for room in _ROOMS:
        paths = sorted((_PACKAGE / room).rglob("*.py"))
        assert paths, room
        for path in paths:
            places[path.stem].append(str(path.relative_to(_PACKAGE)))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_modules_of_the_compiler_have_one_name() -> None:
    found = {name: where for name, where in _namesakes().items() if name != "__init__"}
    assert {name: where for name, where in found.items() if name not in _ALLOWED} == {}
    assert found.keys() == _ALLOWED.keys(), "what is allowed is there no more"


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by their names alone: it would refuse to run all of them together."""
    names = Counter(path.name for path in _TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
