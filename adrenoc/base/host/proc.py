"""Run an outside tool; a failure tells how to run it again and what it said."""

import errno
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from adrenoc.base.errors import DiskFullError, ToolError
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

    Raises:
        DiskFullError: the tool says that it had no room to write.
        ToolError: the tool cannot be started, takes longer than `timeout_s`, or does not exit
            with 0.  The message holds the exit code or signal and the last lines of stderr, the
            hint the command line to run again.
    """
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


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run the tool in a session of its own: what it has started ends with it."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
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

    After SIGKILL nothing of ours runs: a shell waits for the end of a pipe that we hold.
    """
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
