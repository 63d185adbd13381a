"""The threads of a work-group, where a kernel does not say itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from adrenoc.target.gpu import Limits

THREADS_WANTED = 64
"""Threads a work-group where the grid allows: one wave of every Adreno since the 6xx."""

Threads = tuple[int, int, int]
PickGroup = Callable[[Threads], Threads]
"""Threads in x, y, z -> threads a group."""


def pick_work_group(extents: Sequence[int], limits: Limits) -> tuple[int, int, int]:
    """Threads a group in x, y, z: powers of two, at most what the target allows.

    Two-dimensional groups walk an image best: 16 x 16 before 8 x 8 before a row.
    """
    wanted = min(THREADS_WANTED, limits.max_work_group_size)
    x = min(power_of_two(extents[0]), 16, wanted)
    y = min(power_of_two(extents[1]), wanted // x)
    z = min(power_of_two(extents[2]), wanted // (x * y))
    if (x, y, z) in limits.banned_work_groups:
        y //= 2
    x = min(power_of_two(extents[0]), wanted // (y * z))
    return (x, y, z)


def power_of_two(extent: int) -> int:
    """The smallest power of two that covers `extent`."""
    return 1 << max(extent - 1, 0).bit_length()
