"""Verify a device: run the suites, find what helps where it is wrong, and prove that it does.

It ends when, with all that has to be avoided, every case is right, or nothing helps any more. Runs
are kept, so that a verification which was killed goes on: with the same runs what follows is the
same.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import AdrenocError, DeviceError, RemoteError, TargetError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import sha256_bytes
from adrenoc.base.files.resume import Resume
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.manifest import KernelInfo
from adrenoc.device.fit import adreno_number
from adrenoc.device.place import choose_device
from adrenoc.device.remote import RemoteAddress, RemoteDevice, describe, run_remote
from adrenoc.device.result import Progress
from adrenoc.lab.calibrate.measure import DeviceFacts
from adrenoc.lab.calibrate.session import DeviceRequest, listed_for
from adrenoc.lab.prove.cases import Case
from adrenoc.lab.prove.examine import (
    ExaminedSuite,
    Finding,
    GoneError,
    SuiteBench,
    SuiteRuns,
    examine,
    right_titles,
    run_reversed,
    spread_sample,
)
from adrenoc.lab.prove.suite import (
    CASES,
    FORMS,
    LESS_MEMORY,
    MEMORIES,
    PRECISIONS,
    BuiltSuite,
    QuirkForm,
    Suite,
    all_suites,
    make_suite,
    part_of,
    that_compiles,
    told_limits,
)
from adrenoc.lab.tune.session import START_S
from adrenoc.lab.tune.tuner import local_server
from adrenoc.target.device_set import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedFinding,
    ReportedSuites,
    apply_report,
)
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import Target, host_twin

RESOURCES = "CL_OUT_OF_RESOURCES"
SAMPLE = 4
"""The cases of a suite that forms are tried on at a time."""

Say = Callable[[str, str], None]


@dataclass(kw_only=True)
class QuirkSearch:
    """What was found so far.  `end` is when to stop, by `time.monotonic`."""

    bench: SuiteBench
    device: DeviceFacts
    base: Target
    folder: Path
    say: Say
    end: float
    quirks: list[Quirk] = field(default_factory=list)
    helped: dict[str, list[Quirk]] = field(default_factory=dict)
    """Case -> the quirks that were found for it."""
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    """(suite, case) that nothing helps."""

    @property
    def is_over(self) -> bool:
        """Return whether the time is spent."""
        return time.monotonic() > self.end

    def target(self, *more: Quirk) -> Target:
        """Return the target without what was found so far, and without `more`."""
        report = empty_report(self.device, name_quirks((*self.quirks, *more), self.device))
        return apply_report(self.base, report, Path("device.json"))

    def find_help(self, suite: Suite, findings: Sequence[Finding], examined: ExaminedSuite) -> None:
        """Try forms on some of the cases that go wrong, and keep what helps."""
        sample, known = set(spread_sample(findings, SAMPLE)), len(self.quirks)
        # What is right by itself goes wrong in company: then all others have to be there.  What is
        # right there, too, when it runs again, says nothing of any form.
        shaky = self._right(part_of(suite, sample))
        passing = shaky & self._right(suite) if shaky else set()
        for titles, tried in ((sample - shaky, part_of), (shaky - passing, _whole)):
            short = all(RESOURCES in f.text for f in findings if f.title in titles)
            forms = (*LESS_MEMORY, *FORMS) if short else FORMS
            left = self._try_forms(suite, titles, tried, examined, forms)
            left |= passing
            if len(self.quirks) > known:
                continue  # with what was found others may be helped, too
            for title in sorted(left):
                told = "the time is spent" if self.is_over else "nothing helps"
                self.say(title, told)
                # Buffers were among what was tried.
                self.hopeless |= {(replace(suite, memory=m).name, title) for m in MEMORIES}

    def _try_forms(
        self,
        suite: Suite,
        titles: set[str],
        tried: Callable[[Suite, set[str]], Suite],
        examined: ExaminedSuite,
        forms: Sequence[QuirkForm],
    ) -> set[str]:
        """Keep what helps; the cases that nothing did."""
        left, cases = set(titles), {case.title: case for case in suite.cases}
        for form in forms:
            asked = {t for t in left if form.applies(cases[t], suite)}
            if tried is _whole and not form.is_broad:
                continue
            for quirk in _quirks_of(form, [cases[t] for t in sorted(asked)], examined):
                if not asked or quirk in self.quirks or self.is_over:
                    continue
                helped = asked & self._right(tried(suite, asked), quirk)
                if not helped:
                    continue
                self.say(quirk.text, f"helps {', '.join(sorted(helped))}")
                self.quirks.append(quirk)
                for title in helped:
                    self.helped.setdefault(title, []).append(quirk)
                left -= helped
                asked -= helped
        return left

    def _right(self, suite: Suite, *more: Quirk) -> set[str]:
        """Return the cases that are right with what was found so far, and without `more`."""
        try:
            target = self.target(*more)
        except TargetError:  # a quirk that no target can hold
            return set()
        return right_titles(self.bench, suite, target, self.folder)


def _whole(suite: Suite, _titles: set[str]) -> Suite:
    return suite


def _quirks_of(form: QuirkForm, cases: list[Case], examined: ExaminedSuite) -> list[Quirk]:
    """Return the form's quirk of each case, each once."""
    made = (form.of(case, _kernels_of(case, examined)) for case in cases)
    return list(dict.fromkeys(quirk for quirk in made if quirk is not None))


def _kernels_of(case: Case, examined: ExaminedSuite) -> list[KernelInfo]:
    """Return the kernels that compute a case, by the names of their tensors."""
    made = examined.made
    prefix = next(name for name, title in made.of_case.items() if title == case.title)
    prefix = prefix.rpartition("_")[0]
    names = {launch.kernel for launch in made.bundle.launches() if launch.node.startswith(prefix)}
    return [kernel for kernel in made.bundle.kernels() if kernel.name in names]


def name_quirks(quirks: list[Quirk] | tuple[Quirk, ...], device: DeviceFacts) -> tuple[Quirk, ...]:
    """Return quirks with names and their source."""
    source = f"adrenoc device verify on {device.with_driver}"
    return tuple(
        replace(quirk, name=f"verified-{number}", source=source)
        for number, quirk in enumerate(quirks, 1)
    )


def empty_report(device: DeviceFacts, quirks: tuple[Quirk, ...]) -> DeviceReport:
    """Return a report of nothing but quirks."""
    return DeviceReport(
        format=FORMAT,
        device=ReportedDevice(
            name=device.name, driver=device.driver, gpu=adreno_number(device.facts)
        ),
        date=str(datetime.datetime.now(datetime.timezone.utc).date()),
        suites=ReportedSuites(names=(), cases=0, kernels=0, launches=0),
        is_right=False,
        quirks=quirks,
    )


MOST_ROUNDS = 8


@dataclass(kw_only=True)
class Verification:
    """What was found; `report` is what a compilation honours."""

    device: DeviceFacts
    target: Target
    report: DeviceReport
    findings: tuple[Finding, ...]
    """What the first round found: the device as it is."""
    left: tuple[Finding, ...]
    """What the last round found: that which nothing helps."""
    is_cut: bool = False
    """Whether the time was spent before all was tried."""


def verify_device(
    bench: SuiteBench,
    device: DeviceFacts,
    target: Target,
    suites: tuple[Suite, ...],
    folder: Path,
    *,
    budget_s: float,
    say: Say = lambda what, told: None,
) -> Verification:
    """Run suites on a device; `folder` is for files.

    All is run as it is, however long that takes; then, `budget_s` later, nothing more is tried
    against what is wrong. What was found is proven all the same. Raises AdrenocError where a suite
    cannot be compiled, or the device went away for good.
    """
    told = told_limits(device, target)
    search = QuirkSearch(
        bench=bench, device=device, base=target, folder=folder, say=say, end=math.inf, quirks=told
    )
    first: dict[str, ExaminedSuite] = {}
    now: dict[str, ExaminedSuite] = {}
    for number in range(MOST_ROUNDS):
        now = _round(search, suites, of_first=number == 0)
        if number == 0:
            first, search.end = now, time.monotonic() + budget_s
        todo = next(
            (
                (now[suite.name].made.suite, open_)
                for suite in suites
                if suite.name in now and (open_ := _open(search, suite, now[suite.name]))
            ),
            None,
        )
        if todo is None or search.is_over:
            break
        search.find_help(*todo, now[todo[0].name])
    return _verification(search, suites, first, now)


def _open(search: QuirkSearch, suite: Suite, examined: ExaminedSuite) -> list[Finding]:
    """Return what is wrong and may be helped yet."""
    return [f for f in examined.findings if (suite.name, f.title) not in search.hopeless]


def _round(
    search: QuirkSearch, suites: tuple[Suite, ...], *, of_first: bool
) -> dict[str, ExaminedSuite]:
    """Run each suite as it is compiled now; one that has become another is left out. The first
    suite runs in the other order too."""
    target, seen, found = search.target(), set(), {}
    for suite in (that_compiles(suite, target) for suite in suites):
        made = make_suite(suite, target, search.folder)
        key = repr(replace(made.options, preset=""))
        if key in seen:
            continue
        seen.add(key)
        examined = found[suite.name] = examine(search.bench, suite, target, search.folder)
        if suite.name == suites[0].name:
            examined.findings += run_reversed(search.bench, examined, target, search.folder)
        count = len(examined.findings)
        told = f"{len(suite.cases)} cases, {examined.kernels} kernels: "
        told += "all right" if not count else f"{count} wrong"
        if examined.once:
            told += f"; failed as a whole: {examined.once}"
        search.say(suite.name if of_first else f"{suite.name}, with what helps", told)
    return found


def _verification(
    search: QuirkSearch,
    suites: tuple[Suite, ...],
    first: Mapping[str, ExaminedSuite],
    last: Mapping[str, ExaminedSuite],
) -> Verification:
    findings = tuple(finding for seen in first.values() for finding in seen.findings)
    left = tuple(finding for seen in last.values() for finding in seen.findings)
    unseen = any(seen.unseen for seen in last.values())
    report = replace(
        empty_report(search.device, name_quirks(search.quirks, search.device)),
        suites=ReportedSuites(
            names=tuple(first),
            cases=sum(len(suite.cases) for suite in suites),
            kernels=sum(seen.kernels for seen in first.values()),
            launches=sum(seen.launches for seen in first.values()),
        ),
        is_right=not left and not unseen,
        findings=tuple(_report_finding(finding, search) for finding in findings),
        failed_once=tuple(seen.once for seen in first.values() if seen.once),
    )
    return Verification(
        device=search.device,
        target=search.base,
        report=report,
        findings=findings,
        left=left,
        is_cut=bool(left) and search.is_over,
    )


def _report_finding(finding: Finding, search: QuirkSearch) -> ReportedFinding:
    helps = search.helped.get(finding.title, [])
    return ReportedFinding(
        case=finding.title,
        suite=finding.suite.name,
        text=str(finding),
        helps=tuple(quirk.text for quirk in helps),
    )


REPEATS = 6
"""Warm runs of a suite: the driver's recordings are tried from the second on."""
PAUSES_S = (0.5, 2.0, 5.0, 10.0)
"""Seconds to wait before a server that ended a session, or a device after a reset, is asked."""


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(DeviceRequest):
    """What to verify where; `precisions` are some of `PRECISIONS`, all where there is none."""

    precisions: tuple[str, ...] = ()
    memories: tuple[str, ...] = MEMORIES


def run_verification(request: VerifyRequest, *, say: Say = lambda what, told: None) -> Verification:
    """Verify a device. Raises RemoteError where the device cannot be reached, DeviceError where
    there is none, DependencyError where what computes the references is missing."""
    with ExitStack() as stack:
        address = request.place or stack.enter_context(local_server())
        folder = stack.enter_context(TemporaryFolder("verify"))
        address = replace(address, timeout_s=request.limit_s)
        # Its first session may be one that loads libraries and looks for drivers.
        there = describe(replace(address, timeout_s=max(START_S, request.limit_s)))
        _, facts = choose_device(list(there.devices), request.cl_device)
        device = DeviceFacts.from_facts(facts)
        target = _target(request.listed or listed_for(device), there, device)
        bench: SuiteBench = RemoteBench(address, request.cl_device)
        if request.resume is not None:
            bench = KeptBench(bench, request.resume, device)
        suites = pick_suites(request, target)
        try:
            return verify_device(
                bench, device, target, suites, folder, budget_s=request.budget_s, say=say
            )
        except GoneError as gone:
            raise RemoteError(
                f"the device did not come back after it failed: {gone}",
                hint="ADRENOC_TIMEOUT=600 adrenoc device verify, where it is slow; else look at it "
                "and at the server's output, and begin again with --only",
            ) from gone


def pick_cases(only: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the cases whose titles hold one of these parts."""
    return tuple(c for c in CASES if not only or any(part in c.title for part in only))


def pick_suites(request: VerifyRequest, target: Target) -> tuple[Suite, ...]:
    """Return the suites that were asked for."""
    suites = all_suites(pick_cases(request.only), half_type=target.limits.fp16)
    precisions = request.precisions or PRECISIONS
    return tuple(s for s in suites if s.precision in precisions and s.memory in request.memories)


def _target(listed: Target, there: RemoteDevice, device: DeviceFacts) -> Target:
    """Return the listed device, with a CPU part for its machine, with halves or not."""
    target = host_twin(listed) if there.machine.startswith(platform.machine()) else listed
    if not device.lacks("cl_khr_fp16"):
        return target
    limits = replace(target.limits, fp16=False)
    return replace(target, gpu=replace(target.gpu, limits=limits))


def _move(values: np.ndarray) -> np.ndarray:
    """Other numbers, of which every operator makes others; none of them leaves its range."""
    return 0.5 * values + np.float32(0.25)


class RemoteBench:
    """Runs suites at a server, each in a session of its own: what hangs or crashes ends that."""

    def __init__(self, address: RemoteAddress, cl_device: str) -> None:
        self._address, self._cl_device = address, cl_device

    def run(self, made: BuiltSuite) -> SuiteRuns:
        """Run a suite several times at the server, in a session of its own."""
        progress = Progress()
        try:
            result = run_remote(
                made.bundle,
                self._address,
                inputs=made.inputs,
                others={name: _move(values) for name, values in made.inputs.items()},
                device=self._cl_device,
                repeat=REPEATS,
                progress=progress,
            )
        except RemoteError as error:
            # The next suite is not to be blamed for what this one left behind.
            self._wait(error)
            raise
        return SuiteRuns(
            first=progress.outputs,
            last=result.outputs,
            among=tuple(own for _, own in result.among_others),
            others=tuple(other for other, _ in result.among_others),
        )

    def _wait(self, error: RemoteError) -> None:
        """Wait until the server answers again; a session that hangs is ended there. Raises
        GoneError where it does not."""
        for pause_s in PAUSES_S:
            time.sleep(pause_s)
            with suppress(AdrenocError):
                describe(self._address)
                return
        raise GoneError(error.message) from error


class KeptBench:
    """A bench that runs what the file of an interrupted verification of the device lacks."""

    def __init__(self, bench: SuiteBench, resume: Resume, device: DeviceFacts) -> None:
        self._bench, self._resume, self._device = bench, resume, device.identity

    def run(self, made: BuiltSuite) -> SuiteRuns:
        """Return what came of a suite, now or before; see `SuiteBench`."""
        what = f"{made.bundle.path.name} on {self._device}"
        came = self._resume.take(what)
        if came is not None:
            return _read_came(came)
        try:
            runs = self._bench.run(made)
        except (DeviceError, RemoteError) as error:
            kind = "remote" if isinstance(error, RemoteError) else "device"
            told = {"error": kind, "message": error.message, "hint": error.hint}
            self._resume.put(what, json.dumps(told))
            raise
        self._resume.put(what, json.dumps({"runs": _write_runs(runs)}))
        return runs


def _read_came(came: str) -> SuiteRuns:
    told = read_json(came)
    if "error" in told:
        kind = RemoteError if told["error"] == "remote" else DeviceError
        raise kind(told["message"], hint=told["hint"])
    return _read_runs(told["runs"])


def _write_runs(runs: SuiteRuns) -> dict[str, Any]:
    """Write all outputs, each array once: most runs give the bits of another."""
    arrays: dict[str, np.ndarray] = {}

    def keep(outputs: Mapping[str, np.ndarray]) -> dict[str, str]:
        keys = {}
        for name, values in outputs.items():
            told = repr((values.shape, str(values.dtype))).encode() + values.tobytes()
            keys[name] = sha256_bytes(told)
            arrays[keys[name]] = values
        return keys

    kept = [keep(outputs) for outputs in (runs.first, runs.last, *runs.among, *runs.others)]
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    content = base64.b64encode(stream.getvalue()).decode()
    return {"outputs": kept, "among": len(runs.among), "arrays": content}


def _read_runs(told: Mapping[str, Any]) -> SuiteRuns:
    with np.load(io.BytesIO(base64.b64decode(told["arrays"])), allow_pickle=False) as held:
        arrays = dict(held)
    first, last, *rest = (
        {name: arrays[key] for name, key in keys.items()} for keys in told["outputs"]
    )
    among = told["among"]
    return SuiteRuns(first=first, last=last, among=tuple(rest[:among]), others=tuple(rest[among:]))
