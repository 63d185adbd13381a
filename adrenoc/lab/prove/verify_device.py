"""Verify a device: run the suites, find what helps where it is wrong, and prove that it does.

It ends when, with all that has to be avoided, every case is right, or nothing helps any more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.prove.examine import ExaminedSuite, Finding, SuiteBench, examine, run_reversed
from adrenoc.lab.prove.search import (
    QuirkSearch,
    Say,
    empty_report,
    name_quirks,
    that_compiles,
    told_limits,
)
from adrenoc.lab.prove.suite import Suite, make_suite
from adrenoc.target.device_report import DeviceReport, ReportedFinding, ReportedSuites
from adrenoc.target.target import Target

MOST_ROUNDS = 8


@dataclass(kw_only=True)
class Verification:
    """What was found; `report` is what a compilation honours."""

    device: Device
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
    device: Device,
    target: Target,
    suites: tuple[Suite, ...],
    folder: Path,
    *,
    budget_s: float,
    say: Say = lambda what, told: None,
) -> Verification:
    """Run suites on a device; `folder` is for files.

    All is run as it is, however long that takes; then, `budget_s` later, nothing more is tried
    against what is wrong.  What was found is proven all the same.

    Raises:
        AdrenocError: a suite cannot be compiled, or the device went away for good.
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
    """Run each suite as it is compiled now; one that has become another is left out.

    The first suite runs in the other order too.
    """
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
        suite=f"{finding.precision}, {finding.memory}",
        text=str(finding),
        helps=tuple(quirk.text for quirk in helps),
    )
