"""Reads of an image that a model is given, row-major in a buffer, as texels of its pixels.

A thread needs neighbouring pixels of a row: neighbouring numbers in memory, those of each channel
(NCHW) or of all (NHWC).  It loads four at a time.  What lies beyond an end of the row is zero: a
vector that is outside of it for the first or the last thread alone is loaded from where there is
something, and its numbers are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from adrenoc.kernels.access import PlainAccess
from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.kernels.statements import Statements
from adrenoc.layout import LANES, Extents, Layout
from adrenoc.operand import OperandSpec
from adrenoc.tvmapi import (
    Expr,
    cast,
    clamp,
    construct,
    fconst,
    floordiv,
    iconst,
    lane,
    maximum,
    minimum,
    select,
)


class Reach(Enum):
    """Where the numbers of one load lie, over all threads of a row."""

    WITHIN = "within"
    BEFORE = "before"
    """Those of the first thread before the row, those of all others within."""
    BEHIND = "behind"
    """Those of the last thread behind the row, those of all others within."""
    EITHER = "either"
    """One number at a time, each with a test."""


@dataclass(frozen=True)
class Load:
    """Four numbers from `at` on, or one; counted from the first of the thread's own pixels."""

    at: int
    reach: Reach

    @property
    def count(self) -> int:
        """How many numbers it gives."""
        return 1 if self.reach is Reach.EITHER else LANES


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """What a thread reads of one row of an image.

    Numbers are counted along the row of one run: a channel's (NCHW), or all channels' (NHWC).
    """

    width: int
    """Numbers of a row."""
    pitch: int
    """Numbers from one pixel to the next: the channels where they lie beside each other."""
    runs: int
    """The channels where each has rows of its own, else 1."""
    step: int
    """Numbers from one thread's to the next thread's."""
    last: int
    """Of the last thread's first pixel."""
    padding: int
    """Columns before a thread's own pixels."""
    columns: tuple[int, ...]
    """Those that are read, from the first of the padding."""
    aligned: bool
    """Whether every vector begins at a multiple of 16 bytes."""

    @staticmethod
    def of(spec: OperandSpec, geometry: ConvGeometry, out: Extents, pixels: int) -> RowPlan | None:
        """The plan of a convolution; None where the image lies in another order."""
        strides, e = _strides(spec.roles, spec.shape), spec.extents
        planar = e.w == 1 or strides["W"] == 1
        beside = (e.c == 1 or strides["C"] == 1) and (e.w == 1 or strides["W"] == e.c)
        if e.c > LANES or not (planar or beside):
            return None
        pitch = 1 if planar else e.c
        step = pixels * geometry.strides[1] * pitch
        others = [strides[role] for role in ("NHC" if planar else "NH") if role in strides]
        return RowPlan(
            width=e.w * pitch,
            pitch=pitch,
            runs=e.c if planar else 1,
            step=step,
            last=(-(-out.w // pixels) - 1) * step,
            padding=geometry.padding[1],
            columns=tuple(geometry.columns(pixels)),
            aligned=not any(n % LANES for n in (step, *others)),
        )

    @property
    def loads(self) -> Iterator[Load]:
        """The loads of one run."""
        wanted = [
            (column - self.padding) * self.pitch + i
            for column in self.columns
            for i in range(self.pitch)
        ]
        for at in sorted({number // LANES * LANES for number in wanted}):
            numbers = [n for n in wanted if at <= n < at + LANES]
            reach = self._reach(at)
            if len(numbers) > 1 and reach is not Reach.EITHER:
                yield Load(at, reach)
            else:
                yield from (Load(n, Reach.EITHER) for n in numbers)

    def _reach(self, at: int) -> Reach:
        """How four numbers lie, where they can be loaded together."""
        end = at + LANES
        if at >= 0 and self.last + end <= self.width:
            return Reach.WITHIN
        if self.width < LANES:
            return Reach.EITHER
        if end <= 0 and (self.last == 0 or at + self.step >= 0) and self.last + end <= self.width:
            return Reach.BEFORE
        before_last = self.last - self.step + at
        behind = at >= 0 and self.last + at >= self.width
        if behind and 0 <= before_last <= self.width - LANES:
            return Reach.BEHIND
        return Reach.EITHER

    @property
    def count(self) -> int:
        """Loads of a row; compilers split a vector of which they cannot know that it is aligned."""
        split = 1 if self.aligned else LANES
        return self.runs * sum(split if load.count > 1 else 1 for load in self.loads)


Normalise = Callable[[Expr, Expr, Expr, Expr], Expr]
"""(image, row, column, four channels as they are given) -> the same as they are convolved."""


class ImageRows:
    """Gives the texels of rows; `left` is the column of the thread's first own pixel.

    Zeros beyond the edges are zeros after `normalise`.
    """

    def __init__(
        self,
        statements: Statements,
        x: PlainAccess,
        plan: RowPlan,
        n: Expr,
        left: Expr,
        normalise: Normalise | None,
    ) -> None:
        self._statements, self._x, self._plan, self._n = statements, x, plan, n
        self._normalise = normalise
        # Threads beyond the last column read what the last one does.
        first = minimum(left * iconst(plan.pitch), iconst(plan.last))
        self._first = statements.share(first, "first")

    def inside(self, row: Expr) -> Expr:
        """Whether a row is one of the image."""
        return (row >= 0) & (row < iconst(self._x.extents.h))

    def texels(self, row: Expr) -> dict[int, Expr]:
        """The texels of a row that is inside of the image, by column of the plan.

        Lanes beyond the last channel are zero.
        """
        plan, channels = self._plan, self._x.extents.c
        strides = _strides(self._x.spec.roles, self._x.spec.shape)
        start = self._n * iconst(strides.get("N", 0)) + row * iconst(strides.get("H", 0))
        start = self._statements.share(start, "start")
        with self._statements.computing(self._given):
            runs = [self._numbers(start, run * strides.get("C", 0)) for run in range(plan.runs)]
        zero = fconst(0.0, self._given)
        # TVM puts an expression that only has a name into each place that uses it.
        found = self._statements.registers(len(plan.columns))
        for place, column in enumerate(plan.columns):
            at = (column - plan.padding) * plan.pitch
            if plan.runs > 1:
                lanes = [run[at] for run in runs]
            else:
                lanes = [runs[0][at + i] for i in range(plan.pitch)]
            found[place] = self._normalised(row, at, lanes + [zero] * (LANES - channels))
        return {column: found[place] for place, column in enumerate(plan.columns)}

    @property
    def _given(self) -> str:
        """The dtype of what is loaded."""
        return self._statements.compute if self._normalise is None else "float32"

    def _normalised(self, row: Expr, at: int, lanes: list[Expr]) -> Expr:
        """The texel of a pixel of which these are the numbers, from place `at` on."""
        plan, compute = self._plan, self._statements.compute
        if self._normalise is None:
            return construct(lanes)
        column = floordiv(self._first + iconst(at), plan.pitch)
        texel = self._statements.registers(1, dtype="float32")
        texel[0] = self._normalise(self._n, row, column, construct(lanes))
        if at < 0 or plan.last + at + plan.pitch > plan.width:
            inside = (self._first + iconst(at) >= 0) & (
                self._first + iconst(at) < iconst(plan.width)
            )
            zero = fconst(0.0, "float32")
            texel[0] = construct([select(inside, lane(texel[0], i), zero) for i in range(LANES)])
        return texel[0] if compute == "float32" else cast(texel[0], f"{compute}x{LANES}")

    def _numbers(self, start: Expr, of_run: int) -> dict[int, Expr]:
        """The numbers of the run `of_run` behind `start`, by place from the thread's own."""
        plan, statements = self._plan, self._statements
        zero = fconst(0.0, statements.compute)
        found: dict[int, Expr] = {}
        for load in plan.loads:
            mine = self._first + iconst(load.at)
            inside = (mine >= 0) & (mine < iconst(plan.width))
            first, offset = mine, of_run
            if load.reach is Reach.WITHIN:
                first, offset = self._first, of_run + load.at
            elif load.reach is Reach.BEFORE:
                first = maximum(mine, iconst(0))
            elif load.reach is Reach.BEHIND:
                first = minimum(mine, iconst(plan.last - plan.step + load.at))
            else:
                first = clamp(mine, 0, plan.width - 1)
            base = statements.share(start + first, "base")
            loaded = self._x.numbers(base, offset, load.count, aligned=plan.aligned)
            value = statements.let(loaded, "v")
            for i in range(load.count):
                one = value if load.count == 1 else lane(value, i)
                within = load.reach is Reach.WITHIN
                found[load.at + i] = one if within else select(inside, one, zero)
        return found


def _strides(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
    """Numbers from one to the next along each axis that has a role."""
    strides, step = {}, 1
    for role, extent in zip(reversed(layout.roles), reversed(shape), strict=True):
        strides[role] = step
        step *= extent
    return strides
