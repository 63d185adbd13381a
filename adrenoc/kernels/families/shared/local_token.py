"""One vector that every work-group of a product computes for itself, in local memory."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.statements import SharedArray


class LocalToken(Access):
    """Reads of a vector of the threads' own making; `begin` comes before the first."""

    def __init__(self, builder: KernelBuilder, source: Access) -> None:
        super().__init__(source.spec, None, builder)
        self._builder = builder
        self._numbers: SharedArray | None = None

    def begin(self, work_group: tuple[int, int, int]) -> None:
        """Compute all numbers, by all threads of a work-group; they have to cooperate."""
        width, height, _ = work_group
        x, y, z = self._builder.local
        member = self._builder.let((z * iconst(height) + y) * iconst(width) + x, "member")
        self._numbers = self._compute(member, math.prod(work_group))
        self._builder.barrier()

    @abstractmethod
    def _compute(self, member: Expr, threads: int) -> SharedArray:
        """Compute the numbers as thread `member` of so many."""

    def element(self, index: Sequence[Expr]) -> Expr:
        """Refuse: such a vector is read by blocks alone."""
        raise TypeError("a vector in local memory is read by blocks")

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four numbers of the vector."""
        if self._numbers is None:
            raise TypeError("a vector in local memory is read before it is begun")
        return self._numbers[block]

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Refuse: such a vector is read alone."""
        raise TypeError("a vector in local memory is not written")


@dataclass(frozen=True, kw_only=True)
class TokenWork:
    """What such a vector costs each work-group.

    `clocks` gives, for a group of so many threads, how long each wave keeps the busiest pipe, and
    how long one takes alone.
    """

    local_bytes: Callable[[int], int]
    """Local memory of a group of so many threads."""
    memory_bytes: int
    """What all groups together bring from memory."""
    clocks: Callable[[int, Machine], tuple[float, float]]
