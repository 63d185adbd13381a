"""What the GPU will run: kernels, their launches in order, and packed constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import PrimFunc
from adrenoc.ir.graph import Graph
from adrenoc.ir.layout import OperandSpec

Matrix = tuple[tuple[Fraction, ...], ...]
"""Rows of exact numbers."""

Work = dict[str, Any]
"""What a kernel computes, as the signature that tuning logs hold."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: threads a group, and groups, in x, y, z."""

    work_group: tuple[int, int, int]
    grid: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Packing:
    """How a constant of the graph was packed: `pack` does the same with other numbers.  It prepares
    them, rounds them (`make_rounded` gives what came of that) and then only moves them, which is
    `move`.  Winograd's weights are also computed with in between: their `transform` is applied to
    the last two axes of what `prepare` makes, once that is rounded.  They have no `pack`."""

    constant: np.ndarray
    prepare: Callable[[np.ndarray], np.ndarray]
    pack: Callable[[np.ndarray], np.ndarray] | None
    make_rounded: Callable[[], np.ndarray]
    move: Callable[[np.ndarray], np.ndarray]
    transform: Matrix | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Param:
    """A packed constant: what the runtime uploads once and hands to every run.  `packing` is None
    where it is no constant of the graph in another order."""

    name: str
    value: np.ndarray
    spec: OperandSpec
    packing: Packing | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ScheduleChoice:
    """The schedule that a kernel got, and what else it could have had.  `node` is the first node
    that needs this kernel; `estimate` gives the candidates' order where nothing was measured (any
    unit, less is better)."""

    digest: str
    family: str
    work: Work
    node: str
    tile: Any
    tuned: bool
    candidates: Sequence[Any]
    estimate: Callable[[Any], float]

    @property
    def untuned(self) -> Any:
        """Return the candidate that the estimate picks."""
        return min(self.candidates, key=self.estimate)


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel:
    """One distinct kernel; several nodes may launch it."""

    name: str
    family: str
    func: PrimFunc
    launch: Launch
    scopes: tuple[str, ...]
    shared_bytes: int = 0
    """Local memory that a work-group takes."""
    choice: ScheduleChoice | None = None
    """Which schedule the kernel got, and why."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One launch: the last `written` arguments are written, the others are read.  `place` is `gpu`
    where a kernel runs, `cpu` where `kernel` names a function of the CPU, `to_cpu` or `to_gpu` for
    a copy, which has no kernel, `clml` where `kernel` names a region, and `alloc` for memory that a
    region will write."""

    kernel: str
    place: str = "gpu"
    arguments: tuple[str, ...]
    written: int = 1

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the arguments that are read."""
        return self.arguments[: -self.written]

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the arguments that are written."""
        return self.arguments[-self.written :]


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """What the GPU will run, in order."""

    graph: Graph
    kernels: dict[str, Kernel]
    steps: tuple[Step, ...]
    params: dict[str, Param]
    cpu_functions: dict[str, PrimFunc] = field(default_factory=dict)
    """TIR functions that run on the CPU: they take the inputs, then the output."""
    regions: dict[str, Program] = field(default_factory=dict)
    """Regions of CLML by symbol: the kernels that run where CLML cannot."""
    choices: Mapping[str, ScheduleChoice] = field(default_factory=dict)
    """Node -> the schedule of its kernel."""
