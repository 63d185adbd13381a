"""Which of a family's schedules a kernel gets.

A family (convolution, matmul, pool, ...) states its work as a frozen dataclass and offers its
schedules as candidates: frozen dataclasses of actions, with a field `work_group`.  One gate
refuses what the target cannot run.  Of the rest a tuning log picks by the digest of the work, or,
where it knows nothing, the family's estimate does.

```
tile = context.choose("conv2d", work, candidates(work), lambda tile: estimate_clocks(work, tile))
```
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

from adrenoc.decision import DecisionLog
from adrenoc.gpu import Limits

UNSTABLE_GROUPS = ((8, 8), (4, 16))
"""Work-groups in x and y that gave wrong values on an Adreno 840 (ADRENO.md 2.8)."""


class Tile(Protocol):
    """One schedule of a family: its other fields are the family's own actions."""

    @property
    def work_group(self) -> tuple[int, int, int] | None:
        """Threads a group in x, y, z; None leaves it to the kernel builder."""


T = TypeVar("T", bound=Tile)


@dataclass(kw_only=True)
class Schedules:
    """The choices of one compilation: what a log says, and what was chosen."""

    limits: Limits
    log: DecisionLog
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Digest of the work -> actions that a tuner found."""
    chosen: dict[str, Choice] = field(default_factory=dict)

    def choose(
        self,
        family: str,
        work: Any,
        candidates: Iterable[T],
        estimate: Callable[[T], float],
    ) -> T:
        """The tuned candidate, else the one with the least estimate (any unit)."""
        digest = work_digest(family, work)
        if digest in self.chosen:
            return self.chosen[digest].tile
        offered = tuple(candidates)
        allowed = [tile for tile in offered if refusal(tile, self.limits) is None]
        tile, tuned = self._tuned(family, digest, allowed), True
        if tile is None:
            tile, tuned = min(allowed, key=estimate), False
        self.chosen[digest] = Choice(
            family=family, work=work, tile=tile, tuned=tuned, candidates=tuple(allowed)
        )
        return tile

    def _tuned(self, family: str, digest: str, allowed: list[T]) -> T | None:
        actions = self.tuned.get(digest)
        if actions is None:
            return None
        for tile in allowed:
            if actions_of(tile) == actions:
                return tile
        self.log.add(
            f"{family} {digest}",
            "the cost model's schedule",
            f"the tuning log's actions {json.dumps(actions)} are no candidate on this target",
        )
        return None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The schedule that a kernel got, and what else it could have had."""

    family: str
    work: Any
    tile: Any
    tuned: bool
    candidates: tuple[Any, ...]


def refusal(tile: Tile, limits: Limits) -> str | None:
    """Why the target cannot run this schedule; None if it can."""
    if tile.work_group is None:
        return None
    x, y, z = tile.work_group
    if x * y * z > limits.max_work_group_size:
        return f"{x * y * z} threads a work-group, at most {limits.max_work_group_size}"
    if (x, y) in UNSTABLE_GROUPS:
        return f"work-groups of {x} x {y} gave wrong values on an Adreno 840"
    return None


def actions_of(tile: Tile) -> dict[str, Any]:
    """The schedule as JSON values: what a tuning log stores."""
    return _plain(tile)


def work_digest(family: str, work: Any) -> str:
    """Names a kernel by what it does: 16 hexadecimal digits, the same in every model."""
    text = json.dumps([family, _plain(work)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Dataclasses, enums and tuples as what JSON has."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value
