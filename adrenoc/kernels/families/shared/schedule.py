"""Which of a family's schedules a kernel gets.

A family (convolution, matmul, pool, ...) offers its schedules as candidates: frozen dataclasses of
actions, with a field `work_group`.  One gate refuses what the target cannot run.  Of the rest a
tuning log picks by the digest of the kernel's signature (what it computes, as JSON values: the same
in every model, whatever its tensors are called), or, where it knows nothing, the family's estimate
does.

```
tile = context.choose(node, "conv2d", candidates(work), lambda tile: estimate_clocks(work, tile))
```

A family without actions of its own leaves the work-group to the kernel builder, which asks
`choose_group`: any kernel has at least that choice.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import TargetError
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import ScheduleChoice, Work
from adrenoc.ir.tuning_log import Actions, Tuning, kernel_digest
from adrenoc.kernels.families.shared.machine import Scored
from adrenoc.target.cost import WorkGroupCost
from adrenoc.target.gpu import Limits

_IDENTIFIER = re.compile(r'"[^"]*"|(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*')
_WORDS = {"and", "or", "not", "if", "else", "True", "False", "for", "in"}


def signature(graph: Graph, node: Node, options: CompileOptions) -> Work:
    """Operator, attributes, tensors (shape, dtype, memory, layout), expressions, precision.  Names
    are left out, and so are values of constants and limits of the target: whether a target can run
    a schedule is asked where the schedule is chosen."""
    work: Work = {
        "op": node.op,
        "attrs": plain(node.attrs),
        "inputs": [_tensor(graph, name) for name in node.inputs],
        "output": _tensor(graph, node.output),
        "storage": options.storage_dtype,
        "compute": options.compute_dtype,
    }
    for part in ("body", "prologue", "epilogue"):
        body = getattr(node, part, None)
        if body is not None:
            work[part] = _expression(graph, node, body)
    if node.parts:
        work["parts"] = {k: _expression(graph, node, body) for k, body in node.parts.items()}
    return work


def plain(value: Any) -> Any:
    """Dataclasses, enums and tuples as what JSON has; what else there is, as text."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _number_names(str(value))


def _tensor(graph: Graph, name: str) -> list[Any]:
    tensor, placement = graph.tensors[name], graph.placements.get(name)
    shape = list(tensor.shape)
    if placement is None:
        return [shape, tensor.dtype]
    return [shape, placement.dtype, placement.memory.value, str(placement.layout)]


def _expression(graph: Graph, node: Node, body: Body) -> list[Any]:
    """Return the expression under canonical names, what each source is, and what is folded."""
    places: dict[str, Any] = {name: i for i, name in enumerate(node.inputs)}
    known = {**places, Node.RESULT: "result", Node.BESIDE: "beside"}
    sources = [
        known[name] if name in known else _tensor(graph, name) for name in body.sources.values()
    ]
    return [_number_names(str(body.value)), sources, [extent for _, extent in body.reduced]]


def _number_names(text: str) -> str:
    """Return the text with its own names numbered in the order in which they appear."""
    names: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        word = match[0]
        if word[0] == '"' or "." in word or word in _WORDS:
            return word
        return names.setdefault(word, f"v{len(names)}")

    return _IDENTIFIER.sub(rename, text)


class Tile(Protocol):
    """One schedule of a family: its other fields are the family's own actions."""

    @property
    def work_group(self) -> tuple[int, int, int] | None:
        """Threads a group in x, y, z; None leaves it to the kernel builder."""


T = TypeVar("T", bound=Tile)


@dataclass(frozen=True, kw_only=True)
class WorkGroup:
    """The schedule of a kernel that has no other choice."""

    work_group: tuple[int, int, int]


@dataclass(kw_only=True)
class TunedSchedules:
    """The choices of one compilation: what a log says, and what was chosen."""

    limits: Limits
    cost: WorkGroupCost
    log: DecisionLog
    tuning: Tuning = field(default_factory=Tuning)
    chosen: dict[str, ScheduleChoice] = field(default_factory=dict)
    """What was chosen, by digest of the kernel's signature."""
    of_node: dict[str, ScheduleChoice] = field(default_factory=dict)
    """What was chosen, by name of the node."""

    def choose(
        self,
        family: str,
        node: str,
        work: Work,
        candidates: Iterable[T],
        estimate: Callable[[T], float],
    ) -> T:
        """Return the tuned candidate, else the one with the least estimate (any unit)."""
        digest = kernel_digest(family, work)
        if digest in self.chosen:
            self.of_node[node] = self.chosen[digest]
            return cast("T", self.chosen[digest].tile)
        scored = candidates if isinstance(candidates, Scored) and candidates is estimate else None
        offered = tuple(candidates) if scored is None else scored
        if not len(offered):
            raise TargetError(
                f"no schedule of {family} fits {node}: the target's work-groups have "
                f"{self.limits.max_work_group_size} threads and {self.limits.local_mem_bytes} "
                "bytes of local memory at most",
                hint="adrenoc targets lists devices, or raise what --device FILE.toml allows",
            )

        def may_run(tile: T) -> bool:
            return self.refusal(digest, tile) is None

        allowed = _Allowed(offered, may_run)
        tile = tuned = self._find_tuned(family, digest, allowed)
        if tile is None and scored is None:
            tile = min(allowed, key=estimate)
        elif tile is None and scored is not None:
            tile = next(filter(may_run, scored.rank()), None) or next(scored.rank())
        self.chosen[digest] = self.of_node[node] = ScheduleChoice(
            digest=digest,
            family=family,
            work=work,
            node=node,
            tile=tile,
            tuned=tuned is not None,
            candidates=allowed,
            estimate=estimate,
        )
        return cast("T", tile)

    def choose_group(
        self,
        family: str,
        node: str,
        work: Work,
        extents: tuple[int, int, int],
        usual: tuple[int, int, int],
    ) -> tuple[int, int, int]:
        """Return the work-group of a kernel without other choices: `usual` if unmeasured."""
        groups = work_groups(extents, usual, self.limits, self.cost)
        tiles = [WorkGroup(work_group=group) for group in groups]

        def estimate(tile: WorkGroup) -> float:
            if tile.work_group == usual:
                return 0.0
            sides = zip(extents, tile.work_group, strict=True)
            return float(math.prod(math.ceil(e / g) * g for e, g in sides))  # threads started

        return self.choose(family, node, work, tiles, estimate).work_group

    def refusal(self, digest: str, tile: Tile) -> str | None:
        """Return why the target cannot run this schedule; None if it can."""
        if tile.work_group is not None and tile.work_group in self.tuning.banned:
            sides = " x ".join(map(str, tile.work_group))
            return f"work-groups of {sides} are on the target's ban list"
        refused = self.tuning.refused.get(digest)
        if refused and any(is_of(tile, actions) for actions in refused):
            return "it failed on a device, as the tuning log tells"
        return refusal(tile, self.limits)

    def _find_tuned(self, family: str, digest: str, allowed: Iterable[T]) -> T | None:
        actions = self.tuning.actions.get(digest)
        if actions is None:
            return None
        for tile in allowed:
            if is_of(tile, actions):
                return tile
        self.log.add(
            f"{family} {digest}",
            "the cost model's schedule",
            f"the tuning log's actions {dict(actions)} are no candidate on this target",
        )
        return None


class _Allowed(Sequence[T]):
    """The candidates that a target can run; those of a large search wait until somebody looks."""

    def __init__(self, offered: Iterable[T], may_run: Callable[[T], bool]) -> None:
        self._offered, self._may_run = offered, may_run

    @cached_property
    def _tiles(self) -> tuple[T, ...]:
        # Only where every shape is refused can the usual one be wrong, and then none is right.
        return tuple(filter(self._may_run, self._offered)) or tuple(self._offered)

    def __len__(self) -> int:
        return len(self._tiles)

    def __getitem__(self, place: Any) -> Any:
        return self._tiles[place]


def refusal(tile: Tile, limits: Limits) -> str | None:
    """Return why a target of these limits cannot run this schedule; None if it can."""
    return None if tile.work_group is None else limits.refuse_group(tile.work_group)


def work_groups(
    extents: tuple[int, int, int], usual: tuple[int, int, int], limits: Limits, cost: WorkGroupCost
) -> Iterator[tuple[int, int, int]]:
    """Yield the usual work-group, then others that suit the extents: powers of two a side."""
    yield usual
    most = min(cost.most_threads, limits.max_work_group_size)
    fewest = min(cost.fewest_threads, math.prod(extents))
    for x in _sides(extents[0], most):
        for y in _sides(extents[1], most):
            for z in _sides(extents[2], most):
                if fewest <= x * y * z <= most and (x, y, z) != usual:
                    yield x, y, z


def actions_of(tile: Tile) -> dict[str, Any]:
    """Return the schedule as JSON values: what a tuning log stores."""
    actions: dict[str, Any] = plain(tile)
    return actions


def is_of(tile: Any, actions: Actions) -> bool:
    """Return whether these are the tile's actions; one that a log does not name has its default.
    So a log outlives a family that learns something new."""
    own = actions_of(tile)
    if own == actions:
        return True
    unnamed = [f for f in dataclasses.fields(tile) if f.name not in actions]
    return all(own.get(name, actions) == value for name, value in actions.items()) and all(
        plain(f.default) == own[f.name] for f in unnamed
    )


def _sides(extent: int, most: int) -> list[int]:
    """Return powers of two, up to the first that covers the extent."""
    return [1 << i for i in range(most.bit_length()) if 1 << i < 2 * extent]
