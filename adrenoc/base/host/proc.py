"""Run outside tools, and commands of adrenoc that print JSON: processes that end with this one."""

import datetime
import errno
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from adrenoc.base.errors import AdbError, DiskFullError, RemoteError, ToolError
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import quote_word

_SHOWN_LINES = 40
_FULL_WORDS = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))
_GENTLE_S, _TICK_S = 0.5, 0.01
_SHORT_S = 1.0
"""What ends sooner needs nobody who watches over it."""
# Told that all is well it ends; where nobody can tell it any more, what it watches over does.
_WATCH = 'read -r _ && exit; kill -s TERM -- "$1"; sleep 1; kill -s KILL -- "$1"'
# `-m` alone looks for modules in the working folder first, which may be anybody's: a `json.py`
# there would run.
_AS_MODULE = (
    "import sys; sys.path[:1] = [] if sys.path[0] == '' else sys.path[:1]; import runpy; "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def own_module(module: str, *words: str) -> tuple[str, ...]:
    """Return the command that runs a module in a new interpreter, as `python -m` does."""
    return (sys.executable, "-c", _AS_MODULE, module, *words)


def run_tool(command: Sequence[str], *, deed: str, timeout_s: float = 600.0) -> str:
    """Run `command` and return its standard output; `deed` says what it is for ("link model.so").
    Raises DiskFullError where the tool says that it had no room to write; ToolError where the tool
    cannot be started, takes longer than `timeout_s`, or does not exit with 0."""
    again = shlex.join(command)
    try:
        done = _run(command, timeout_s)
    except OSError as error:
        raise ToolError(
            f"cannot {deed}: `{command[0]}` does not start ({error.strerror})",
            hint=f"run it by hand: {again}",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"cannot {deed}: `{command[0]}` was stopped after {timeout_s:.0f} s",
            hint=f"run it by hand: {again}",
        ) from error
    if done.returncode != 0:
        _refuse_full_disk(done, command, deed)
        raise ToolError(
            f"cannot {deed}: `{Path(command[0]).name}` {_ending(done.returncode)}"
            f"{_quote_output(done.stderr or done.stdout)}",
            hint=f"run it again: {again}",
        )
    return done.stdout


def _refuse_full_disk(
    done: subprocess.CompletedProcess[str], command: Sequence[str], deed: str
) -> None:
    """Compilers say it once, and much that follows from it."""
    text = done.stderr + done.stdout
    full = next((words for words in _FULL_WORDS if words in text), None)
    if full is None:
        return
    temporary = Path(tempfile.gettempdir())
    made = (_lasting_folder(Path(word)) for flag, word in pairwise(command) if flag == "-o")
    folders = [temporary, *(f for f in made if f.is_dir() and temporary not in (f, *f.parents))]
    asked = " ".join(map(quote_word, folders))
    raise DiskFullError(
        f"cannot {deed}: `{Path(command[0]).name}` {_ending(done.returncode)}: {full.lower()}",
        hint=f"free some space (df -h {asked}), or set TMPDIR and ADRENOC_CACHE_DIR to other "
        "folders",
    )


def _lasting_folder(made: Path) -> Path:
    """Return where a file goes in the end: outputs are prepared in hidden folders, which go."""
    return next(folder for folder in made.parents if not folder.name.startswith("."))


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for this one
    )


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run the tool in a session of its own: what it has started ends with it."""
    with _start(command) as process:
        try:
            output, errors = _wait(process, timeout_s)
        finally:
            if process.returncode is None:  # a time-out, or a signal of ours
                _end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _wait(process: subprocess.Popen[str], timeout_s: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=min(_SHORT_S, timeout_s))
    except subprocess.TimeoutExpired:
        if timeout_s <= _SHORT_S:
            raise
    with ending_with_us(-process.pid):
        return process.communicate(timeout=timeout_s - _SHORT_S)


@contextmanager
def ending_with_us(target: int) -> Iterator[None]:
    """While this is open, a process (a group by its negative number) ends when ours is killed.
    After SIGKILL nothing of ours runs: a shell waits for the end of a pipe that we hold."""
    watch = _start_watch(target)
    try:
        yield
    finally:
        if watch is not None:
            with suppress(OSError):
                watch.communicate(b"\n")


def _start_watch(target: int) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            ("/bin/sh", "-c", _WATCH, "sh", str(target)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # without a shell, or room for one more process, nobody watches
        return None


def _end(process: subprocess.Popen[str]) -> None:
    """End a tool and its helpers: gently first, so that compilers remove their temporary files."""
    until = time.monotonic() + _GENTLE_S
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)  # whether any of them is left
            time.sleep(_TICK_S)
        os.killpg(process.pid, signal.SIGKILL)


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"exited with {returncode}"


def _quote_output(text: str) -> str:
    lines = text.strip().splitlines()
    if not lines:
        return " and said nothing"
    said = ":\n" + "\n".join(lines[-_SHOWN_LINES:])
    if len(lines) > _SHOWN_LINES:
        # Where there is no room for it, the last lines have to do.
        with (
            suppress(OSError),
            tempfile.NamedTemporaryFile(
                "w", prefix="adrenoc-", suffix=".log", delete=False, encoding="utf-8"
            ) as log,
        ):
            log.write(text)
            log.flush()
            said += f"\n(all {len(lines)} lines: {log.name})"
    return said


_LEFT_CODES = frozenset({RemoteError.exit_code, AdbError.exit_code})
"""Exit codes of a command whose device went away: the job is done again when it is back."""
TIMEOUT_CODE = 124
"""What stands for the exit code of a command that was stopped: it is the job that is to blame."""
_GENTLE_COMMAND_S = 10.0
_LONGEST_ERROR = 2000


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended: what it printed as JSON, or its error; `ended` is UTC in ISO 8601."""

    exit_code: int
    took_s: float
    ended: str
    output: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    hint: str = ""

    @property
    def is_final(self) -> bool:
        """Return whether the command came to its end, and lost neither device nor its life."""
        return self.exit_code >= 0 and self.exit_code not in _LEFT_CODES


class CommandRunner:
    """Runs commands of adrenoc, from any thread, each for at most `limit_s`; and ends them."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def run(self, words: Sequence[str]) -> Result:
        """Run a command; it ends with this process, however that ends."""
        started = time.monotonic()
        with _start(own_module("adrenoc", *words)) as process:
            with self._lock:
                self._processes.add(process)
                if self._is_over:
                    process.terminate()
            with ending_with_us(process.pid):
                code, said, aside = self._wait(process)
            with self._lock:
                self._processes.discard(process)
        return read_result(code, said, aside, time.monotonic() - started)

    def _wait(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Return the exit code and what a command said; one that is late is ended."""
        try:
            said, aside = process.communicate(timeout=self._limit_s)
            return process.returncode, said, aside
        except subprocess.TimeoutExpired:
            process.terminate()  # gently first: it may have half-written files to remove
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GENTLE_COMMAND_S)
        process.kill()
        process.communicate()
        told = f"it took longer than the limit of {self._limit_s or 0:.0f} s and was stopped"
        return TIMEOUT_CODE, "", told

    def close(self) -> None:
        """End what runs, and what is begun from now on."""
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.terminate()


def read_result(code: int, said: str, aside: str, took_s: float) -> Result:
    """Return how a command ended that said this on stdout and that on stderr."""
    output = _last_object(said)
    told = output.pop("error") if isinstance(output.get("error"), dict) else {}
    plain = (aside.strip() or f"it ended with code {code}") if code else ""
    return Result(
        exit_code=code,
        took_s=took_s,
        ended=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        output=output,
        error=str(told.get("message") or plain)[-_LONGEST_ERROR:],
        hint=str(told.get("hint", "")),
    )


def _last_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a command printed, or of one a line the last."""
    for piece in (text, *reversed(text.strip().splitlines())):
        with suppress(ValueError):
            found = read_json(piece)
            if isinstance(found, dict):
                return found
    return {}
