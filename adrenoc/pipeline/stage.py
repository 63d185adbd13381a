"""One row of the pipeline, and the check that rows stand in an order that can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from adrenoc.options import CompileOptions
from adrenoc.pipeline.state import State


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One row of the pipeline.

    `run` maps a state to the next one; it is skipped unless `when` holds.  `needs` and `gives`
    are facts, checked before anything runs; `dump` renders what the stage made, and `note` says
    it in a few words.
    """

    name: str
    run: Callable[[State], State]
    needs: frozenset[str]
    gives: frozenset[str]
    dump: Callable[[State], str]
    note: Callable[[State], str] = lambda _: ""
    check: Callable[[State], None] = lambda _: None
    when: Callable[[CompileOptions], bool] = lambda _: True


def check_order(stages: Iterable[Stage]) -> None:
    """Each stage must find what it needs, given by an earlier one."""
    known: set[str] = set()
    for stage in stages:
        missing = stage.needs - known
        if missing:
            raise ValueError(f"stage {stage.name} needs {sorted(missing)}, which nothing gave")
        known |= stage.gives
