"""Compile one case, run it on the software OpenCL device and judge its numbers."""

import json
import multiprocessing
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from adrenoc import native
from adrenoc.base.errors import AdrenocError
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.compiler import compile_model
from adrenoc.ir.options import resolve_options
from adrenoc.native import opencl
from adrenoc.target.target import load_target
from tests.patience import WAIT_S


class Case(Protocol):
    """A model, what to feed it, and how to judge what comes out; `excluded` says why not to run."""

    @property
    def name(self) -> str:
        """By which a table lists it."""

    @property
    def operator(self) -> str:
        """What it tests."""

    @property
    def file_name(self) -> str:
        """What the model's file is called: its suffix tells the format."""

    @property
    def model(self) -> bytes:
        """The file's content."""

    @property
    def inputs(self) -> Mapping[str, np.ndarray]:
        """By name."""

    @property
    def excluded(self) -> str:
        """Empty where it can run."""

    def difference(self, seen: Mapping[str, np.ndarray]) -> str:
        """What is wrong with the outputs; empty where nothing is."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a case.

    `status` is passed, refused, excluded, wrong, error (an exception that is none of adrenoc's),
    died or timeout; `detail` says why.  `places` counts nodes by texture, buffer and cpu.
    """

    status: str
    detail: str = ""
    places: tuple[int, int, int] = (0, 0, 0)

    def line(self) -> str:
        """As the table of outcomes states it."""
        return f"{self.status}: {self.detail}" if self.detail else self.status


def execute(case: Case) -> Outcome:
    """Run a case; every exception becomes an outcome."""
    if case.excluded:
        return Outcome(status="excluded", detail=case.excluded)
    try:
        seen, places = compute(case)
    except Exception as error:  # noqa: BLE001 - what any of these says belongs into the table
        return refusal(case, error)
    wrong = case.difference(seen)
    return Outcome(status="wrong" if wrong else "passed", detail=wrong, places=places)


def refusal(case: Case, error: Exception) -> Outcome:
    """What an exception says of a case: it is refused where the exception is one of adrenoc's."""
    if not isinstance(error, AdrenocError):
        said = f"{type(error).__name__}: {_one_line(str(error))}"
        return Outcome(status="error", detail=said)
    # The path of the model differs from run to run.
    said = re.sub(rf"\S*/{re.escape(case.file_name)}", case.file_name, error.message)
    return Outcome(status="refused", detail=_one_line(said))


def compute(case: Case, preset: str = "fp32") -> tuple[dict[str, np.ndarray], tuple[int, int, int]]:
    """Compile a case and run it; its outputs by name, and the nodes by place.

    Raises:
        AdrenocError: it cannot be compiled, or the device failed.
    """
    import tvm
    from tvm import relax

    native.use_software_device()
    native.load()
    target = load_target("host")
    # A file cannot tell an extent of zero from one that is open: a user says it.
    empty = tuple((name, v.shape) for name, v in case.inputs.items() if v.size == 0)
    given = {"check_ir": True, "shapes": empty or None}
    options = resolve_options(target, preset=preset, command_line=given).options
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / case.file_name
        path.write_bytes(case.model)
        compiled = compile_model(path, target=target, options=options, reporter=SilentReporter())
    device = tvm.opencl(0)
    machine = relax.VirtualMachine(compiled.library, [device])
    opencl.build_all(compiled.library.mod, device.index)
    arguments = [tvm.runtime.tensor(case.inputs[s.name], device) for s in compiled.inputs]
    for spec in compiled.param_specs:
        scope = None if spec.scope == "global" else spec.scope
        held = tvm.runtime.empty(spec.shape, spec.dtype, device, mem_scope=scope)
        held.copyfrom(compiled.params[spec.name])
        arguments.append(held)
    result: Any = machine["main"](*arguments)
    results = [result] if hasattr(result, "numpy") else list(result)
    names = [spec.name for spec in compiled.outputs]
    counts = compiled.statistics
    places = (counts.nodes_texture, counts.nodes_buffer, counts.nodes_cpu)
    return {n: r.numpy() for n, r in zip(names, results, strict=True)}, places


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:240]


LIMIT_S = WAIT_S
"""Time for one case; the first of a process also loads TVM."""

Done = Callable[[Any, Any], None]


def run_cases(
    cases: Iterable[Any],
    *,
    jobs: int,
    done: Done,
    work: Callable[[Any], Outcome] = execute,
    limit_s: float = LIMIT_S,
) -> None:
    """Do `work` for all cases; `done` is told of each as it ends, in any order."""
    pending = list(reversed(list(cases)))
    count = min(jobs, max(1, len(pending)))
    workers = [_Worker(work=work, limit_s=limit_s) for _ in range(count)]
    try:
        while pending or any(w.case for w in workers):
            for worker in workers:
                if worker.case is None and pending:
                    worker.start(pending.pop())
            busy = {w.pipe: w for w in workers if w.case is not None}
            ready = wait(list(busy), timeout=1.0)
            for worker in busy.values():
                outcome = worker.result(worker.pipe in ready)
                if outcome is not None and worker.case is not None:
                    case, worker.case = worker.case, None
                    done(case, outcome)
    finally:
        for worker in workers:
            worker.stop()


def _serve(pipe: Connection, work: Callable[[Any], Outcome]) -> None:
    while True:
        case = pipe.recv()
        if case is None:
            return
        pipe.send(work(case))


@dataclass(kw_only=True)
class _Worker:
    """One process and the case that it works on."""

    work: Callable[[Any], Outcome]
    limit_s: float
    case: Any = None
    started: float = 0.0

    def __post_init__(self) -> None:
        self._launch()

    def _launch(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self._process: Any = context.Process(target=_serve, args=(other, self.work), daemon=True)
        self._process.start()
        other.close()

    def start(self, case) -> None:
        self.case, self.started = case, time.monotonic()
        self.pipe.send(case)

    def result(self, ready: bool) -> Outcome | None:
        """The outcome, if there is one by now."""
        if ready:
            try:
                return self.pipe.recv()
            except EOFError:
                self._process.join()
                code = self._process.exitcode
                self._launch()
                return Outcome(status="died", detail=f"the process ended with {code}")
        if time.monotonic() - self.started > self.limit_s:
            self._process.kill()
            self._process.join()
            self._launch()
            return Outcome(status="timeout", detail=f"more than {self.limit_s:.0f} s")
        return None

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


TABLE = Path(__file__).with_name("status.json")


def read_table(path: Path = TABLE) -> dict[str, str]:
    """Case -> `passed`, `refused: why` or `excluded: why`; empty where there is no table yet."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_table(table: Mapping[str, str], path: Path = TABLE) -> None:
    path.write_text(json.dumps(dict(table), indent=0, sort_keys=True) + "\n")


def summary(cases: Mapping[str, Case], table: Mapping[str, str]) -> str:
    """Counts by status, then by operator where not all cases passed."""
    total = Counter(line.partition(":")[0] for line in table.values())
    lines = [", ".join(f"{count} {status}" for status, count in total.most_common())]
    by_operator: dict[str, Counter[str]] = {}
    for name, line in table.items():
        kind = by_operator.setdefault(cases[name].operator, Counter())
        kind[line.partition(":")[0]] += 1
    for operator, counts in sorted(by_operator.items()):
        rest = {s: c for s, c in counts.items() if s not in ("passed", "excluded")}
        if rest:
            parts = ", ".join(f"{c} {s}" for s, c in sorted(rest.items()))
            lines.append(f"  {operator}: {counts['passed']} passed, {parts}")
    return "\n".join(lines)
