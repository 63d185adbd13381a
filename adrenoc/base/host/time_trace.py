"""What takes the time of a command: named sections, in Chrome's form of trace events.

Sections nest as calls do.  Where nobody records, one costs a look at a variable.  Each event has
the clock on the wall (`ts`, `dur`) and the CPU's of this process (`tts`, `tdur`), in microseconds:
on a busy machine the second is the one to compare.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

_NS_A_US = 1000


@dataclass(kw_only=True)
class TimeTrace:
    """The sections of a recording that have ended, in the order in which they did."""

    events: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, name: str, category: str, wall_ns: tuple[int, int], cpu_ns: tuple[int, int]
    ) -> None:
        """A section from the first of two clock readings to the second."""
        both = {"ph": "X", "pid": os.getpid(), "tid": 1, "name": name, "cat": category}
        ends = {"ts": wall_ns[0], "dur": wall_ns[1] - wall_ns[0]}
        ends |= {"tts": cpu_ns[0], "tdur": cpu_ns[1] - cpu_ns[0]}
        self.events.append(both | {key: value / _NS_A_US for key, value in ends.items()})

    def to_json(self) -> str:
        """Return the file that chrome://tracing and ui.perfetto.dev open."""
        return json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms"}, indent=0) + "\n"


_open: ContextVar[TimeTrace | None] = ContextVar("time_trace", default=None)


def is_recording() -> bool:
    """Return whether somebody wants to know where the time goes."""
    return _open.get() is not None


@contextmanager
def record_sections() -> Iterator[TimeTrace]:
    """Record the sections of the block; what the process did before is a section too."""
    trace = TimeTrace()
    now, used = time.perf_counter_ns(), time.process_time_ns()
    trace.add("start of the process", "start", (now - used, now), (0, used))
    token = _open.set(trace)
    try:
        yield trace
    finally:
        _open.reset(token)


@contextmanager
def section(name: str, category: str) -> Iterator[None]:
    """A section of the work, where somebody records."""
    trace = _open.get()
    if trace is None:
        yield
        return
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    try:
        yield
    finally:
        ends = time.perf_counter_ns(), time.process_time_ns()
        trace.add(name, category, (wall, ends[0]), (cpu, ends[1]))
