"""The checked-in table of ONNX's node tests holds, on a sample that is the same each time."""

import hashlib
from collections import Counter

import pytest

from tests.onnx_backend.cases import Case, load_cases
from tests.onnx_backend.execute import Outcome, read_table, run_cases

SAMPLE = 24
"""Cases a run; all of them: scripts/verify onnx-ops --jobs 2."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return load_cases()


def _sample(cases: dict[str, Case]) -> list[Case]:
    """Cases spread by the hash of their names, those of slow families left out."""
    quick = [c for c in cases.values() if not c.excluded and "attention" not in c.name]
    return sorted(quick, key=lambda c: hashlib.sha256(c.name.encode()).hexdigest())[:SAMPLE]


def test_table_is_complete_and_holds_no_wrong_number(cases):
    table = read_table()
    assert sorted(table) == sorted(cases)
    statuses = Counter(line.partition(":")[0] for line in table.values())
    assert set(statuses) <= {"passed", "refused", "excluded"}, statuses
    told = [name for name, line in table.items() if line != "passed" and ": " not in line]
    assert not told, f"no reason is given for {told}"


def test_excluded_cases_are_those_of_the_table(cases):
    table = read_table()
    for case in cases.values():
        assert table[case.name].startswith("excluded") == bool(case.excluded), case.name


def test_sample_agrees_with_the_table(cases, plain_processes):
    table = read_table()
    seen: dict[str, Outcome] = {}
    run_cases(_sample(cases), jobs=1, done=lambda case, outcome: seen.update({case.name: outcome}))
    assert len(seen) == SAMPLE
    wrong = {n: o.line() for n, o in seen.items() if o.status != table[n].partition(":")[0]}
    assert not wrong
