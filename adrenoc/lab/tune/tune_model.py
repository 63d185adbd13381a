"""Tune a model into a log: plan, devices, log and tuner put together.

Without a device the cost model ranks kernels, beside what a log holds of them.
"""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from adrenoc import native
from adrenoc.base.errors import OptionError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.reporter import Reporter, SilentReporter
from adrenoc.compile.cache import tool_versions
from adrenoc.device.remote import RemoteAddress
from adrenoc.device.serve import RpcServer, ServeOptions
from adrenoc.device.tracker import HostPort
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.tuning_log import LogWriter, Trial, choose_trials, read_log
from adrenoc.lab.tune.farm import Farm
from adrenoc.lab.tune.session import DevicePlace
from adrenoc.lab.tune.standing import TaskStanding, TuneObserver, TuneProgress
from adrenoc.lab.tune.tasks import TunePlan, VariantBuilder, plan_model
from adrenoc.lab.tune.tuner import TuneOptions, Tuner
from adrenoc.target.target import Target

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
    """Rank by the cost model, without a device. Raises AdrenocError as `tune_model`."""
    plan = _plan(request, reporter)
    with ExitStack() as stack:
        _, known = _open_log(request, plan, reporter, stack)
        found = rank_offline(plan, known, trials=request.trials)
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


def rank_offline(plan: TunePlan, known: tuple[Trial, ...], *, trials: int) -> TuneProgress:
    """Show each task with the best of what was measured before; `trials` are those asked for.
    Nothing is written: the cost model picks so at every compilation."""
    started = time.monotonic()
    own = tuple(t for t in known if t.gpu == plan.target.measured_as)
    with TemporaryFolder("tune") as scratch:
        kernels = tuple(TaskStanding(task, own, scratch).progress() for task in plan.tasks)
    return TuneProgress.from_kernels(
        kernels,
        phase="ranked by the cost model",
        wanted=trials,
        resumed=sum(k.trials for k in kernels),
        devices=0,
        elapsed_s=time.monotonic() - started,
    )
