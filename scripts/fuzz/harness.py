"""Runs cases in processes of their own with limits of time and memory, and judges what became.

A worker is a new interpreter, not a fork: locks of threads that a fork leaves behind are never
given back, so that a worker that ends waits for them.  Its memory is watched from here: a limit on
its address space would make allocations fail in libraries that cannot stand it.
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

LIMIT_S = 30.0
"""Of processor time for a case: a machine with much else to do is no hang."""

MOST_WAITED_S = 600.0
"""On the clock, for a case that waits for what never comes."""

LIMIT_BYTES = 4 << 30
"""Of a worker, with all that it has loaded."""

MOST_KEPT_BYTES = 1 << 30
"""A worker that holds more after a case makes room for another."""

CASES_A_PROCESS = 500
STEP_S = 0.05

Case = Callable[[int], tuple[str, bytes]]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `planned`, `compiled`, `ran`, `refused`, or a finding.

    `text` says the error, and of a finding the place.
    """

    kind: str
    text: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether it is neither a result nor an error of adrenoc's."""
        return self.kind not in ("compiled", "planned", "ran", "refused")


Judge = Callable[[Path], Outcome]


def judge(path: Path, *, raises: bool = False, compiles: bool = False) -> Outcome:
    """Import and plan the model at `path`, up to the kernels; to the end where it `compiles`."""
    if compiles:
        return judge_work(partial(_compile, path), "compiled", raises=raises)
    return judge_work(partial(_plan, path), "planned", raises=raises)


def judge_work(
    work: Callable[[], object], done: str, *, most_letters: int = 1 << 18, raises: bool = False
) -> Outcome:
    """What some work comes to: `done`, refused in a sentence of adrenoc's, or a finding.

    With `raises` exceptions that are a finding are let through.
    """
    from adrenoc.base.errors import AdrenocError

    try:
        work()
    except AdrenocError as error:
        if not error.message.strip() or len(error.message) > most_letters:
            return Outcome("message", f"{type(error).__name__} of {len(error.message)} letters")
        return Outcome("refused", type(error).__name__)
    except Exception as error:
        if raises:
            raise
        return Outcome("memory" if isinstance(error, MemoryError) else "exception", place(error))
    return Outcome(done)


def _plan(path: Path) -> None:
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.compile.pipeline import State, run_stages
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target

    target = load_target("adreno:730")
    options = resolve_options(target, preset="mixed", command_line={}).options
    state = State(model=path, target=target, options=options)
    run_stages(state, reporter=SilentReporter(), stop_after="plan_memory")


def _compile(path: Path) -> None:
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.compile.make import make_bundle
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target

    target = load_target("host")
    make_bundle(
        path,
        target=target,
        options=resolve_options(target, preset="mixed", command_line={}).options,
        output=path.with_suffix(".adrenoc"),
        reporter=SilentReporter(),
        use_cache=False,
    )


def place(error: BaseException) -> str:
    """The exception, and the last line of adrenoc that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/adrenoc/" in f.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__} at {where}: {(text or [''])[-1][:120]}"


def parser_of(about: str, kept: str) -> argparse.ArgumentParser:
    """The options that all fuzzers have; `kept` is where they keep what they find."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=kept, help=f"folder  [default: {kept}]")
    parser.add_argument("--only", type=int, help="one case, in this process")
    return parser


def find(title: str, options: argparse.Namespace, case: Case, folder: Path, judges: Judge) -> int:
    """Judge the cases that are asked for, print findings and keep their files; how many differ."""
    started = time.monotonic()
    outcomes: Counter[str] = Counter()
    findings: set[str] = set()
    numbers = range(options.first, options.first + options.cases)
    for number, outcome in run(numbers, case, folder, judges):
        refused = f" as {outcome.text}" if outcome.kind == "refused" else ""
        outcomes[outcome.kind + refused] += 1
        if outcome.is_finding and outcome.text not in findings:
            findings.add(outcome.text)
            path = keep(options.keep, number, case)
            print(f"case {number} ({path}): {outcome.kind}: {outcome.text}", flush=True)
        if outcomes.total() % 1000 == 0:
            print(f"{outcomes.total()}: {dict(outcomes)}", file=sys.stderr, flush=True)
    told = ", ".join(f"{count} {kind}" for kind, count in outcomes.most_common())
    taken_s = time.monotonic() - started
    print(f"{title}: {told}; {len(findings)} findings in {taken_s:.0f} s", flush=True)
    return len(findings)


def keep(folder: Path, number: int, case: Case) -> Path:
    """Write the file of a case to a folder."""
    name, content = case(number)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"case-{number}-{name}"
    path.write_bytes(content)
    return path


def run(numbers: range, case: Case, folder: Path, judges: Judge) -> Iterator[tuple[int, Outcome]]:
    """Judge all cases, by a function that a worker can import."""
    worker: _Worker | None = None
    try:
        for number in numbers:
            name, content = case(number)
            path = folder / f"case{Path(name).suffix}"
            path.write_bytes(content)
            if worker is None or worker.is_spent():
                if worker is not None:
                    worker.end()
                worker = _Worker(judges)
            yield number, worker.judge(path)
    finally:
        if worker is not None:
            worker.end()


class _Worker:
    """A process that judges one model after the other."""

    def __init__(self, judges: Judge) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(theirs, judges))
        self._process.start()
        theirs.close()
        self._pipe.recv()  # it has imported what the first case is judged by
        self._cases = 0
        self._is_lost = False

    def is_spent(self) -> bool:
        """Whether the next case needs another one."""
        if self._is_lost or self._cases >= CASES_A_PROCESS:
            return True
        return _status_bytes(self._process.pid, "VmRSS") > MOST_KEPT_BYTES

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def judge(self, path: Path) -> Outcome:
        self._cases += 1
        self._pipe.send(path)
        began, used = time.monotonic(), _processor_s(self._process.pid)
        while not self._pipe.poll(STEP_S):
            lost = self._too_much() or self._too_long(began, used)
            if lost is not None:
                self._is_lost = True
                return lost
        lost = self._too_much()  # between two looks
        self._is_lost = lost is not None
        try:
            outcome = self._pipe.recv()
        except EOFError:
            self._is_lost = True
            self._process.join()
            return Outcome("died", f"ended with {self._process.exitcode}")
        return lost or outcome

    def _too_much(self) -> Outcome | None:
        if _status_bytes(self._process.pid, "VmHWM") <= LIMIT_BYTES:
            return None
        return Outcome("memory", f"more than {LIMIT_BYTES >> 20} MiB")

    def _too_long(self, began: float, used: float) -> Outcome | None:
        if _processor_s(self._process.pid) - used > LIMIT_S:
            return Outcome("hang", f"more than {LIMIT_S:.0f} s of processor time")
        if time.monotonic() - began > MOST_WAITED_S:
            return Outcome("hang", f"more than {MOST_WAITED_S:.0f} s on the clock")
        return None


def _status_bytes(process: int | None, field: str) -> int:
    """A field of proc(5)'s status; 0 of a process that has ended."""
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{field}:")]
    return int(found[0]) << 10 if found else 0


def _processor_s(process: int | None) -> float:
    """Processor time of a child that nobody has waited for yet, all its threads together."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    user, system = text.rpartition(")")[2].split()[11:13]  # fields 14 and 15 of proc(5)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _serve(pipe: Connection, judges: Judge) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pipe.send(None)
    while True:
        pipe.send(judges(pipe.recv()))
