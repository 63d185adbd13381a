"""Verify a device: run the suites, find what helps where it is wrong, and prove that it does.

It ends when, with all that has to be avoided, every case is right, or nothing helps any more.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from adrenoc.bundle.manifest import KernelInfo
from adrenoc.calibrate.device import Device
from adrenoc.device.compiled_for import adreno_number
from adrenoc.errors import TargetError
from adrenoc.prove.case import Case
from adrenoc.prove.examine import Bench, Examined, examine, right_titles, spread_sample
from adrenoc.prove.forms import FORMS, Form
from adrenoc.prove.judge import Finding
from adrenoc.prove.suite import MEMORIES, Suite, make_suite, part_of
from adrenoc.target.device_report import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedFinding,
    ReportedSuites,
    with_report,
)
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import Target

MOST_ROUNDS = 8
SAMPLE = 4
"""Cases of a suite that forms are tried on at a time."""

Say = Callable[[str, str], None]


@dataclass(kw_only=True)
class Verification:
    """What was found; `report` is what a compilation honours."""

    device: Device
    target: Target
    report: DeviceReport
    findings: tuple[Finding, ...]
    """Of the first round: the device as it is."""
    left: tuple[Finding, ...]
    """Of the last: what nothing helps."""
    once: tuple[str, ...]
    """Failures that did not come again."""


@dataclass(kw_only=True)
class _Search:
    bench: Bench
    device: Device
    base: Target
    folder: Path
    say: Say
    quirks: list[Quirk] = field(default_factory=list)
    helped: dict[str, list[Quirk]] = field(default_factory=dict)
    """Case -> the quirks that were found for it."""
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    """(suite, case) that nothing helps."""

    def target(self, *more: Quirk) -> Target:
        """The target without what was found so far, and without `more`."""
        quirks = named((*self.quirks, *more), self.device)
        return with_report(self.base, _report(self.device, quirks), Path("device.json"))


def verify_device(
    bench: Bench,
    device: Device,
    target: Target,
    suites: tuple[Suite, ...],
    folder: Path,
    *,
    say: Say = lambda what, told: None,
) -> Verification:
    """Run suites on a device; `folder` is for files.

    Raises:
        AdrenocError: a suite cannot be compiled, or the device went away for good.
    """
    search = _Search(bench=bench, device=device, base=target, folder=folder, say=say)
    first: dict[str, Examined] = {}
    left: list[Finding] = []
    for turn in range(MOST_ROUNDS):
        now = _round(search, suites, of_first=turn == 0)
        first = first or now
        left = [finding for seen in now.values() for finding in seen.findings]
        open_ = {
            suite: [
                f for f in now[suite.name].findings if (suite.name, f.title) not in search.hopeless
            ]
            for suite in suites
            if suite.name in now
        }
        todo = next(((s, f) for s, f in open_.items() if f), None)
        if todo is None:
            break
        _find_help(search, *todo, made=now[todo[0].name])
    findings = tuple(finding for seen in first.values() for finding in seen.findings)
    once = tuple(seen.once for seen in first.values() if seen.once)
    report = replace(
        _report(device, named(search.quirks, device)),
        suites=ReportedSuites(
            names=tuple(first),
            cases=sum(len(suite.cases) for suite in suites),
            kernels=sum(seen.kernels for seen in first.values()),
            launches=sum(seen.launches for seen in first.values()),
        ),
        is_right=not left and not any(seen.unseen for seen in now.values()),
        findings=tuple(_reported(finding, search) for finding in findings),
    )
    return Verification(
        device=device, target=target, report=report, findings=findings, left=tuple(left), once=once
    )


def _round(search: _Search, suites: tuple[Suite, ...], *, of_first: bool) -> dict[str, Examined]:
    """Run each suite as it is compiled now; one that has become another is left out."""
    target, seen, found = search.target(), set(), {}
    for suite in suites:
        made = make_suite(suite, target, search.folder)
        key = repr(replace(made.options, preset=""))
        if key in seen:
            continue
        seen.add(key)
        found[suite.name] = examine(search.bench, suite, target, search.folder)
        count = len(found[suite.name].findings)
        told = f"{len(suite.cases)} cases, {found[suite.name].kernels} kernels: "
        told += "all right" if not count else f"{count} wrong"
        search.say(suite.name if of_first else f"{suite.name}, with what helps", told)
    return found


def _find_help(search: _Search, suite: Suite, findings: list[Finding], *, made: Examined) -> None:
    """Try forms on some of the cases that go wrong, and keep what helps."""
    open_ = set(spread_sample(findings, SAMPLE))
    cases = {case.title: case for case in suite.cases}
    for form in FORMS:
        asked = {t for t in open_ if form.applies(cases[t], suite)}
        for quirk_ in _quirks_of(form, [cases[t] for t in sorted(asked)], made):
            if not asked or quirk_ in search.quirks:
                continue
            try:
                target = search.target(quirk_)
                right = right_titles(search.bench, part_of(suite, asked), target, search.folder)
            except TargetError:  # a quirk that no target can hold
                continue
            if not right:
                continue
            search.say(f"{quirk_.text}", f"helps {', '.join(sorted(right))}")
            search.quirks.append(quirk_)
            for title in right:
                search.helped.setdefault(title, []).append(quirk_)
            open_ -= right
            asked -= right
        if not open_:
            return
    for title in open_:
        search.say(title, "nothing helps")
        # Buffers were among what was tried.
        search.hopeless |= {(replace(suite, memory=memory).name, title) for memory in MEMORIES}


def _quirks_of(form: Form, cases: list[Case], made: Examined) -> list[Quirk]:
    """The form's quirk of each case, each once."""
    found: dict[Quirk, None] = {}
    for case in cases:
        found.setdefault(form.of(case, _kernels_of(case, made)))
    return [
        quirk
        for quirk in found
        if quirk
        != replace(
            quirk,
            avoid=(),
            banned_work_groups=(),
            work_group_items_below=None,
            image_extent_below=None,
        )
    ]


def _kernels_of(case: Case, examined: Examined) -> list[KernelInfo]:
    """The kernels that compute a case, by the names of their tensors."""
    made = examined.made
    if made is None:
        return []
    prefix = next(name for name, title in made.of_case.items() if title == case.title)
    prefix = prefix.rpartition("_")[0]
    names = {launch.kernel for launch in made.bundle.launches() if launch.node.startswith(prefix)}
    return [kernel for kernel in made.bundle.manifest.kernels if kernel.name in names]


def named(quirks: list[Quirk] | tuple[Quirk, ...], device: Device) -> tuple[Quirk, ...]:
    """Quirks with names and their source."""
    source = f"adrenoc verify-device on {device.name}, driver {device.driver}"
    return tuple(
        replace(quirk, name=f"verified-{number}", source=source)
        for number, quirk in enumerate(quirks, 1)
    )


def _report(device: Device, quirks: tuple[Quirk, ...]) -> DeviceReport:
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


def _reported(finding: Finding, search: _Search) -> ReportedFinding:
    helps = search.helped.get(finding.title, [])
    return ReportedFinding(
        case=finding.title,
        suite=f"{finding.precision}, {finding.memory}",
        text=str(finding),
        helps=tuple(quirk.text for quirk in helps),
    )
