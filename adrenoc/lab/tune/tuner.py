"""Tune a model into a log: the tuner proposes candidates, has them measured, writes the log, and
stops in time. Without a device the cost model ranks kernels, beside what a log holds of them.

Every result is in the log before anything is built on it. Begun again with the same log, it starts
where it ended. Contests of the best come at the end, in the last share of the budget.
"""

from __future__ import annotations

import math
import secrets
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from adrenoc import native
from adrenoc.base.errors import AdrenocError, OptionError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.reporter import Reporter, SilentReporter
from adrenoc.compile.cache import tool_versions
from adrenoc.device.peers import HostPort
from adrenoc.device.remote import RemoteAddress
from adrenoc.device.serve import RpcServer, ServeOptions
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.tuning_log import LogWriter, Status, Trial, TunedDevice, choose_trials, read_log
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.farm import Farm, MeasureOutcome
from adrenoc.lab.tune.search import LearnedCostModel, TaskStanding, TuneObserver, TuneProgress
from adrenoc.lab.tune.session import DevicePlace, MeasureJob
from adrenoc.lab.tune.tasks import (
    BuildVariant,
    TunePlan,
    TuneTask,
    VariantBuilder,
    plan_model,
    seeds,
)
from adrenoc.target.target import Target

SLOW = 2.0
"""The factor over the best known time from which on a candidate is measured only once."""
TELL_S = 0.2
CONTENDERS = 2
"""Schedules of a kernel that are measured once more, in turn with the untuned one."""
CONTEST_SHARE = 0.15
"""The share of the budget that is left to these contests."""
BATCH = 8
"""The candidates that a search proposes at a time."""
TOLERANCE = {"float16": 2e-2, "mixed": 5e-3, "float32": 1e-4}
"""The largest difference to the reference over its largest value: the order of sums may differ."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """`trials`: candidates to have measured, those in the log included; `budget_s`: 0 is none. The
    budget is counted from `began_s` on (of `time.monotonic()`), from now on where that is None."""

    trials: int
    budget_s: float = 0.0
    began_s: float | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Tag:
    kind: str
    standing: TaskStanding
    numbers: tuple[int, ...]


class Tuner:
    """One tuning of a plan; `known` are the trials of the log, of any GPU and model."""

    def __init__(
        self,
        plan: TunePlan,
        *,
        farm: Farm,
        build: BuildVariant,
        writer: LogWriter,
        known: tuple[Trial, ...],
        options: TuneOptions,
        observer: TuneObserver,
        scratch: Path,
    ) -> None:
        self._plan, self._farm, self._build = plan, farm, build
        self._writer, self._options, self._observer = writer, options, observer
        self._known = known
        gpu = plan.target.measured_as
        own = tuple(t for t in known if t.gpu == gpu)
        self._standings = [TaskStanding(task, own, scratch) for task in plan.tasks]
        self._banned = {
            tuple(t.actions["work_group"])
            for t in own
            if t.status is Status.UNSTABLE and t.actions.get("work_group")
        }
        self._resumed = self._measured_count
        self._model = LearnedCostModel(plan.tasks)
        self._started = time.monotonic()
        budget = options.budget_s or math.inf
        self._deadline = (self._started if options.began_s is None else options.began_s) + budget
        self._reserve_s = CONTEST_SHARE * options.budget_s
        self._answered = False
        self._told = 0.0
        self._in_flight = 0
        self._trials_in_flight = 0
        self._drivers = {(t.device.name, t.device.driver) for t in own if t.runs}

    def run(self) -> TuneProgress:
        """Tune until the trials or the time are spent, nothing is left to try, or Ctrl-C. What is
        under way when the time is up is left, and is no trial. Raises RemoteError where no device
        was there for long, OutputError where the log cannot be written."""
        phase = "done"
        try:
            self._work(self._next_search_job, "searching")
            self._work(self._next_contest, "confirming")
            self._tell_if_in_vain()
        except KeyboardInterrupt:
            phase = "stopped"
        final = self._progress(phase)
        self._observer.progress(final)
        return final

    def _work(self, next_job: Any, phase: str) -> None:
        """Keep the lanes busy until there is no next job and none is out, or the time is up."""
        while time.monotonic() < self._deadline:
            job = next_job() if self._in_flight < self._farm.capacity else None
            if job is not None:
                self._in_flight += 1
                if job.tag.kind == "trial":
                    self._trials_in_flight += 1
                    job.tag.standing.trials_out += 1
                self._farm.submit(job)
            if not self._in_flight:
                return
            # What came back is looked at before another candidate is chosen.
            outcome = self._farm.next_outcome(0.5 if job is None else 0.0)
            if outcome is not None:
                self._in_flight -= 1
                self._answered = True
                if outcome.job.tag.kind == "trial":
                    self._trials_in_flight -= 1
                    outcome.job.tag.standing.trials_out -= 1
                self._take(outcome)
            if time.monotonic() - self._told > TELL_S:
                self._told = time.monotonic()
                self._observer.progress(self._progress(phase))

    def _tell_if_in_vain(self) -> None:
        """Say so where the time was up before a device answered. Raises RemoteError because none
        was there."""
        if self._answered or time.monotonic() < self._deadline:
            return
        self._farm.check_presence()
        self._observer.event(
            f"warning: the budget of {self._options.budget_s:.0f} s was spent before a device "
            "answered; the same command with a longer one goes on"
        )

    @property
    def _measured_count(self) -> int:
        return sum(len(standing.measured_trials) for standing in self._standings)

    @property
    def _spent(self) -> bool:
        # What is left goes to the contests.
        over = time.monotonic() > self._deadline - self._reserve_s
        return over or self._measured_count + self._trials_in_flight >= self._options.trials

    # Jobs

    def _next_search_job(self) -> MeasureJob | None:
        """Return the reference of a task that lacks it, else the best task's next one."""
        if self._spent:
            return None
        unmeasured = [s for s in self._standings if s.base is not None and not s.awaits_reference]
        unmeasured = [s for s in unmeasured if not math.isfinite(s.untuned_us)]
        if unmeasured:
            return self._reference_job(unmeasured[0])
        for standing in sorted(self._standings, key=lambda s: -s.interest()):
            if standing.is_finished or standing.awaits_reference:
                continue
            if not standing.has_reference:
                return self._reference_job(standing)
            job = self._trial_job(standing)
            if job is not None:
                return job
        return None

    def _reference_job(self, standing: TaskStanding) -> MeasureJob | None:
        while standing.base is not None:
            variant = self._try_build(standing, standing.base, untuned=True)
            if variant is None:
                continue  # the log has it, and the next base is chosen
            standing.awaits_reference = True
            tag = _Tag(kind="reference", standing=standing, numbers=(standing.base,))
            reference = standing.reference
            return MeasureJob(
                tag=tag, variants=(variant,), reference=reference, write_reference=True
            )
        return None

    def _trial_job(self, standing: TaskStanding) -> MeasureJob | None:
        if standing.search is None:
            start = seeds(standing.task, self._known)
            standing.start_search(self._model, start)
        while not standing.is_finished:
            if not standing.queue:
                standing.propose(BATCH)
            while standing.queue and not self._spent:
                number = standing.queue.pop(0)
                group = getattr(standing.task.candidates[number], "work_group", None)
                if group in self._banned or number == standing.base:
                    continue
                variant = self._try_build(standing, number)
                if variant is not None:
                    return self._make_job(standing, "trial", (number,), (variant,))
            if self._spent:
                return None
        return None

    def _next_contest(self) -> MeasureJob | None:
        """Return the best schedules of a task in turn with the untuned one."""
        # The time may be up before all of them were.
        for standing in sorted(self._standings, key=lambda s: -s.confirmable_us):
            if standing.in_flight or standing.base is None:
                continue
            best = standing.contenders(CONTENDERS)
            if not best:
                continue
            if not standing.has_reference:
                if standing.awaits_reference:
                    continue
                return self._reference_job(standing)
            numbers = (standing.base, *reversed(best))
            variants = [self._try_build(standing, number) for number in numbers]
            if all(variants):
                standing.in_flight += 1
                return self._make_job(standing, "contest", numbers, tuple(filter(None, variants)))
        return None

    def _make_job(
        self, standing: TaskStanding, kind: str, numbers: Any, variants: Any
    ) -> MeasureJob:
        fastest_us = standing.fastest_us
        return MeasureJob(
            tag=_Tag(kind=kind, standing=standing, numbers=numbers),
            variants=variants,
            reference=standing.reference,
            tolerance=tolerance_of(self._plan.options),
            stop_us=SLOW * fastest_us if math.isfinite(fastest_us) else 0.0,
        )

    def _try_build(self, standing: TaskStanding, number: int, *, untuned: bool = False) -> Any:
        """Return the candidate, None if it cannot be built, which is a trial as any other."""
        try:
            return self._build(standing.task, number)
        except AdrenocError as error:
            self._log(
                standing,
                number,
                status=Status.BUILD,
                device=TunedDevice(name="compiler"),
                detail=error.message[:400],
                untuned=untuned,
            )
            return None

    # Outcomes

    def _take(self, outcome: MeasureOutcome) -> None:
        seen = (outcome.device.name, outcome.device.driver)
        if self._drivers and seen not in self._drivers:
            known = ", ".join(sorted(f"{name} {driver}" for name, driver in self._drivers))
            self._observer.event(
                f"warning: {' '.join(seen)} measures now; the log has times of {known}"
            )
        self._drivers.add(seen)
        tag: _Tag = outcome.job.tag
        standing, failed = tag.standing, outcome.status is not Status.OK
        if tag.kind == "reference":
            standing.awaits_reference = False
            standing.has_reference = not failed
            if not failed and math.isfinite(standing.untuned_us):
                return  # the log has its time
        if failed:
            if tag.kind == "contest":
                standing.in_flight = 1  # not again in this run
            self._log(
                standing,
                tag.numbers[outcome.result.index],
                status=outcome.status,
                device=outcome.device,
                detail=outcome.result.detail,
                untuned=tag.kind == "reference",
            )
            return
        if tag.kind == "contest":
            standing.in_flight = 0
        found = zip(tag.numbers, outcome.result.times_us, outcome.result.errors, strict=True)
        for number, times_us, error in found:
            self._log(
                standing,
                number,
                status=Status.OK,
                device=outcome.device,
                median_us=statistics.median(times_us),
                spread_us=_spread(times_us),
                runs=len(times_us),
                error=error,
                untuned=number == standing.base,
                confirmed=tag.kind == "contest",
            )

    def _log(self, standing: TaskStanding, number: int, **facts: Any) -> None:
        task: TuneTask = standing.task
        trial = Trial(
            kernel=task.digest,
            family=task.family,
            work=task.choice.work,
            actions=actions_of(task.candidates[number]),
            target=self._plan.target.name,
            gpu=self._plan.target.measured_as,
            tools=self._options.tools,
            model=self._plan.model.name,
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **facts,
        )
        self._writer.append(trial)
        if trial.status is not Status.OK:
            self._observer.event(
                f"{task.title}: {trial.status.value}, {trial.detail} ({dict(trial.actions)})"
            )
        if trial.status is Status.UNSTABLE and trial.actions.get("work_group"):
            self._banned.add(tuple(trial.actions["work_group"]))
        standing.add(trial)

    def _progress(self, phase: str) -> TuneProgress:
        return TuneProgress.from_kernels(
            tuple(s.progress() for s in self._standings),
            phase=phase,
            wanted=self._options.trials,
            resumed=self._resumed,
            devices=self._farm.lanes,
            elapsed_s=time.monotonic() - self._started,
        )


def tolerance_of(options: CompileOptions) -> float:
    """Return how far a right output may be from the reference, relative to its largest value."""
    mixed = options.compute_dtype == "float32" and options.storage_dtype == "float16"
    return TOLERANCE["mixed" if mixed else options.compute_dtype]


def _spread(times_us: tuple[float, ...]) -> float:
    if len(times_us) < 2:
        return 0.0
    low, _, high = statistics.quantiles(times_us, n=4)
    return high - low


_MOST_END_S = 15.0
"""What a session takes at most that is stopped because its peer has left."""


@contextmanager
def local_server() -> Iterator[RemoteAddress]:
    """Serve on loopback while the block runs; each session is a process of its own."""
    key = secrets.token_hex(16)
    native.build()  # a session would be late that has to compile it first
    server = RpcServer(ServeOptions(key=key, session_s=0, quiet=True))
    server.prepare()

    def serve() -> None:
        while True:
            try:
                server.serve_one(SilentReporter())
            except OSError:  # closed
                return

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield RemoteAddress(where=HostPort(host="127.0.0.1", port=server.port), key=key)
    finally:
        server.close()
        # Until the last session has ended and its folder is removed.
        serving.join(_MOST_END_S)


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What to tune, and where. Without `places` the OpenCL device of this machine is served;
    `more_logs` give starting points. `limit_s` is for one candidate on a device."""

    model: Path
    target: Target
    options: CompileOptions
    log: Path
    trials: int
    budget_s: float = 0.0
    places: tuple[RemoteAddress, ...] = ()
    cl_device: str = ""
    limit_s: float = 20.0
    more_logs: tuple[Path, ...] = ()


def tune_model(request: TuneRequest, *, reporter: Reporter, observer: TuneObserver) -> TuneProgress:
    """Tune on devices, into the log; the budget of time is counted from now on.

    Raises OptionError where there is no device for such a target on this machine; TuningLogError
    where a log is damaged, or another process writes to it; RemoteError where no device was there
    for long; AdrenocError where the model cannot be planned.
    """
    began_s = time.monotonic()
    if not request.places and not request.target.host:
        raise OptionError(
            f"{request.target.name} is no device of this machine: where does it run?",
            hint="adrenoc tune run MODEL --on tracker:KIND@HOST:PORT, or --on HOST:PORT, "
            "or --offline",
        )
    with ExitStack() as stack:
        # Both take their time to begin, as does the plan.
        places = request.places or (stack.enter_context(local_server()),)
        farm = stack.enter_context(
            Farm(
                [
                    DevicePlace(server=one, cl_device=request.cl_device, limit_s=request.limit_s)
                    for one in places
                ],
                on_event=observer.event,
            )
        )
        plan = _plan(request, reporter)
        writer, known = _open_log(request, plan, reporter, stack)
        scratch = stack.enter_context(TemporaryFolder("tune"))
        tuner = Tuner(
            plan,
            farm=farm,
            build=VariantBuilder(plan, scratch),
            writer=writer,
            known=known,
            options=TuneOptions(
                trials=request.trials,
                budget_s=request.budget_s,
                began_s=began_s,
                tools=tool_versions(),
            ),
            observer=observer,
            scratch=scratch,
        )
        return tuner.run()


def tune_offline(
    request: TuneRequest, *, reporter: Reporter, observer: TuneObserver
) -> TuneProgress:
    """Rank by the cost model, without a device. Raises AdrenocError as `tune_model` does."""
    plan = _plan(request, reporter)
    with ExitStack() as stack:
        _, known = _open_log(request, plan, reporter, stack)
        started = time.monotonic()
        own = tuple(t for t in known if t.gpu == plan.target.measured_as)
        with TemporaryFolder("tune") as scratch:
            kernels = tuple(TaskStanding(task, own, scratch).progress() for task in plan.tasks)
        found = TuneProgress.from_kernels(
            kernels,
            phase="ranked by the cost model",
            wanted=request.trials,
            resumed=sum(k.trials for k in kernels),
            devices=0,
            elapsed_s=time.monotonic() - started,
        )
    observer.progress(found)
    return found


def _plan(request: TuneRequest, reporter: Reporter) -> TunePlan:
    plan = plan_model(
        request.model, target=request.target, options=request.options, reporter=reporter
    )
    candidates = sum(len(task.candidates) for task in plan.tasks)
    reporter.note(f"{len(plan.tasks)} kernels with {candidates} schedules")
    return plan


def _open_log(
    request: TuneRequest, plan: TunePlan, reporter: Reporter, stack: ExitStack
) -> tuple[LogWriter, tuple[Trial, ...]]:
    writer = LogWriter(request.log)
    stack.callback(writer.close)
    own = read_log(request.log)
    gpu = plan.target.measured_as
    for path, trials in ((request.log, own), *((p, read_log(p)) for p in request.more_logs)):
        _, warning = choose_trials(trials, gpu, str(path))
        if warning:
            reporter.warn(warning)
        if path != request.log:
            # Its times are not this device's: they only say where to begin.
            own += tuple(t for t in trials if t.gpu != gpu or t.key not in {o.key for o in own})
    return writer, own
