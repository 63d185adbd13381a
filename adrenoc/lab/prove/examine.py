"""Run a suite on a device; where that fails as a whole, find the cases that make it fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from adrenoc.base.errors import AdrenocError, DeviceError, RemoteError
from adrenoc.device.remote import LATE
from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.suite import TOLERANCES, BuiltSuite, Suite, make_suite
from adrenoc.target.target import Target

WRONG, UNSTEADY, STALE, FAILED = "wrong", "unsteady", "stale", "failed"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A case that a device does not compute as it should.

    `kind` is "wrong" (numbers), "unsteady" (not the same numbers each time), "stale" (the same
    numbers, whatever the inputs are) or "failed" (no numbers: `text` says what the driver said, or
    that there was no answer in time).
    """

    family: str
    case: str
    precision: str
    memory: str
    kind: str
    shape: tuple[int, ...] = ()
    element: tuple[int, ...] = ()
    seen: float | None = None
    expected: float | None = None
    text: str = ""

    @property
    def title(self) -> str:
        """The case that it is of."""
        return f"{self.family}: {self.case}"

    def __str__(self) -> str:
        where = f"{self.title} ({self.precision}, {self.memory})"
        if self.kind == FAILED:
            return f"{where} failed: {self.text}"
        at = ", ".join(map(str, self.element))
        shape = "x".join(map(str, self.shape))
        if self.kind == UNSTEADY:
            return f"{where} gives other numbers from run to run: element [{at}] of {shape}"
        if self.kind == STALE:
            return f"{where} gives the numbers of an earlier run, for other inputs too"
        return (
            f"{where} is wrong at element [{at}] of {shape}: seen {self.seen:.6g}, expected "
            f"{self.expected:.6g}"
        )


def judge(made: BuiltSuite, outputs: Mapping[str, np.ndarray]) -> tuple[Finding, ...]:
    """Return the cases whose outputs are off."""
    cases = {case.title: case for case in made.suite.cases}
    found = []
    for name, title in made.of_case.items():
        finding = _judge_case(made, cases[title], outputs[name], made.expected[name])
        if finding is not None:
            found.append(finding)
    return tuple(found)


def differing(
    made: BuiltSuite, first: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray]
) -> tuple[Finding, ...]:
    """Return the cases whose bits are not the same in two runs."""
    cases = {case.title: case for case in made.suite.cases}
    found = []
    for name, title in made.of_case.items():
        a, b = first[name], last[name]
        if a.tobytes() != b.tobytes():
            off = a.view(np.uint32) != b.view(np.uint32)
            found.append(_finding(made, cases[title], UNSTEADY, off, b, a))
    return tuple(found)


def stale(
    made: BuiltSuite, first: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> tuple[Finding, ...]:
    """Return the cases that give the bits of the first run for other inputs: nothing was
    computed."""
    cases = {case.title: case for case in made.suite.cases}
    return tuple(
        _finding(
            made, cases[title], STALE, np.ones(first[name].shape, bool), others[name], first[name]
        )
        for name, title in made.of_case.items()
        if first[name].tobytes() == others[name].tobytes()
    )


def _judge_case(
    made: BuiltSuite, case: Case, seen: np.ndarray, expected: np.ndarray
) -> Finding | None:
    if case.exact:
        off = seen != expected
    else:
        spread = float(expected.max() - expected.min()) or float(np.abs(expected).max()) or 1.0
        allowed = TOLERANCES[made.suite.precision] * case.slack * spread
        with np.errstate(invalid="ignore"):  # whatever bits a device gives
            off = ~(np.abs(seen.astype(np.float64) - expected) <= allowed)
    return _finding(made, case, WRONG, off, seen, expected) if off.any() else None


def _finding(
    made: BuiltSuite, case: Case, kind: str, off: np.ndarray, seen: np.ndarray, expected: np.ndarray
) -> Finding:
    place = np.unravel_index(int(np.argmax(off)), off.shape)
    return Finding(
        family=case.family,
        case=case.name,
        precision=made.suite.precision,
        memory=made.suite.memory,
        kind=kind,
        shape=seen.shape,
        element=tuple(int(i) for i in place),
        seen=float(seen[place]),
        expected=float(expected[place]),
    )


MOST_FAILED = 6
"""The cases that may fail with no numbers before the rest of such a suite is left unseen."""


class GoneError(Exception):
    """The device did not come back, so that nothing more can be said of it: no fault of a case."""


@dataclass(frozen=True, kw_only=True)
class SuiteRuns:
    """The outputs of the first and of the last run of a bundle, and of runs among others.

    A launch that is lost leaves what an earlier run wrote: the same numbers, if all runs have the
    same inputs.  So `among` are runs between runs of other inputs, and `others` are these: their
    numbers are others than those of `first`, but for launches that are all lost.
    """

    first: Mapping[str, np.ndarray]
    last: Mapping[str, np.ndarray]
    among: tuple[Mapping[str, np.ndarray], ...] = ()
    others: tuple[Mapping[str, np.ndarray], ...] = ()


class SuiteBench(Protocol):
    """Where bundles run: a device, or a test's own."""

    def run(self, made: BuiltSuite) -> SuiteRuns:
        """Run a suite several times.

        Raises:
            DeviceError: the driver refused something, or gave an error.
            RemoteError: no answer came in time, or the session was lost.
            GoneError: and nothing answers any more.
        """


@dataclass(kw_only=True)
class ExaminedSuite:
    """What was found of one suite; `unseen` cases were left out after too many failed."""

    findings: list[Finding] = field(default_factory=list)
    made: BuiltSuite
    kernels: int = 0
    launches: int = 0
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The outputs of the first run; none where the suite failed."""
    unseen: list[str] = field(default_factory=list)
    once: str = ""
    """What failed as a whole and not in parts, and whether it came again."""


def examine(bench: SuiteBench, suite: Suite, target: Target, folder: Path) -> ExaminedSuite:
    """Run a suite; the cases that go wrong.

    Raises:
        AdrenocError: the suite cannot be compiled.
    """
    made = make_suite(suite, target, folder)
    found = ExaminedSuite(made=made, kernels=made.kernels(), launches=len(made.bundle.launches()))
    try:
        _take_runs(found, bench.run(made))
    except (DeviceError, RemoteError) as error:
        # What was cut off at once is as often a server that was ended as a kernel that crashed.
        again = _run_again(bench, found, error) if _was_cut_off(error) else error
        if again is not None:
            _split(bench, suite, target, folder, found, again)
            if not found.findings:  # a network is a whole too
                _judge_whole(bench, found, error, again)
    return found


def _take_runs(found: ExaminedSuite, runs: SuiteRuns) -> None:
    found.outputs = runs.first
    found.findings += _judge_runs(found.made, runs)


def _was_cut_off(error: AdrenocError) -> bool:
    return isinstance(error, RemoteError) and LATE not in error.message


def _run_again(bench: SuiteBench, found: ExaminedSuite, error: AdrenocError) -> AdrenocError | None:
    """Run what failed as a whole once more; how it failed then, None where it did not."""
    try:
        _take_runs(found, bench.run(found.made))
    except (DeviceError, RemoteError) as again:
        return again
    found.once = f"{one_line(error)}; it did not come again"
    return None


def _judge_whole(
    bench: SuiteBench, found: ExaminedSuite, error: AdrenocError, again: AdrenocError
) -> None:
    """Say of what failed as a whole, and in no part, whether it does so each time."""
    last = _run_again(bench, found, error) if again is error else again
    if last is not None:
        found.once = f"{one_line(last)}; each time that all cases run, and not in parts"
        found.unseen = [case.title for case in found.made.suite.cases]


def run_reversed(
    bench: SuiteBench, examined: ExaminedSuite, target: Target, folder: Path
) -> tuple[Finding, ...]:
    """Run the cases in the other order: their kernels and data are the same, so are the bits.

    What is wrong already is no news.  Where it fails, that is noted as a failure.
    """
    if not examined.outputs or examined.findings:
        return ()
    suite = examined.made.suite
    turned = make_suite(replace(suite, cases=suite.cases[::-1]), target, folder)
    try:
        return _unsteady(turned, examined.outputs, bench.run(turned), set())
    except (DeviceError, RemoteError) as error:
        examined.once = f"{one_line(error)}; in the other order"
        return ()


def _judge_runs(made: BuiltSuite, runs: SuiteRuns) -> tuple[Finding, ...]:
    wrong = judge(made, runs.first)
    return (*wrong, *_unsteady(made, runs.first, runs, {finding.title for finding in wrong}))


def _unsteady(
    made: BuiltSuite, first: Mapping[str, np.ndarray], runs: SuiteRuns, known: set[str]
) -> tuple[Finding, ...]:
    """Return the cases, but those that are known, that some run gave other bits of than the
    `first`."""
    found: dict[str, Finding] = {}
    for outputs in (*runs.among, runs.last):
        found |= {finding.title: finding for finding in differing(made, first, outputs)}
    for outputs in runs.others:
        found |= {f.title: f for f in differing(made, runs.others[0], outputs)}
        found |= {f.title: f for f in stale(made, first, outputs)}
    return tuple(finding for title, finding in found.items() if title not in known)


def _split(
    bench: SuiteBench,
    suite: Suite,
    target: Target,
    folder: Path,
    found: ExaminedSuite,
    error: AdrenocError,
) -> None:
    """Run the halves of what failed as a whole, down to single cases."""
    if len(suite.cases) == 1:
        case = suite.cases[0]
        found.findings.append(
            Finding(
                family=case.family,
                case=case.name,
                precision=suite.precision,
                memory=suite.memory,
                kind=FAILED,
                text=one_line(error),
            )
        )
        return
    middle = len(suite.cases) // 2
    for cases in (suite.cases[:middle], suite.cases[middle:]):
        half = replace(suite, cases=cases)
        if sum(finding.kind == FAILED for finding in found.findings) >= MOST_FAILED:
            found.unseen += [case.title for case in cases]
            continue
        try:
            made = make_suite(half, target, folder)
            found.findings += _judge_runs(made, bench.run(made))
        except (DeviceError, RemoteError) as again:
            _split(bench, half, target, folder, found, again)


def one_line(error: AdrenocError) -> str:
    """Return what an error says, in short."""
    return " ".join(error.message.split())[:300]


def right_titles(bench: SuiteBench, suite: Suite, target: Target, folder: Path) -> set[str]:
    """Return the cases of a suite that are right in this form; none where it does not compile."""
    try:
        found = examine(bench, suite, target, folder)
    except AdrenocError:
        return set()
    off = {finding.title for finding in found.findings} | set(found.unseen)
    return {case.title for case in suite.cases} - off


def spread_sample(findings: Sequence[Finding], most: int) -> tuple[str, ...]:
    """Return titles of some cases, of as many families as may be."""
    by_family: dict[str, list[str]] = {}
    for finding in findings:
        by_family.setdefault(finding.family, []).append(finding.title)
    picked: list[str] = []
    while by_family and len(picked) < most:
        for family in list(by_family):
            picked.append(by_family[family].pop(0))
            if not by_family[family]:
                del by_family[family]
    return tuple(dict.fromkeys(picked[:most]))
