"""Programs of trials, and what runs them: QEMU's board, or anybody's, behind a command.

An executor is any command that keeps running. It begins with a line that says what it has,

    BOARD {"name": "Nucleo-F446RE", "clock_mhz": 180, "flash_kib": 512, "ram_kib": 128}

and then answers each line `RUN FOLDER` on its standard input: it compiles `FOLDER/trial.c` with two
functions of its own, `uint32_t board_ticks(void)`, which counts cycles of that clock, and `void
board_print(const char *)`, lets the board run it, and hands on what the board prints, up to its
line `DONE`. Instead it may print `FAIL` and a reason. The end of its input is its end.

A program has many schedules: each computes its layer on drawn numbers and prints `T NUMBER TICKS
HASH` in hexadecimal; the hash tells whether the result is right.
"""

from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np

from adrenoc.base.errors import AdrenocError, DeviceError, OptionError, ToolError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.text.json_text import read_json
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.emulator import check_tools, run_program
from adrenoc.firmware.mcu.evaluate import evaluate
from adrenoc.firmware.mcu.folder import array_text, call_text, once, snippet_text, struct_lines
from adrenoc.firmware.mcu.kernel import Array, Choice, FirmwareKernel, digest_of, family_of, work_of
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Filter
from adrenoc.firmware.mcu.program import FirmwareProgram, FirmwareStep, schedules_of
from adrenoc.ir.tuning_log import Status, TunedDevice

TRIAL_FILE = "trial.c"
_SHARE = 0.8
"""Of a board's memory, for trials: the rest is for its own code and stack."""
_PROTOCOL = "adrenoc firmware tune --help says what it has to print"
_MOST_LINE = 1 << 16


class TrialError(Exception):
    """A program of trials came to no end; with what is to be said of it in a log."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class TrialBoard(Protocol):
    """Where trials run."""

    device: TunedDevice
    flash_bytes: int
    ram_bytes: int

    def run(self, source: str) -> str:
        """Return what a program prints. Raises TrialError where it was not built, or came to no
        end."""

    def time_us(self, ticks: int) -> float:
        """Return how long so many ticks are."""

    def close(self) -> None:
        """Let it go."""


class EmulatedBoard:
    """QEMU's: a nanosecond an instruction. Raises DependencyError where a tool is missing."""

    def __init__(self, core: Core, *, limit_s: float) -> None:
        check_tools(core.name)
        board, self._core, self._limit_s = core.emulated, core, limit_s
        self._tick_us = board.instructions_a_tick / 1000
        self.flash_bytes = int(board.flash_kib * 1024 * _SHARE)
        self.ram_bytes = int(board.ram_kib * 1024 * _SHARE)
        self.device = TunedDevice(
            name=f"QEMU's {board.machine}, an instruction a nanosecond", clock_mhz=1000
        )

    def run(self, source: str) -> str:
        """Build it and run it."""
        try:
            return run_program(
                source, self._core, defines=["TICK_MASK=0xFFFFFFu"], timeout_s=self._limit_s
            )
        except ToolError as error:
            raise TrialError(Status.BUILD, error.message) from error
        except DeviceError as error:
            late = isinstance(error.__cause__, subprocess.TimeoutExpired)
            raise TrialError(Status.TIMEOUT if late else Status.CRASH, error.message) from error

    def time_us(self, ticks: int) -> float:
        """Microseconds of a run by QEMU's clock."""
        return ticks * self._tick_us

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What an executor says of its board."""

    name: str
    clock_mhz: float
    flash_kib: int
    ram_kib: int


class ExecutorBoard:
    """Anybody's, behind a command. Raises OptionError where that is no command; ToolError where it
    does not start, or does not say what board it has."""

    def __init__(self, command: str, *, limit_s: float) -> None:
        try:
            self._words = shlex.split(command)
            if not self._words:
                raise ValueError("it is empty")
        except ValueError as error:
            raise OptionError(
                f"ADRENOC_EXECUTOR is {command!r}, no command: {str(error).lower()}",
                hint="ADRENOC_EXECUTOR='CMD --its-options'",
            ) from error
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        told = self._start()
        self._clock_mhz = told.clock_mhz
        self.flash_bytes = int(told.flash_kib * 1024 * _SHARE)
        self.ram_bytes = int(told.ram_kib * 1024 * _SHARE)
        self.device = TunedDevice(
            name=told.name, platform=f"ADRENOC_EXECUTOR={command}", clock_mhz=round(told.clock_mhz)
        )

    def run(self, source: str) -> str:
        """Hand it over and wait for the end."""
        if self._process is None:
            try:
                self._start()
            except AdrenocError as error:
                raise TrialError(Status.CRASH, error.message) from error
        with TemporaryFolder("tune") as work:
            (work / TRIAL_FILE).write_text(source, encoding="utf-8")
            return self._ask(work)

    def _ask(self, work: Path) -> str:
        process = self._process
        if process is None or process.stdin is None:
            raise TypeError("the executor was not started")
        with suppress(OSError):  # where it has died the reading below says so
            process.stdin.write(f"RUN {work}\n")
            process.stdin.flush()
        deadline, said = time.monotonic() + self._limit_s, []
        while True:
            line = self._line(deadline)
            if line is None:
                late = time.monotonic() >= deadline
                self.close()
                what = f"did not end within {self._limit_s:.0f} s" if late else "ended"
                status = Status.TIMEOUT if late else Status.CRASH
                raise TrialError(status, f"the executor {what} before the board was done")
            word = line.strip()
            if word.startswith("FAIL"):
                reason = word.removeprefix("FAIL").strip() or "without a reason"
                raise TrialError(Status.BUILD, f"the executor failed: {reason}"[:300])
            said.append(line)
            if word == "DONE":
                return "".join(said)

    def time_us(self, ticks: int) -> float:
        """Microseconds of a run by the board's clock."""
        return ticks / self._clock_mhz

    def close(self) -> None:
        """End its input, and itself where that does not do."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self) -> _Told:
        again = shlex.join(self._words)
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(
                f"the executor `{self._words[0]}` does not start ({error.strerror})",
                hint=f"run it by hand: {again}",
            ) from error
        self._process, self._lines = process, queue.Queue()
        threading.Thread(target=_read, args=(process, self._lines), daemon=True).start()
        line = self._line(time.monotonic() + self._limit_s)
        try:
            return _parse_greeting(line)
        except ValueError as error:
            self.close()
            seen = "nothing" if line is None else repr(line.strip()[:100])
            raise ToolError(
                f"the executor printed {seen} first, expected a line BOARD with JSON: {error}",
                hint=f"{_PROTOCOL}; run it by hand: {again}",
            ) from error

    def _line(self, deadline: float) -> str | None:
        """Return the next line; None where there is none in time, or no more."""
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    if process.stdout is not None:
        while line := process.stdout.readline(_MOST_LINE):
            lines.put(line)
    lines.put(None)


def _parse_greeting(line: str | None) -> _Told:
    """Return what the first line of an executor says. Raises ValueError where it is no such
    line."""
    word, _, text = (line or "").strip().partition(" ")
    if word != "BOARD":
        raise ValueError("it does not begin with BOARD")
    plain = read_json(text)
    if not isinstance(plain, dict) or {f.name for f in fields(_Told)} != set(plain):
        raise ValueError(f"it has to say {', '.join(f.name for f in fields(_Told))}, no more")
    name = plain.pop("name")
    if not isinstance(name, str) or not name:
        raise ValueError("its name is no text")
    for key, value in plain.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise ValueError(f"its {key} is {value!r}, expected a number above 0")
    return _Told(
        name=name,
        clock_mhz=float(plain["clock_mhz"]),
        flash_kib=int(plain["flash_kib"]),
        ram_kib=int(plain["ram_kib"]),
    )


_WORTH_COUNTING = 40_000
"""Instructions that a schedule runs for at least: a tick may be some tens of them."""
_CODE_BYTES = 4096
"""Flash of a schedule beside its constants, with room to spare."""
_PRIME, _OFFSET = 16777619, 2166136261
_STEP, _ADD = 1664525, 1013904223


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A layer's work, what may compute it, and which schedule the program has without a log."""

    digest: str
    family: str
    work: dict[str, object]
    network: Network
    operator: Filter
    choices: tuple[Choice, ...]
    untuned: str
    calls: int
    scratch_bytes: int
    """What a schedule may take without a larger arena."""

    @property
    def title(self) -> str:
        """Return the task in words, for a table."""
        return f"{self.network.tensors[self.operator.result].name} ({self.family})"

    @property
    def ram_bytes(self) -> int:
        """Bytes of its inputs and output."""
        tensors = (*self.operator.sources, self.operator.result)
        return sum(self.network.tensors[index].elements for index in tensors)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One schedule of a task."""

    task: Task
    choice: Choice

    @property
    def flash_bytes(self) -> int:
        """About how much it takes."""
        arrays = self.choice.make().arrays
        return _CODE_BYTES + sum(array.size_bytes for array in arrays)

    @property
    def ram_bytes(self) -> int:
        """Return how much it takes."""
        return self.task.ram_bytes + self.choice.scratch_bytes

    @property
    def repeats(self) -> int:
        """Return how often it runs, so that ticks count it well."""
        return max(1, int(_WORTH_COUNTING / max(self.choice.instructions, 100)))


def tasks_of(program: FirmwareProgram) -> list[Task]:
    """Return the distinct layers of a program that have more than one schedule."""
    network, core = program.network, program.core
    steps = {step.made: step for step in program.steps}
    found: dict[str, list[Filter]] = {}
    for operator in network.operators:
        if isinstance(operator, Filter):
            found.setdefault(digest_of(operator, network, core), []).append(operator)
    tasks = []
    for digest, operators in found.items():
        first = operators[0]
        choices = [c for way in schedules_of(first, network, core).ways for c in way]
        if len(choices) > 1:
            tasks.append(
                Task(
                    digest=digest,
                    family=family_of(first),
                    work=work_of(first, network, core),
                    network=network,
                    operator=first,
                    choices=tuple(choices),
                    untuned=steps[first.result].kernel.schedule,
                    calls=len(operators),
                    scratch_bytes=min(program.rooms[o.result].scratch_bytes for o in operators),
                )
            )
    return tasks


def trial_program(candidates: Sequence[Candidate]) -> str:
    """`trial.c` of some candidates."""
    kernels = [candidate.choice.make() for candidate in candidates]
    pairs = zip(candidates, kernels, strict=True)
    steps = [_step(number, c, kernel) for number, (c, kernel) in enumerate(pairs)]
    parts = [_HEAD, *map(snippet_text, once(s for k in kernels for s in k.snippets))]
    parts += once(text for kernel in kernels for text in kernel.texts)
    shared: dict[tuple[str, bytes], str] = {}
    for step, kernel in zip(steps, kernels, strict=True):
        for array in kernel.arrays:
            parts.append(_array(f"{step.name}_{array.suffix}", array, shared))
        parts += struct_lines(step)
    most = [max(_sizes(c)[n] for c in candidates) for n in range(3)]
    scratch = max(kernel.scratch_bytes for kernel in kernels)
    names = ("in0", "in1", "out", "scratch")
    for name, size in zip(names, (*most, scratch), strict=True):
        parts.append(f"static int8_t {name}[{max(size, 4) + 8}] __attribute__((aligned(8)));")
    parts.append(_RUN)
    lines = ["int main(void) {"]
    for number, (step, candidate) in enumerate(zip(steps, candidates, strict=True)):
        first, second, result = _sizes(candidate)
        parts.append(f"static void trial{number}(void) {{ {call_text(step)} }}")
        seed = f"UINT32_C(0x{seed_of(candidate.task):08x})"
        given = f"{number}, trial{number}, {candidate.repeats}, {seed}, {first}, {second}, {result}"
        lines.append(f"  run_trial({given});")
    lines += ['  board_print("DONE\\n");', "  return 0;", "}", ""]
    return "\n".join([*parts, *lines])


def _sizes(candidate: Candidate) -> tuple[int, int, int]:
    """Bytes of the input, of what is added to it, and of the result."""
    task = candidate.task
    sizes = [task.network.tensors[index].elements for index in task.operator.sources]
    result = task.network.tensors[task.operator.result].elements
    return sizes[0], (sizes[1] if len(sizes) > 1 else 0), result


def _step(number: int, candidate: Candidate, kernel: FirmwareKernel) -> FirmwareStep:
    return FirmwareStep(
        name=f"layer{number}",
        label="",
        kernel=kernel,
        sources=("in0", "in1"),
        result="out",
        scratch="scratch",
        state="0",
        made=candidate.task.operator.result,
    )


def _array(name: str, array: Array, shared: dict[tuple[str, bytes], str]) -> str:
    """Return a constant, or another name for one that is there."""
    key = array.ctype, np.ascontiguousarray(array.values).tobytes()
    if key in shared:
        return f"#define {name} {shared[key]}"
    shared[key] = name
    return array_text(name, array)


def seed_of(task: Task) -> int:
    """Return what a task's numbers are drawn from."""
    return int(task.digest[:8], 16)


def draw_bytes(seed: int, count: int) -> tuple[np.ndarray, int]:
    """Return the bytes that `trial.c` draws from a seed, and the seed after them."""
    values = np.empty(count, np.uint8)
    for place in range(count):
        seed = (seed * _STEP + _ADD) & 0xFFFFFFFF
        values[place] = seed >> 24
    return values.view(np.int8), seed


def hash_of(values: np.ndarray) -> int:
    """Return the hash of bytes that `trial.c` prints."""
    found = _OFFSET
    for byte in values.reshape(-1).view(np.uint8).tolist():
        found = ((found ^ byte) * _PRIME) & 0xFFFFFFFF
    return found


def expected_hash(task: Task) -> int:
    """Return the hash of what a task's layer makes of its numbers."""
    operator, tensors = task.operator, task.network.tensors
    sources, seed, arrays = operator.sources, seed_of(task), {}
    for index in sources:
        values, seed = draw_bytes(seed, tensors[index].elements)
        arrays[index] = values.reshape(tensors[index].shape)
    alone = Network(
        name="trial",
        tensors=task.network.tensors,
        operators=(operator,),
        inputs=sources,
        outputs=(operator.result,),
    )
    return hash_of(evaluate(alone, arrays)[operator.result])


_HEAD = """\
/* Schedules of layers, each timed on drawn numbers.  The board has to have these two functions;
 * ticks are of 32 bits, or of the bits that TICK_MASK says. */
#include <stdint.h>
uint32_t board_ticks(void);
void board_print(const char *text);
#ifndef TICK_MASK
#define TICK_MASK 0xFFFFFFFFu
#endif
"""

_RUN = f"""\
static void draw(int8_t *to, int32_t count, uint32_t *seed) {{
  for (int32_t i = 0; i < count; ++i) {{
    *seed = *seed * UINT32_C({_STEP}) + UINT32_C({_ADD});
    to[i] = (int8_t)(*seed >> 24);
  }}
}}
static void print_word(uint32_t value) {{
  char text[10] = " 00000000";
  for (int i = 8; i > 0; --i, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  board_print(text);
}}
static void run_trial(uint32_t number, void (*trial)(void), int32_t repeats, uint32_t seed,
                      int32_t first, int32_t second, int32_t result) {{
  draw(in0, first, &seed);
  draw(in1, second, &seed);
  for (int32_t i = 0; i < result; ++i) out[i] = (int8_t)(number + i);
  const uint32_t begin = board_ticks();
  for (int32_t i = 0; i < repeats; ++i) trial();
  const uint32_t ticks = (board_ticks() - begin) & TICK_MASK;
  uint32_t hash = UINT32_C({_OFFSET});
  for (int32_t i = 0; i < result; ++i) hash = (hash ^ (uint8_t)out[i]) * UINT32_C({_PRIME});
  board_print("T");
  print_word(number);
  print_word(ticks);
  print_word(hash);
  board_print("\\n");
}}
"""
