"""Commands of adrenoc side by side, each a process of its own; none outlives this one."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from adrenoc.base.host.proc import ending_with_us, own_module
from adrenoc.base.text.json_text import read_json

_TICK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The exit code, JSON and message of a command, and how long it took."""

    exit_code: int
    output: dict[str, Any]
    message: str = ""
    hint: str = ""
    took_s: float = 0.0


Run = Callable[[Sequence[str]], CommandResult]


def parse_result(code: int, text: str, aside: str, took_s: float) -> CommandResult:
    """Return a command's result out of its exit code, its standard output and its standard
    error."""
    try:
        output = read_json(text)
    except ValueError:
        output = {}
    output = output if isinstance(output, dict) else {}
    error = output.get("error") if code else None
    told = error if isinstance(error, dict) else {}
    last = aside.strip().splitlines()[-1:] or [f"it ended with code {code}"]
    return CommandResult(
        exit_code=code,
        output=output,
        message=str(told.get("message") or last[0]) if code else "",
        hint=str(told.get("hint", "")),
        took_s=took_s,
    )


@contextmanager
def open_workers() -> Iterator[Run]:
    """What runs one command, from any thread; at the end of the block none is left running."""
    running: set[subprocess.Popen[str]] = set()
    lock, over = threading.Lock(), threading.Event()

    def run(words: Sequence[str]) -> CommandResult:
        started = time.monotonic()
        with subprocess.Popen(
            own_module("adrenoc", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            with lock:
                running.add(process)
            if over.is_set():  # set before the process was there to be ended
                process.terminate()
            try:
                with ending_with_us(process.pid):
                    said, aside = process.communicate()
            finally:
                with lock:
                    running.discard(process)
        return parse_result(process.returncode, said, aside, time.monotonic() - started)

    try:
        yield run
    finally:
        over.set()
        with lock:
            left = list(running)
        for process in left:
            process.terminate()


def run_side_by_side(
    commands: Sequence[Sequence[str]],
    *,
    run: Run,
    jobs: int,
    finished: Callable[[int, CommandResult], None],
) -> list[CommandResult]:
    """Return all commands, `jobs` at a time; `finished` hears of each, from the calling thread."""
    results: dict[int, CommandResult] = {}
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        numbers = {pool.submit(run, words): number for number, words in enumerate(commands)}
        waiting = set(numbers)
        while waiting:
            # With a limit, so that a signal is heard.
            done, waiting = wait(waiting, timeout=_TICK_S, return_when=FIRST_COMPLETED)
            for future in done:
                number = numbers[future]
                results[number] = future.result()
                finished(number, results[number])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [results[number] for number in range(len(commands))]
