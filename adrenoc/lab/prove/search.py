"""Look for what helps where a device is wrong: simpler forms, tried on some of the cases."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from adrenoc.base.errors import TargetError
from adrenoc.bundle.manifest import KernelInfo
from adrenoc.device.compiled_for import adreno_number
from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.examine import ExaminedSuite, SuiteBench, right_titles, spread_sample
from adrenoc.lab.prove.forms import FORMS, LESS_MEMORY, QuirkForm
from adrenoc.lab.prove.judge import Finding
from adrenoc.lab.prove.suite import MEMORIES, Suite, part_of
from adrenoc.target.device_report import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
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
    device: Device
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
        """Whether the time is spent."""
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


def name_quirks(quirks: list[Quirk] | tuple[Quirk, ...], device: Device) -> tuple[Quirk, ...]:
    """Quirks with names and their source."""
    source = f"adrenoc device verify on {device.with_driver}"
    return tuple(
        replace(quirk, name=f"verified-{number}", source=source)
        for number, quirk in enumerate(quirks, 1)
    )


def empty_report(device: Device, quirks: tuple[Quirk, ...]) -> DeviceReport:
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
