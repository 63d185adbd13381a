"""The search for the smallest set: against planted answers, counting trials."""

import pytest

from adrenoc.check.accuracy.search import OutOfEffortError, smallest_passing

NAMES = tuple(f"n{i:02}" for i in range(40))


@pytest.mark.parametrize(
    "needed", [{"n00"}, {"n39"}, {"n03", "n17"}, {"n00", "n01", "n02"}, {"n05", "n06", "n30"}]
)
def test_the_needed_ones_are_found(needed: set[str]) -> None:
    tried = []

    def passes(chosen: frozenset[str]) -> bool:
        tried.append(chosen)
        return needed <= chosen

    found = smallest_passing(NAMES, passes)
    assert found is not None and found.is_minimal
    assert set(found.chosen) == needed
    assert len(tried) == len(set(tried)) <= 45


def test_either_of_two_is_enough() -> None:
    found = smallest_passing(NAMES, lambda chosen: bool(chosen & {"n07", "n21"}))
    assert found is not None and found.chosen == ("n07",)


def test_a_suspect_that_comes_first_takes_two_trials() -> None:
    tried = []
    smallest_passing(NAMES, lambda chosen: tried.append(chosen) or "n00" in chosen)
    assert [len(chosen) for chosen in tried] == [40, 1]


def test_what_nothing_mends_has_no_answer() -> None:
    assert smallest_passing(NAMES, lambda _: False) is None


@pytest.mark.parametrize("trials", [1, 3, 7])
def test_out_of_time_the_best_so_far_passes(trials: int) -> None:
    left = trials

    def passes(chosen: frozenset[str]) -> bool:
        nonlocal left
        if left == 0:
            raise OutOfEffortError
        left -= 1
        return {"n03", "n17"} <= chosen

    found = smallest_passing(NAMES, passes)
    assert found is not None and not found.is_minimal
    assert {"n03", "n17"} <= set(found.chosen)
