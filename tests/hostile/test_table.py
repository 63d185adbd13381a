"""Each case ends with a result or one typed sentence, and leaves nothing: see `case.py`.

`scripts/hostile` prints the table, and tries single cases.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.hostile.case import Case
from tests.hostile.judge import Judge, judge
from tests.hostile.table import LEAST, all_cases


def _family(case: Case) -> str:
    return case.family


FAMILIES = {
    family: list(cases) for family, cases in groupby(sorted(all_cases(), key=_family), key=_family)
}


@pytest.fixture(scope="module")
def held() -> Iterator[Judge]:
    with judge() as made:
        yield made


def test_there_are_enough() -> None:
    assert sum(map(len, FAMILIES.values())) >= LEAST


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, held: Judge, tmp_path: Path) -> None:
    """A test a case would take as long again, most of it for pytest's own."""
    wrong = {}
    for number, case in enumerate(FAMILIES[family]):
        folder = tmp_path / str(number)
        folder.mkdir()
        if found := held.try_case(case, folder):
            wrong[case.title] = found
        shutil.rmtree(folder, ignore_errors=True)
    assert not wrong, "\n".join(f"{title}: {what}" for title, what in wrong.items())
