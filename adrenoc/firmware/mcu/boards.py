"""What runs a program of trials: QEMU's board, or anybody's, behind a command.

An executor is any command that keeps running.  It begins with a line that says what it has,

    BOARD {"name": "Nucleo-F446RE", "clock_mhz": 180, "flash_kib": 512, "ram_kib": 128}

and then answers each line `RUN FOLDER` on its standard input: it compiles `FOLDER/trial.c` with
two functions of its own, `uint32_t board_ticks(void)`, which counts cycles of that clock, and
`void board_print(const char *)`, lets the board run it, and hands on what the board prints, up to
its line `DONE`.  Instead it may print `FAIL` and a reason.  The end of its input is its end.
"""

import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from adrenoc.base.errors import AdrenocError, DeviceError, OptionError, ToolError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.text.json_text import read_json
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.emulator import check_tools, run_program
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
