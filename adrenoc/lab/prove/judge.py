"""Is what a device gave right?  If not, where it first goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.suite import TOLERANCES, BuiltSuite

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
    made: BuiltSuite,
    case: Case,
    kind: str,
    off: np.ndarray,
    seen: np.ndarray,
    expected: np.ndarray,
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
