"""Policies: each limit on its own, all broken ones at once."""

import pytest

from adrenoc.check.verdict import Policy
from tests.unit.verdicts import node, verdict

NODES = (
    node("x_NCHW", kind="layout", time_us=1.0),
    node("a", "x_NCHW", time_us=1999.0, bound="texture"),
    node("b", "a", place="buffer", reason="too wide"),
    node("c_rows", "b", place="buffer", kind="layout", is_output=False),
    node("c_cpu", "c_rows", place="buffer", kind="device", time_us=None),
    node("d", "c_cpu", place="cpu", time_us=None, bound=""),
    node("y", "d", place="buffer", is_output=True),
)


def _broken(**limits: float) -> tuple[str, ...]:
    return Policy(**limits).broken_by(verdict(NODES))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_cpu_nodes": 0}, "1 nodes on the CPU, --limit cpu-nodes allows 0: d"),
        (
            {"max_buffer_nodes": 1},
            "2 nodes that write to a buffer, --limit buffer-nodes allows 1: b, c_rows",
        ),
        (
            {"max_copies": 2},
            "3 nodes that only move data, --limit copies allows 2: x_NCHW, c_rows, c_cpu",
        ),
        (
            {"max_memory_mib": 9},
            "10.0 MiB of GPU memory, --limit memory-mib allows 9: 7.0 MiB constants, "
            "2.0 MiB for intermediate tensors (most are alive at a)",
        ),
        (
            {"max_time_ms": 2.0},
            "at least 2.03 ms, --limit time-ms allows 2: the longest is 2 ms at a (texture)",
        ),
    ],
)
def test_each_limit_says_what_breaks_it(limits, said):
    assert _broken(**limits) == (said,)


def test_limits_that_hold_say_nothing():
    assert not _broken()
    assert not _broken(
        max_cpu_nodes=1, max_buffer_nodes=2, max_copies=3, max_memory_mib=10, max_time_ms=2.1
    )


def test_all_broken_limits_are_listed_at_once():
    assert len(_broken(max_cpu_nodes=0, max_copies=0, max_memory_mib=1, max_time_ms=0.1)) == 4


def test_long_lists_are_cut():
    nodes = tuple(node(f"n{i}", kind="copy") for i in range(12))
    (said,) = Policy(max_copies=0).broken_by(verdict(nodes))
    assert said.endswith("n5, n6, n7 and 4 more")


def test_an_unknown_time_breaks_a_limit_on_time():
    nodes = (node("a", time_us=None), node("b", time_us=None))
    (said,) = Policy(max_time_ms=5).broken_by(verdict(nodes))
    assert "the time is not known, as no source gives rates of adreno:a750" in said


def test_a_floor_that_lacks_a_rate_keeps_no_limit():
    """Nobody knows what the bound would be that was left out; what is too long already is so."""
    lacks = verdict(NODES, unknown_rates=("performance.dram_gb_per_s",))
    (said,) = Policy(max_time_ms=5).broken_by(lacks)
    assert "not known beyond 2.03 ms, as no source gives dram_gb_per_s of adreno:a750" in said
    (said,) = Policy(max_time_ms=2.0).broken_by(lacks)
    assert said.startswith("at least 2.03 ms")
