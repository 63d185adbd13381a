"""Run a suite on a device; where that fails as a whole, find the cases that make it fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Protocol

import numpy as np

from adrenoc.base.errors import AdrenocError, DeviceError, RemoteError
from adrenoc.device.remote import LATE
from adrenoc.lab.prove.cases import Case
from adrenoc.lab.prove.suite import TOLERANCES, BuiltSuite, Suite, make_suite
from adrenoc.target.target import Target

WRONG, UNSTEADY, STALE, FAILED = "wrong", "unsteady", "stale", "failed"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A case that a device does not compute as it should, in the suite that it was found in.

    `kind` is "wrong" (numbers), "unsteady" (not the same numbers each time), "stale" (the same
    numbers, whatever the inputs are) or "failed" (no numbers: `text` says what the driver said, or
    that there was no answer in time).
    """

    case: Case
    suite: Suite
    kind: str
    text: str

    @property
    def title(self) -> str:
        """Return the title of its case."""
        return self.case.title

    def __str__(self) -> str:
        failed = "failed: " if self.kind == FAILED else ""
        return f"{self.title} ({self.suite.name}) {failed}{self.text}"


def judge(made: BuiltSuite, outputs: Mapping[str, np.ndarray]) -> tuple[Finding, ...]:
    """Return the cases whose outputs are off."""

    def say(case: Case, name: str) -> str:
        seen, expected = outputs[name], made.expected[name]
        off = _find_off(case, seen, expected, TOLERANCES[made.suite.precision])
        if not off.any():
            return ""
        place, at = _first_of(off)
        return f"is wrong at {at}: seen {seen[place]:.6g}, expected {expected[place]:.6g}"

    return _find(made, WRONG, say)


def differing(
    made: BuiltSuite, first: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray]
) -> tuple[Finding, ...]:
    """Return the cases whose bits are not the same in two runs."""

    def say(_: Case, name: str) -> str:
        off = first[name].view(np.uint32) != last[name].view(np.uint32)
        return f"gives other numbers from run to run: {_first_of(off)[1]}" if off.any() else ""

    return _find(made, UNSTEADY, say)


def stale(
    made: BuiltSuite, first: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> tuple[Finding, ...]:
    """Return the cases that give the first run's bits for other inputs: nothing ran."""
    told = "gives the numbers of an earlier run, for other inputs too"
    return _find(
        made, STALE, lambda _, n: told if first[n].tobytes() == others[n].tobytes() else ""
    )


def _find(made: BuiltSuite, kind: str, say: Callable[[Case, str], str]) -> tuple[Finding, ...]:
    """Return the cases of which `say` tells something, given each with the name of its output."""
    cases = {case.title: case for case in made.suite.cases}
    told = ((cases[title], say(cases[title], name)) for name, title in made.of_case.items())
    return tuple(
        Finding(case=case, suite=made.suite, kind=kind, text=text) for case, text in told if text
    )


def _find_off(case: Case, seen: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    if case.exact:
        return seen != expected
    spread = float(expected.max() - expected.min()) or float(np.abs(expected).max()) or 1.0
    with np.errstate(invalid="ignore"):  # whatever bits a device gives
        off = np.abs(seen.astype(np.float64) - expected)
        return ~(off <= tolerance * case.slack * spread)


def _first_of(off: np.ndarray) -> tuple[tuple[int, ...], str]:
    """Return where the first element is that is off, also in words."""
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    at, shape = ", ".join(map(str, place)), "x".join(map(str, off.shape))
    return place, f"element [{at}] of {shape}"


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
        """Run a suite several times. Raises DeviceError where the driver refused something, or gave
        an error; RemoteError where no answer came in time, or the session was lost; GoneError where
        nothing answers any more."""


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
    """Run a suite; the cases that go wrong. Raises AdrenocError where the suite cannot be
    compiled."""
    made = make_suite(suite, target, folder)
    found = ExaminedSuite(made=made, kernels=made.kernels(), launches=len(made.bundle.launches()))
    try:
        _take_runs(found, bench.run(made))
    except (DeviceError, RemoteError) as error:
        # What was cut off at once is as often a server that was ended as a kernel that crashed.
        was_cut_off = isinstance(error, RemoteError) and LATE not in error.message
        again = _run_again(bench, found, error) if was_cut_off else error
        if again is None:
            return found
        _split(bench, suite, target, folder, found, again)
        # A network is a whole too: what fails so may do it each time.
        last = _run_again(bench, found, error) if again is error and not found.findings else again
        if not found.findings and last is not None:
            found.once = f"{one_line(last)}; each time that all cases run, and not in parts"
            found.unseen = [case.title for case in found.made.suite.cases]
    return found


def _take_runs(found: ExaminedSuite, runs: SuiteRuns) -> None:
    found.outputs = runs.first
    found.findings += _judge_runs(found.made, runs)


def _run_again(bench: SuiteBench, found: ExaminedSuite, error: AdrenocError) -> AdrenocError | None:
    """Run what failed as a whole once more; how it failed then, None where it did not."""
    try:
        _take_runs(found, bench.run(found.made))
    except (DeviceError, RemoteError) as again:
        return again
    found.once = f"{one_line(error)}; it did not come again"
    return None


def run_reversed(
    bench: SuiteBench, examined: ExaminedSuite, target: Target, folder: Path
) -> tuple[Finding, ...]:
    """Run the cases in the other order: their kernels and data are the same, so are the bits. What
    is wrong already is no news. Where it fails, that is noted as a failure."""
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
    """Return the cases, but known ones, of which some run gave other bits than the `first`."""
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
        (case,) = suite.cases
        failed = Finding(case=case, suite=suite, kind=FAILED, text=one_line(error))
        found.findings.append(failed)
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
        by_family.setdefault(finding.case.family, []).append(finding.title)
    in_turn = chain.from_iterable(zip_longest(*by_family.values()))
    return tuple(dict.fromkeys([title for title in in_turn if title is not None][:most]))
