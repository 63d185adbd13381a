"""Each case ends with a result or one typed sentence, and leaves nothing: see `case.py`.

`scripts/hostile` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.case import Case
from tests.hostile.judge import Judge, judge
from tests.hostile.table import LEAST, all_cases

CASES = {case.title: case for case in all_cases()}


@pytest.fixture(scope="module")
def held() -> Iterator[Judge]:
    with judge() as made:
        yield made


def test_there_are_enough() -> None:
    assert len(CASES) >= LEAST


@pytest.mark.parametrize("number", range(len(CASES)))
def test_case(number: int, held: Judge, tmp_path: Path) -> None:
    case: Case = list(CASES.values())[number]
    wrong = held.try_case(case, tmp_path)
    assert not wrong, f"{case.title}: {wrong}"
