"""Work-groups where nobody says: within limits, and none that the target is wrong with."""

import itertools
import math
from dataclasses import replace

from adrenoc.kernels.builder import pick_work_group
from adrenoc.target.target import load_target

EXTENTS = [(1, 1, 1), (7, 1, 1), (100, 1, 1), (1, 1, 130), (9, 13, 2), (16, 16, 16), (1, 3, 40)]


def test_whatever_is_banned_another_is_found() -> None:
    for extents in EXTENTS:
        limits = load_target("adreno:750").limits
        seen = []
        for _ in range(12):
            group = pick_work_group(extents, limits)
            assert math.prod(group) <= limits.max_work_group_size
            if group == (1, 1, 1):
                break
            assert group not in seen
            seen.append(group)
            limits = replace(limits, banned_work_groups=tuple(seen))


def test_no_side_is_longer_than_its_limit() -> None:
    for extents, sides in itertools.product(EXTENTS, ((1024, 1024, 64), (16, 4, 1), (7, 64, 3))):
        limits = replace(load_target("adreno:750").limits, max_work_item_sizes=sides)
        group = pick_work_group(extents, limits)
        assert all(side <= most for side, most in zip(group, sides, strict=True))


def test_few_threads() -> None:
    for extents, most in itertools.product(EXTENTS, (16, 32, 64)):
        limits = replace(load_target("adreno:750").limits, max_work_group_size=most)
        assert math.prod(pick_work_group(extents, limits)) <= most
