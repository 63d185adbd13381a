"""Imports wait for no collector, and it is as it was afterwards."""

import gc
import sys

import pytest

from adrenoc.base.host.quick_imports import collect_rarely, collector_paused
from tests.commands import run_program

_LOAD = "from adrenoc.base.host.quick_imports import collect_rarely, collector_paused"
_MAKE = "made = [[] for _ in range(100_000)]"
_COUNT = "import gc; before = gc.get_stats()[0]['collections']"
_SHOW = "print(gc.get_stats()[0]['collections'] - before)"


def _count_collections(*lines: str) -> int:
    text = "\n".join([_LOAD, _COUNT, *lines, _SHOW])
    done = run_program([sys.executable, "-c", text], check=True)
    return int(done.stdout)


def test_nothing_is_collected_while_modules_are_loaded():
    assert _count_collections(_MAKE) > 50
    assert _count_collections(f"with collector_paused(): {_MAKE}") < 10


def test_a_compilation_is_looked_through_a_few_times():
    many = "made = [[] for _ in range(1_000_000)]"
    assert _count_collections(many) > 500
    assert 0 < _count_collections(f"with collect_rarely(): {many}") < 30


@pytest.mark.parametrize("is_frozen", [True, False])
def test_the_collector_is_as_it_was_after_a_failed_compilation_too(is_frozen):
    (gc.freeze if is_frozen else gc.unfreeze)()
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        with pytest.raises(ValueError, match="no model"), collect_rarely():
            assert gc.get_threshold() != before
            assert gc.get_freeze_count() > 0
            raise ValueError("no model")
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() == frozen
        assert (frozen > 0) is is_frozen
    finally:
        gc.freeze()


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_as_it_was_after_a_failed_import_too(is_on):
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ImportError), collector_paused():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()


_CIRCLE = """
class Circle:
    def __init__(self) -> None:
        self.own = self
    def __del__(self) -> None:
        print("found")
circle = Circle()
"""


@pytest.mark.parametrize("ends_quickly", [False, True])
def test_no_circles_are_looked_for_as_a_process_ends(ends_quickly):
    lines = ["from adrenoc.base.host.quick_imports import leave_objects", _CIRCLE, "del circle"]
    if ends_quickly:
        lines.append("leave_objects()")
    done = run_program([sys.executable, "-c", "\n".join(lines)], check=True)
    assert ("found" in done.stdout) is not ends_quickly


@pytest.mark.parametrize(("call", "is_left"), [("main()", True), ("main(['targets'])", False)])
def test_only_a_command_of_its_own_process_leaves_its_objects(call, is_left):
    lines = [
        "import gc, sys",
        "from adrenoc.cli.main import main",
        "sys.argv = ['adrenoc', 'targets']",
        call,
        "print(gc.get_freeze_count() > 0, gc.isenabled())",
    ]
    done = run_program([sys.executable, "-c", "\n".join(lines)], check=True)
    assert done.stdout.splitlines()[-1] == f"{is_left} {not is_left}"
