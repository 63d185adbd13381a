"""Each case ends with a result or one typed sentence, and leaves nothing: see `case.py`.

`scripts/hostile` prints the table, and tries single cases.
"""

import shutil
from collections.abc import Iterator

import pytest

from tests.hostile.judge import Judge, judge
from tests.hostile.table import LEAST, PARTS, all_cases


@pytest.fixture(scope="module")
def held() -> Iterator[Judge]:
    with judge() as made:
        yield made


def test_there_are_enough():
    assert len(all_cases()) >= LEAST


@pytest.mark.nightly
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__.rpartition(".")[2])
def test_part(part, held, tmp_path):
    """A test a case would take as long again, most of it for pytest's own."""
    wrong = {}
    for number, case in enumerate(part.cases()):
        folder = tmp_path / str(number)
        folder.mkdir()
        if found := held.try_case(case, folder):
            wrong[case.title] = found
        shutil.rmtree(folder, ignore_errors=True)
    assert not wrong, "\n".join(f"{title}: {what}" for title, what in wrong.items())
