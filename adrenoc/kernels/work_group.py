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

    Two-dimensional groups walk an image best: 16 x 16 before 8 x 8 before a row.  Where the target
    is wrong with all that would do, (1, 1, 1) is left.
    """
    wanted = min(THREADS_WANTED, power_of_two_within(limits.max_work_group_size))
    wide, high, deep = map(power_of_two_within, limits.group_sides)
    x = min(power_of_two(extents[0]), 16, wanted, wide)
    y = min(power_of_two(extents[1]), wanted // x, high)
    z = min(power_of_two(extents[2]), wanted // (x * y), deep)
    if (x, y, z) in limits.banned_work_groups and y > 1:
        y //= 2
    x = min(power_of_two(extents[0]), wanted // (y * z), wide)
    if limits.refuse_group((x, y, z)):
        return _largest(extents, wanted, limits)
    return (x, y, z)


def _largest(extents: Sequence[int], wanted: int, limits: Limits) -> tuple[int, int, int]:
    """Return the most threads in powers of two that are not banned, beside each other first."""
    sides = [[1 << i for i in range(power_of_two(e).bit_length())] for e in extents]
    allowed = (
        (x * y * z, x, y, z)
        for x in sides[0]
        for y in sides[1]
        for z in sides[2]
        if x * y * z <= wanted and not limits.refuse_group((x, y, z))
    )
    _, *group = max(allowed, default=(1, 1, 1, 1))
    return (group[0], group[1], group[2])


def power_of_two(extent: int) -> int:
    """Return the smallest power of two that covers `extent`."""
    return 1 << max(extent - 1, 0).bit_length()


def power_of_two_within(most: int) -> int:
    """Return the largest power of two that is not above `most`."""
    return 1 << (most.bit_length() - 1)


def groups_within(threads: Sequence[int], limits: Limits) -> list[int]:
    """Numbers of threads a group, each cut to what the target takes; powers of two, each once."""
    most = power_of_two_within(limits.max_work_group_size)
    return list(dict.fromkeys(min(number, most) for number in threads))
