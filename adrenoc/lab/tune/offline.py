"""Tune without a device: rank candidates by the cost model, or by what an analyser says.

An analyser is any command.  It is called as `CMD FILE.cl`, with OpenCL C of one kernel in the
file and its launch in `FILE.json` beside it:

    {"gpu": "750", "kernel": "kernel_kernel", "work_group": [16, 4, 1], "groups": [7, 14, 8],
     "loops": [3, 16], "texel_bytes": 8}

`loops` are the trip counts in the order of the text.  It prints a JSON object with `time_us`, or
with `error` where the kernel cannot be had.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from adrenoc.base.errors import OptionError, ToolError
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.base.host.proc import run_tool
from adrenoc.base.text.json_text import read_json
from adrenoc.base.tvmapi import bits_of, const_int, tirx
from adrenoc.ir.program import Launch
from adrenoc.ir.tuning_log import MOST_TIME_US, Device, LogWriter, Status, Trial, actions_key
from adrenoc.kernels.codegen.build import build_kernel, module_sources
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.progress import KernelProgress, TuneObserver, TuneProgress
from adrenoc.lab.tune.standing import TaskStanding
from adrenoc.lab.tune.tasks import Task, TunePlan
from adrenoc.lab.tune.tuner import TuneOptions
from adrenoc.lab.tune.variant import KERNEL

Analyse = Callable[[Path], Mapping[str, Any]]
"""From the file of a kernel to what the analyser printed."""


class Analyser:
    """An outside command as an `Analyse`."""

    def __init__(self, command: str, *, timeout_s: float = 60.0) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise OptionError(
                f"--analyser {command!r} is no command: {str(error).lower()}",
                hint="--analyser 'CMD --its-options'",
            ) from error
        if not self._words:
            raise OptionError("--analyser names no command", hint="--analyser 'CMD --its-options'")
        self.command = command
        self._timeout_s = timeout_s

    def __call__(self, source: Path) -> Mapping[str, Any]:
        """Ask it.

        Raises:
            ToolError: it does not start, fails, or prints something else.
        """
        command = [*self._words, str(source)]
        said = run_tool(command, deed="analyse a kernel", timeout_s=self._timeout_s)
        try:
            found = read_json(said)
            known = isinstance(found, dict) and ("time_us" in found or "error" in found)
            if known and "time_us" in found:
                found["time_us"] = float(found["time_us"])
                known = 0 < found["time_us"] <= MOST_TIME_US
        except (ValueError, TypeError):
            known = False
        if not known:
            seen = said.strip()[:200]
            raise ToolError(
                f"the analyser printed {seen!r}, expected JSON with `time_us` above 0",
                hint=f"run it by hand: {shlex.join(command)}",
            )
        answer: dict[str, Any] = found
        return answer


def rank_offline(
    plan: TunePlan,
    analyse: Analyse | None,
    *,
    writer: LogWriter,
    known: tuple[Trial, ...],
    options: TuneOptions,
    observer: TuneObserver,
) -> TuneProgress:
    """Rank the best candidates by estimate of each task, `options.trials` of them in all.

    A budget of time ends it earlier: what is analysed then is waited for, and no more begun.
    Without an analyser nothing is written: the cost model picks so at every compilation.
    """
    gpu = plan.target.measured_as
    own = tuple(t for t in known if t.gpu == gpu)
    with TemporaryFolder("tune") as scratch:
        standings = [TaskStanding(task, own, scratch) for task in plan.tasks]
        started = time.monotonic()
        resumed = sum(len(s.trials) for s in standings)
        phase = "ranked by the cost model"
        if analyse is not None:
            phase = "done"
            try:
                _analyse_all(
                    plan, analyse, standings, writer, options, observer, scratch, started, resumed
                )
            except KeyboardInterrupt:
                phase = "stopped"
    final = _progress(phase, standings, options, started, resumed)
    observer.progress(final)
    return final


def _analyse_all(
    plan: TunePlan,
    analyse: Analyse,
    standings: list[TaskStanding],
    writer: LogWriter,
    options: TuneOptions,
    observer: TuneObserver,
    scratch: Path,
    started: float,
    resumed: int,
) -> None:
    share = max(2, options.trials // max(1, len(standings)))
    begun = started if options.began_s is None else options.began_s
    deadline = begun + (options.budget_s or math.inf)
    command = getattr(analyse, "command", "analyser")
    with ThreadPoolExecutor(max_workers=2) as pool:
        for standing in standings:
            task = standing.task
            known = {actions_key(t.actions) for t in standing.trials}
            wanted = [
                number
                for number in _spread_out(task, share)
                if actions_key(actions_of(task.candidates[number])) not in known
            ]
            files = [write_source(plan, task, number, scratch) for number in wanted]
            asked = [pool.submit(analyse, file) for file in files]
            try:
                for number, answer in zip(wanted, asked, strict=True):
                    if time.monotonic() > deadline:
                        return
                    found = answer.result()
                    trial = _trial(plan, task, number, found, command, options)
                    writer.append(trial)
                    standing.add(trial)
            finally:
                for answer in asked:
                    answer.cancel()
            observer.progress(_progress("analysing", standings, options, started, resumed))


def _trial(
    plan: TunePlan,
    task: Task,
    number: int,
    found: Mapping[str, Any],
    command: str,
    options: TuneOptions,
) -> Trial:
    """Return what an analyser said, as a line of the log."""
    failed = "error" in found
    return Trial(
        kernel=task.digest,
        family=task.family,
        work=task.choice.work,
        actions=actions_of(task.candidates[number]),
        status=Status.BUILD if failed else Status.OK,
        median_us=0.0 if failed else float(found["time_us"]),
        runs=0,
        detail=str(found.get("error", ""))[:400],
        untuned=number == 0,
        target=plan.target.name,
        gpu=plan.target.measured_as,
        device=Device(name=f"analyser {Path(shlex.split(command)[0]).name}"),
        tools=options.tools,
        model=plan.model.name,
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _spread_out(task: Task, count: int) -> list[int]:
    """Return the best candidates by estimate, each route and tile once before work-groups
    repeat."""
    seen: dict[str, int] = {}
    rounds: list[tuple[int, int]] = []
    for number, tile in enumerate(task.candidates):
        actions = {k: v for k, v in actions_of(tile).items() if k != "work_group"}
        key = actions_key(actions)
        seen[key] = seen.get(key, -1) + 1
        rounds.append((seen[key], number))
    return [number for _, number in sorted(rounds)][:count]


def write_source(plan: TunePlan, task: Task, number: int, folder: Path) -> Path:
    """Write a candidate's OpenCL C and, beside it, its launch; returns the former's path."""
    call, _ = plan.call(task, task.candidates[number])
    func = call.builder.build(KERNEL)
    launch = call.builder.launch
    if launch is None:
        raise ValueError(f"{task.title} launches no threads")
    (source,) = module_sources(build_kernel(func, plan.target)).values()
    path = folder / f"{task.digest}_{number}.cl"
    path.write_text(source, encoding="utf-8")
    facts = _facts(plan, launch, func)
    path.with_suffix(".json").write_text(json.dumps(facts), encoding="utf-8")
    return path


def _facts(plan: TunePlan, launch: Launch, func: Any) -> dict[str, Any]:
    return {
        "gpu": plan.target.gpu.name,
        "kernel": f"{KERNEL}_kernel",
        "work_group": list(launch.work_group),
        "groups": list(launch.grid),
        "loops": list(_loop_extents(func.body)),
        "texel_bytes": bits_of(plan.options.storage_dtype) // 2,
    }


def _loop_extents(stmt: Any) -> Iterator[int]:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _loop_extents(part)
    elif isinstance(stmt, tirx.For):
        yield const_int(stmt.extent) or 1  # as many rows as are there: nobody knows
        yield from _loop_extents(stmt.body)
    elif isinstance(stmt, tirx.AttrStmt):
        yield from _loop_extents(stmt.body)
    elif isinstance(stmt, tirx.IfThenElse):
        yield from _loop_extents(stmt.then_case)


def _progress(
    phase: str, standings: list[TaskStanding], options: TuneOptions, started: float, resumed: int
) -> TuneProgress:
    kernels: tuple[KernelProgress, ...] = tuple(s.progress() for s in standings)
    elapsed_s = time.monotonic() - started
    done = sum(len(s.trials) for s in standings)
    known = [k for k in kernels if k.untuned_us and k.best_us]
    best_us = sum(k.calls * k.best_us for k in known)
    return TuneProgress(
        phase=phase,
        references=sum(k.untuned_us > 0 for k in kernels),
        trials=done,
        wanted=options.trials,
        failed=sum(k.failed for k in kernels),
        resumed=resumed,
        devices=0,
        trials_per_s=(done - resumed) / max(elapsed_s, 1e-9),
        elapsed_s=elapsed_s,
        left_s=0.0,
        gain=sum(k.calls * k.untuned_us for k in known) / best_us if best_us else 1.0,
        kernels=kernels,
    )
