"""Runs cases in forked processes with limits of time and memory, and judges what became of them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

LIMIT_S = 30.0
"""Of processor time for a case: a machine with much else to do is no hang."""

MOST_WAITED_S = 600.0
"""On the clock, for a case that waits for what never comes."""

LIMIT_BYTES = 4 << 30
CASES_A_PROCESS = 200

Case = Callable[[int], tuple[str, bytes]]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `planned`, `compiled`, `refused`, or a finding.

    `text` says the error, and of a finding the place.
    """

    kind: str
    text: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether it is neither a result nor an error of adrenoc's."""
        return self.kind not in ("compiled", "planned", "refused")


def judge(path: Path, *, raises: bool = False, compiles: bool = False) -> Outcome:
    """Import and plan the model at `path`, up to the kernels; to the end where it `compiles`."""
    from adrenoc.errors import AdrenocError

    try:
        if compiles:
            _compile(path)
        else:
            _plan(path)
    except AdrenocError as error:
        return Outcome("refused", type(error).__name__)
    except MemoryError:
        if raises:
            raise
        return Outcome("memory", _place(sys.exc_info()[1]))
    except Exception as error:
        if raises:
            raise
        return Outcome("exception", _place(error))
    return Outcome("compiled" if compiles else "planned")


def _plan(path: Path) -> None:
    from adrenoc.options import resolve_options
    from adrenoc.pipeline import State, run_stages
    from adrenoc.reporter import SilentReporter
    from adrenoc.target import load_target

    target = load_target("adreno:730")
    options = resolve_options(target, preset="mixed", command_line={}).options
    state = State(model=path, target=target, options=options)
    run_stages(state, reporter=SilentReporter(), stop_after="plan_memory")


def _compile(path: Path) -> None:
    from adrenoc.make import make_bundle
    from adrenoc.options import resolve_options
    from adrenoc.reporter import SilentReporter
    from adrenoc.target import load_target

    target = load_target("host")
    make_bundle(
        path,
        target=target,
        options=resolve_options(target, preset="mixed", command_line={}).options,
        output=path.with_suffix(".adrenoc"),
        reporter=SilentReporter(),
        use_cache=False,
    )


def _place(error: BaseException | None) -> str:
    """The exception, and the last line of adrenoc that it went through."""
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/adrenoc/" in f.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__} at {where}: {(text or [''])[-1][:120]}"


def run(
    numbers: range, case: Case, folder: Path, *, compiles: bool = False
) -> Iterator[tuple[int, Outcome]]:
    """Judge all cases; processes are forked from this one, which has everything loaded."""
    import adrenoc.make
    import adrenoc.pipeline  # noqa: F401 - loaded once, before the forks

    position = numbers.start
    while position < numbers.stop:
        end = min(position + CASES_A_PROCESS, numbers.stop)
        ours, theirs = Pipe()
        child = os.fork()
        if child == 0:
            ours.close()
            _serve(range(position, end), case, folder, theirs, compiles)
        theirs.close()
        for number in range(position, end):
            position = number + 1
            outcome = _next(ours, child)
            yield number, outcome
            if outcome.kind in ("hang", "died"):
                break
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _next(pipe: Connection, child: int) -> Outcome:
    began, used = time.monotonic(), _processor_s(child)
    while not pipe.poll(1.0):
        if _processor_s(child) - used > LIMIT_S:
            return Outcome("hang", f"more than {LIMIT_S:.0f} s of processor time")
        if time.monotonic() - began > MOST_WAITED_S:
            return Outcome("hang", f"more than {MOST_WAITED_S:.0f} s on the clock")
    try:
        kind, text = pipe.recv()
    except EOFError:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return Outcome("died", f"ended with {code}")
    return Outcome(kind, text)


def _processor_s(process: int) -> float:
    """Processor time of a child that nobody has waited for yet, all its threads together."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    user, system = text.rpartition(")")[2].split()[11:13]  # fields 14 and 15 of proc(5)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _serve(numbers: range, case: Case, folder: Path, pipe: Connection, compiles: bool) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        name, content = case(number)
        path = folder / f"case{Path(name).suffix}"
        path.write_bytes(content)
        outcome = judge(path, compiles=True) if compiles else judge(path)
        pipe.send((outcome.kind, outcome.text))
    os._exit(0)
