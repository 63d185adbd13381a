"""The order in which tensors are tried in float32, on contributions that are known."""

import itertools
import math
import time
from collections.abc import Mapping

from adrenoc.check.accuracy.program_run import HalfTensors
from adrenoc.check.accuracy.search import NODES, Effort, Unit, rank_units

ERRORS = {"a": 1e-2, "b": 1e-5, "c": 5e-3, "d": 5e-3, "e": 1e-5}
BYTES = {"a": 100, "b": 1, "c": 10_000, "d": 100, "e": 1_000_000}


def _rank(errors: Mapping[str, float], effort: Effort, bytes_more: Mapping[str, int]) -> list[str]:
    """The order, where errors are independent and of known sizes."""
    units = [
        Unit(
            tensors=(name,),
            stored=HalfTensors(tensors=frozenset({name}), constants=frozenset()),
            bytes_more=bytes_more[name],
        )
        for name in errors
    ]

    def measure(stored: HalfTensors) -> float:
        effort.run()
        return sum(errors[name] ** 2 for name in stored.tensors)

    return [unit.tensors[0] for unit in rank_units(units, measure, effort)]


def test_what_adds_most_for_its_bytes_comes_first():
    effort = Effort(nodes=5)
    assert _rank(ERRORS, effort, BYTES) == ["a", "d", "c", "b", "e"]
    assert effort.left == () and effort.runs == 9


def test_what_overflows_comes_first():
    assert _rank({**ERRORS, "e": math.inf}, Effort(nodes=5), BYTES)[0] == "e"


def test_the_largest_of_many_is_found_by_halves():
    errors = {f"t{number}": 1e-9 for number in range(256)}
    effort = Effort(nodes=256)
    order = _rank({**errors, "t77": 1e-3}, effort, dict.fromkeys(errors, 4))
    assert order[0] == "t77" and effort.runs == 1 + 2 * 8


def test_out_of_effort_the_order_is_what_is_known_and_says_so():
    effort = Effort(nodes=5, share=0.0)
    assert _rank(ERRORS, effort, BYTES) == list(ERRORS)
    assert effort.left == ("5 tensors to round alone",)
    assert _rank({}, effort, {}) == []


def test_an_order_ends_by_its_work_and_not_by_the_clock(monkeypatch):
    """A machine that is busy for a day between two measurements changes nothing."""
    found = []
    for step_s in (0.0, 86_400.0):
        clock = itertools.count(0.0, step_s) if step_s else itertools.repeat(0.0)
        for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
            monkeypatch.setattr(time, name, lambda clock=clock: next(clock))
        effort = Effort(nodes=5, share=4 / NODES)
        found.append((_rank(ERRORS, effort, BYTES), effort.runs, effort.left))
    assert found[0] == found[1] and found[0][-1]
