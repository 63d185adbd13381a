"""One word, one thing: no two modules of the compiler have one name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

_PACKAGE = Path(__file__).parents[2] / "adrenoc"
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
