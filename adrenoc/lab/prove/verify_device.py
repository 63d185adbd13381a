"""Verify a device: run the suites, find what helps where it is wrong, and prove that it does.

It ends when, with all that has to be avoided, every case is right, or nothing helps any more.
"""

import datetime
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from adrenoc.base.errors import TargetError
from adrenoc.bundle.manifest import KernelInfo
from adrenoc.device.fit import adreno_number
from adrenoc.lab.calibrate.measure import DeviceFacts
from adrenoc.lab.prove.cases import Case
from adrenoc.lab.prove.examine import (
    ExaminedSuite,
    Finding,
    SuiteBench,
    examine,
    right_titles,
    run_reversed,
    spread_sample,
)
from adrenoc.lab.prove.suite import (
    FORMS,
    LESS_MEMORY,
    MEMORIES,
    QuirkForm,
    Suite,
    make_suite,
    part_of,
    that_compiles,
    told_limits,
)
from adrenoc.target.device_report import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedFinding,
    ReportedSuites,
    apply_report,
)
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import Target

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
