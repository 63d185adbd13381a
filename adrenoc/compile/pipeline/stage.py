"""One row of the pipeline, and the check that rows stand in an order that is right.

The order is data: a stage belongs to a phase, phases follow each other, and within a phase each
pair whose order matters says so, with the reason, at one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from adrenoc.compile.pipeline.state import State
from adrenoc.ir.options import CompileOptions


class Phase(str, Enum):
    """The parts of a compilation, in order; `run.py` says what holds at the end of each."""

    IMPORT = "import"
    SIMPLIFY = "simplify"
    FUSE = "fuse"
    PRECISION = "precision"
    PLACE = "place"
    CHOOSE = "choose"
    LOWER = "lower"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One row of the pipeline.

    `run` maps a state to the next one; it is skipped unless `when` holds.  `dump` renders what the
    stage made, `note` says it in a few words, and `check` raises DefectError where the stage broke
    what has to hold.
    """

    name: str
    phase: Phase
    run: Callable[[State], State]
    dump: Callable[[State], str]
    after: Mapping[str, str] = field(default_factory=dict)
    """Stages of the same phase that come first, each with the reason."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Later stages whose price this one reckons with, so that neither undoes the other's gain."""
    note: Callable[[State], str] = lambda _: ""
    check: Callable[[State], None] = lambda _: None
    when: Callable[[CompileOptions], bool] = lambda _: True


def check_order(stages: Sequence[Stage]) -> None:
    """Phases follow each other, and each stage comes after those that it names.

    Raises:
        ValueError: naming the first stage that stands in a wrong place, and why it does.
    """
    place = {stage.name: number for number, stage in enumerate(stages)}
    if len(place) != len(stages):
        raise ValueError("two stages have one name")
    phases = list(Phase)
    for before, stage in pairwise(stages):
        if phases.index(before.phase) > phases.index(stage.phase):
            raise ValueError(
                f"stage {stage.name} of the phase {stage.phase.value} stands behind "
                f"{before.name} of the phase {before.phase.value}"
            )
    for stage in stages:
        for other, reason in stage.after.items():
            if place.get(other, len(stages)) > place[stage.name]:
                raise ValueError(f"stage {stage.name} comes after {other}: {reason}")
        for other, reason in stage.asks.items():
            if place.get(other, -1) < place[stage.name]:
                raise ValueError(
                    f"stage {stage.name} comes before {other}, which it asks: {reason}"
                )
