"""`scripts/fitting/published_times.py`: what targets state is what the published times give."""

import sys
from pathlib import Path

import pytest

from adrenoc.target.target import load_target
from tests.commands import run_program

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fitting" / "published_times.py"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    done = run_program([sys.executable, str(SCRIPT)], check=True)
    return done.stdout.splitlines()


def _fitted(lines: list[str], name: str) -> tuple[float, float, float]:
    """The best figure and its range."""
    words = next(line.split() for line in lines if line.split()[:1] == [name])
    return float(words[1]), float(words[3]), float(words[5])


def test_the_target_of_the_830_states_what_was_fitted(lines: list[str]) -> None:
    performance = load_target("adreno:830").performance
    assert performance.launch_us == _fitted(lines, "launch_us")[0]
    reads, least, most = _fitted(lines, "reads")
    assert performance.texels_per_clock == reads * 12
    assert least <= reads <= most < 8
    assert performance.dram_gb_per_s is not None
    assert performance.dram_gb_per_s <= _fitted(lines, "gb_per_s")[1]


def test_no_network_is_told_worse_than_the_page_says(lines: list[str]) -> None:
    page = (SCRIPT.parents[2] / "docs" / "measurements" / "adreno-830.md").read_text()
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == 10
    assert all(row in page for row in rows)
