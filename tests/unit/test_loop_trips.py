"""Trip counts of machine code's loops, as `scripts/estimate_networks` finds them."""

from typing import Any

import pytest
from fitting import loop_trips as trips


def _instruction(kind: str, op: str = "", arguments: str = "", repeats: int = 1) -> dict[str, Any]:
    return {"c": kind, "op": op, "args": arguments, "n": repeats}


def test_machine_work_is_kept_by_the_loops_around_it() -> None:
    body = [
        _instruction("tex"),
        _instruction("mad16", repeats=4),
        _instruction("lds", "stl.u32", "l[r0.x], r1.x, 4"),
        _instruction("lds", "ldl.u32", "r1.x, l[r0.x], 4"),
        _instruction("mad32"),
    ]
    loops = [{"a": 0, "b": 3}, {"a": 1, "b": 1}]
    found = trips.machine_work(body, loops)
    assert found == {
        (0,): trips.ThreadWork(texels=1, local_bytes=16),
        (0, 1): trips.ThreadWork(multiplies=4),
        (): trips.ThreadWork(multiplies=1),
    }


def test_loops_that_were_merged_run_the_product_of_their_extents() -> None:
    wanted = trips.ThreadWork(multiplies=3 * 16 * 64, texels=3 * 16 * 8)
    machine = {(0,): trips.ThreadWork(multiplies=64, texels=8)}
    assert trips.find_trips(wanted, [3, 16], machine) == trips.Trips(counts=(48,), off=0.0)


def test_loops_that_were_unrolled_do_not_count() -> None:
    wanted = trips.ThreadWork(multiplies=3 * 16 * 64)
    machine = {(0,): trips.ThreadWork(multiplies=3 * 64)}
    assert trips.find_trips(wanted, [3, 16], machine).counts == (16,)


def test_texels_and_local_memory_decide_where_nothing_is_multiplied() -> None:
    wanted = trips.ThreadWork(multiplies=5 * 4, texels=7, local_bytes=2 * 8)
    machine = {
        (0,): trips.ThreadWork(texels=1),
        (1,): trips.ThreadWork(local_bytes=8),
        (2,): trips.ThreadWork(multiplies=4),
    }
    assert trips.find_trips(wanted, [2, 5, 7], machine).counts == (7, 2, 5)


def test_code_that_fits_nowhere_is_told_by_its_distance() -> None:
    wanted = trips.ThreadWork(multiplies=100)
    found = trips.find_trips(wanted, [2], {(0,): trips.ThreadWork(multiplies=25)})
    assert found == trips.Trips(counts=(2,), off=0.5)


def test_code_without_loops_needs_no_trips() -> None:
    found = trips.find_trips(
        trips.ThreadWork(multiplies=9), [3], {(): trips.ThreadWork(multiplies=8)}
    )
    assert found.counts == ()
    assert found.off == pytest.approx(1 / 9)


def test_loops_of_the_tir_in_their_order_come_before_any_search() -> None:
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
