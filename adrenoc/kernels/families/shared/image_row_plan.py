"""What a thread reads of one row of an image, as a plan that cost models can count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from adrenoc.ir.layout import LANES, Extents, Layout
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry


class Reach(Enum):
    """Where the numbers of one load lie, over all threads of a row."""

    WITHIN = "within"
    BEFORE = "before"
    """Only numbers of the first thread may lie before the row; all others lie within."""
    BEHIND = "behind"
    """Only numbers of the last thread may lie behind the row; all others lie within."""
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
    """Numbers from one thread's first pixel to that of the next thread."""
    last: int
    """The place in the row of the last thread's first pixel, in numbers."""
    padding: int
    """Columns before a thread's own pixels."""
    columns: tuple[int, ...]
    """Columns that a thread reads, from the first of the padding on."""
    aligned: bool
    """Whether every vector begins at a multiple of 16 bytes."""

    @staticmethod
    def from_image(
        spec: OperandSpec, geometry: ConvGeometry, out: Extents, pixels: int
    ) -> RowPlan | None:
        """Return the plan of a convolution; None where the image lies in another order."""
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
        """Return how four numbers lie, where they can be loaded together."""
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


def _strides(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
    """Numbers from one to the next along each axis that has a role."""
    strides, step = {}, 1
    for role, extent in zip(reversed(layout.roles), reversed(shape), strict=True):
        strides[role] = step
        step *= extent
    return strides
