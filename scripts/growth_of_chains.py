"""What planning takes for one operator again and again: ten times, and up to thousands of times.

Each chain of `model_zoo.chains` is planned (`adrenoc check`) at growing lengths, in a process of
its own.  CPU seconds may grow with the length, by no more than `FACTOR` times in proportion.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

LENGTHS = (10, 80, 320, 2000)
FACTOR = 2.0
"""A chain of n times the length takes at most so many times n times what the shorter one took."""

FIXED_S = 0.25
"""What any planning takes: below it, times say nothing."""


class TooLongError(BaseException):
    """A chain took more CPU time than its length allows."""


def compare_chains(names: list[str], *, longest: int, device: str) -> int:
    """Plan and judge; the exit code is 1 if a chain grows out of proportion or fails."""
    from model_zoo.chains import CHAINS, TFLITE

    bad, steepest = [], 0.0
    chosen = [n for n in (*CHAINS, *TFLITE) if not names or any(name in n for name in names)]
    for name in chosen:
        command = [sys.executable, str(Path(__file__).with_name("bench_growth")), "--chains"]
        command += ["--longest", str(longest), "--child", "chain", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        last = (done.stdout or done.stderr).strip().splitlines()[-1:]
        said = last[0] if last else "it said nothing"
        print(f"{name:24} {said}", flush=True)
        if done.returncode != 0:
            bad.append(name)
        else:
            steepest = max(steepest, float(said.rpartition(" ")[2]))
    if bad:
        print(f"out of proportion or refused: {', '.join(bad)}")
        return 1
    print(f"{len(chosen)} chains: all grow in proportion, at most {steepest:.2f} times as steep")
    return 0


def measure_chain(name: str, *, longest: int, device: str) -> int:
    """Plan one chain at all lengths in this process; prints its times and the steepest growth."""
    signal.signal(signal.SIGPROF, _too_long)
    times: list[tuple[int, float]] = []
    planned_s(name, 2, device)  # imports and first uses count for nothing
    for length in (n for n in LENGTHS if n <= longest):
        limit_s = 60.0
        if times:
            before, took = times[-1]
            limit_s = FACTOR * max(took, FIXED_S) * length / before
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            times.append((length, planned_s(name, length, device)))
        except TooLongError:
            told = ", ".join(f"{n}: {took:.2f} s" for n, took in times)
            print(f"{told}, {length}: more than {limit_s:.1f} s")
            return 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    pairs = itertools.pairwise(times)
    growth = max((b / max(a, FIXED_S) * n / m for (n, a), (m, b) in pairs), default=0.0)
    print(", ".join(f"{n}: {took:.2f} s" for n, took in times) + f"; growth {growth:.2f}")
    return 0


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def planned_s(name: str, length: int, device: str) -> float:
    """CPU seconds of planning one chain."""
    from model_zoo.chains import write_chain

    from adrenoc.base.reporter import SilentReporter
    from adrenoc.check.check_model import check_model
    from adrenoc.check.verdict import Policy
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target

    target = load_target(device)
    options = resolve_options(target, preset="mixed", command_line={}).options
    with tempfile.TemporaryDirectory(prefix="chain-") as folder:
        path = write_chain(Path(folder), name, length)
        begun = time.process_time()
        check_model(
            path, target=target, options=options, policy=Policy(), reporter=SilentReporter()
        )
        return time.process_time() - begun
