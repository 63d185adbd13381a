"""What scripts make of measured and published times, and of loops of machine code."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fitting import loop_trips as trips
from fitting.board import print_board

from adrenoc.target.target import load_target
from tests.commands import run_program


def estimate(model: str, gpu: str, *kernels: tuple[int, float, float]) -> dict[str, object]:
    """An estimate of kernels: launches, ms by width, ms if width costs nothing."""
    return {
        "model": model,
        "gpu": gpu,
        "preset": "fp16",
        "launch_us": 5.0,
        "counts": [count for count, _, _ in kernels],
        "kernels": [{"est_ms": wide, "narrow_ms": narrow} for _, wide, narrow in kernels],
    }


def test_estimates_stand_beside_published_times(tmp_path, capsys):
    file = tmp_path / "estimates.json"
    rows = [
        estimate("resnet18", "a830", (2, 0.5, 0.25), (18, 0.1, 0.1)),
        estimate("resnet18", "a750", (1, 4.0, 4.0)),
        estimate("vit_b16", "a830", (1, 1.0, 1.0)),
    ]
    file.write_text(json.dumps(rows))
    print_board([file])
    said = capsys.readouterr().out
    table = [line for line in said.splitlines() if line.startswith("| ")]
    assert len({line.split(" | ")[0] for line in table[1:]}) == 21
    width = table[0].count(" | ")
    assert all(line.count(" |") == width + 1 for line in table)
    start = "| resnet18 | 3.465 | 3.364 to 4.077 | 23"
    # 2 * .5 + 18 * .1 and 20 launches of 5 us, over 3.465 measured.
    assert f"{start} | 830 | fp16 | 20 | 2.90 | 2.40 | 0.84 / 0.69 |" in table
    assert f"{start} | 750 | fp16 | 1 | 4.00 | 4.00 |  |" in table
    # What ran on the CPU for the most part is no yardstick.
    assert "fp16, by width: 0.84 of LiteRT's, geometric mean of 1" in said


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fitting" / "published_times.py"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return run_program([sys.executable, str(SCRIPT)], check=True).stdout.splitlines()


def _fitted(lines: list[str], name: str) -> tuple[float, float, float]:
    """The best figure and its range."""
    words = next(line.split() for line in lines if line.split()[:1] == [name])
    return float(words[1]), float(words[3]), float(words[5])


def test_the_target_of_the_830_states_what_was_fitted(lines):
    performance = load_target("adreno:830").performance
    assert performance.launch_us == _fitted(lines, "launch_us")[0]
    reads, least, most = _fitted(lines, "reads")
    assert performance.texels_per_clock == reads * 12
    assert least <= reads <= most < 8
    assert performance.dram_gb_per_s is not None
    assert performance.dram_gb_per_s <= _fitted(lines, "gb_per_s")[1]


def test_no_network_is_told_worse_than_the_page_says(lines):
    page = (SCRIPT.parents[2] / "docs" / "measurements" / "adreno-830.md").read_text()
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == 10
    assert all(row in page for row in rows)


def _instruction(kind: str, op: str = "", arguments: str = "", repeats: int = 1) -> dict[str, Any]:
    return {"c": kind, "op": op, "args": arguments, "n": repeats}


def test_machine_work_is_kept_by_the_loops_around_it():
    body = [
        _instruction("tex"),
        _instruction("mad16", repeats=4),
        _instruction("lds", "stl.u32", "l[r0.x], r1.x, 4"),
        _instruction("lds", "ldl.u32", "r1.x, l[r0.x], 4"),
        _instruction("mad32"),
    ]
    found = trips.machine_work(body, [{"a": 0, "b": 3}, {"a": 1, "b": 1}])
    assert found == {
        (0,): trips.ThreadWork(texels=1, local_bytes=16),
        (0, 1): trips.ThreadWork(multiplies=4),
        (): trips.ThreadWork(multiplies=1),
    }


def test_loops_that_were_merged_run_the_product_of_their_extents():
    wanted = trips.ThreadWork(multiplies=3 * 16 * 64, texels=3 * 16 * 8)
    machine = {(0,): trips.ThreadWork(multiplies=64, texels=8)}
    assert trips.find_trips(wanted, [3, 16], machine) == trips.Trips(counts=(48,), off=0.0)


def test_loops_that_were_unrolled_do_not_count():
    wanted = trips.ThreadWork(multiplies=3 * 16 * 64)
    machine = {(0,): trips.ThreadWork(multiplies=3 * 64)}
    assert trips.find_trips(wanted, [3, 16], machine).counts == (16,)


def test_texels_and_local_memory_decide_where_nothing_is_multiplied():
    wanted = trips.ThreadWork(multiplies=5 * 4, texels=7, local_bytes=2 * 8)
    machine = {
        (0,): trips.ThreadWork(texels=1),
        (1,): trips.ThreadWork(local_bytes=8),
        (2,): trips.ThreadWork(multiplies=4),
    }
    assert trips.find_trips(wanted, [2, 5, 7], machine).counts == (7, 2, 5)


def test_code_that_fits_nowhere_is_told_by_its_distance():
    wanted = trips.ThreadWork(multiplies=100)
    found = trips.find_trips(wanted, [2], {(0,): trips.ThreadWork(multiplies=25)})
    assert found == trips.Trips(counts=(2,), off=0.5)


def test_code_without_loops_needs_no_trips():
    found = trips.find_trips(
        trips.ThreadWork(multiplies=9), [3], {(): trips.ThreadWork(multiplies=8)}
    )
    assert found.counts == ()
    assert found.off == pytest.approx(1 / 9)


def test_loops_of_the_tir_in_their_order_come_before_any_search():
    """Of five loops a search takes too long; four of them and one turn are as much work here."""
    stated = (9, 2, 3, 2, 4)
    machine = {
        (0, 1, 2): trips.ThreadWork(multiplies=64, texels=4),
        (0, 3): trips.ThreadWork(multiplies=72, local_bytes=16),
        (0, 4): trips.ThreadWork(multiplies=96),
    }
    wanted = trips.ThreadWork(
        multiplies=9 * (6 * 64 + 2 * 72 + 4 * 96), texels=9 * 6 * 4, local_bytes=9 * 2 * 16
    )
    found = trips.find_trips(wanted, [9, 2, 7, 3, 2, 4], machine)
    assert found == trips.Trips(counts=stated, off=0.0)
