"""Planning takes work in proportion to the length of a chain, whatever the operator.

What is counted are calls of Python functions, not seconds, so that a busy machine changes nothing.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.ir import chains

SHORT, LONG = 6, 24
MOST = 2.0
"""How much steeper than in proportion calls may grow."""

PER_OPERATOR = 100_000
"""Calls that an operator may take in any case: what moves fuse until an expression is full."""

# Their schedules are searched for anew at each step, which is slow and says nothing more.
SLOW = {"Conv 1x1", "Conv 3x3", "Conv depthwise", "Conv and Relu", "scaled", "residual"}
FAST = [name for name in chains.CHAINS if name not in SLOW]


class TooMuchError(BaseException):
    """More calls than the length allows."""


def calls_of(work: Callable[[], Any], limit: float) -> int:
    """How many Python functions are called; the work ends soon beyond the limit."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"
        if count > limit:
            raise TooMuchError  # TVM makes another error of it on its way

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    except (TooMuchError, RuntimeError):
        if count <= limit:
            raise
    finally:
        sys.setprofile(before)
    return count


def planning(path: Path) -> Callable[[], Any]:
    """What plans a model up to its memory."""
    target = load_target("adreno:750")
    options = resolve_options(target, preset="mixed", command_line={}).options
    start = State(model=path, target=target, options=options)
    return lambda: run_stages(start, reporter=SilentReporter(), stop_after="plan_memory")


def calls_at(folder: Path, name: str, length: int, limit: float = 10**7) -> int:
    return calls_of(planning(chains.write_chain(folder, name, length)), limit)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*FAST, *chains.TFLITE])
def test_work_grows_with_the_length(name, tmp_path):
    calls_at(tmp_path, name, 1)  # first uses
    few = calls_at(tmp_path, name, SHORT)
    limit = LONG * max(MOST * few / SHORT, PER_OPERATOR)
    many = calls_at(tmp_path, name, LONG, limit)
    assert many <= limit, f"{SHORT} operators take {few} calls, {LONG} more than {limit:.0f}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Relu", "RELU chain"])
def test_two_thousand_operators_need_no_deep_stack(name, tmp_path):
    planning(chains.write_chain(tmp_path, name, 2000))()
