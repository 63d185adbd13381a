"""Search what to keep in float32: the fewest suspects that mend a failure, or all by their gain.

A trial compiles and runs a model, so trials are what counts.  Suspects come in order of
suspicion: bisection finds how many of the first are enough, then delta debugging takes out what
is not needed, in halves, quarters and so on down to one by one.

The order by gain has units.  A unit is a tensor with what only moves it, and the constants that it
is computed of.  Errors of rounding are small and independent, so that their squares add up: what a
part of a network contributes is seen by rounding that part alone.  The part that contributes most
is halved, and halved again, as far as there is effort, so that units come in the order of error for
bytes.

Effort is counted in nodes, and not by the clock, which decides otherwise on a busy machine: a plan
takes as many as the model has, a run of one set of inputs a part of that.  The same command ends at
the same place anywhere, and can say what it left untried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from adrenoc.check.accuracy.program_run import NOTHING, HalfTensors
from adrenoc.ir.graph import Graph

T = TypeVar("T")


class OutOfEffortError(Exception):
    """Raised by a trial that may not begin any more."""


@dataclass(frozen=True, kw_only=True)
class PassingSet:
    """A set that passes, in the order of suspicion; minimal if each of its members is needed."""

    chosen: tuple[str, ...]
    is_minimal: bool


def smallest_passing(
    suspects: Sequence[str], passes: Callable[[frozenset[str]], bool]
) -> PassingSet | None:
    """Return a minimal subset of `suspects` that passes, None where not even all of them do.
    `passes` may raise `OutOfEffortError`; the best set so far is then returned as it is."""
    known: dict[frozenset[str], bool] = {}

    def passes_once(chosen: Sequence[str]) -> bool:
        key = frozenset(chosen)
        if key not in known:
            known[key] = passes(key)
        return known[key]

    best: Sequence[str] = tuple(suspects)
    try:
        if not passes_once(best):
            return None
        best = shortest_prefix(best, passes_once)
    except OutOfEffortError:
        return PassingSet(chosen=tuple(best), is_minimal=False)
    kept = list(best)
    try:
        _take_out(kept, passes_once)
    except OutOfEffortError:
        return PassingSet(chosen=tuple(kept), is_minimal=False)
    return PassingSet(chosen=tuple(kept), is_minimal=True)


def shortest_prefix(suspects: Sequence[T], tried: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """As many of the first as are enough, where all are; doubling first, since few are usual."""
    low, high = 0, 1  # `low` fails, or is zero, which was seen to fail
    while high < len(suspects) and not tried(suspects[:high]):
        low, high = high, high * 2
    high = min(high, len(suspects))
    while high - low > 1:
        middle = (low + high) // 2
        if tried(suspects[:middle]):
            high = middle
        else:
            low = middle
    return suspects[:high]


def _take_out(kept: list[str], tried: Callable[[Sequence[str]], bool]) -> None:
    """Delta debugging, in place: afterwards no single member can be taken out."""
    size = max(1, len(kept) // 2)
    while kept:
        taken = False
        for start in reversed(range(0, len(kept), size)):
            rest = kept[:start] + kept[start + size :]
            if rest and tried(rest):
                kept[:] = rest
                taken = True
        if size == 1 and not taken:
            return
        size = max(1, size // 2)


_LITTLE = 1e-4
"""Share of the whole mean square; what contributes less is not looked into."""
_SHARE = 0.5
"""Of the effort, by when the order is found."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Tensors that are pinned together, by the graph's names, and what that keeps from half.

    `bytes_more` is what a run then moves more: each tensor is written once and read by each
    reader, each constant is read once.
    """

    tensors: tuple[str, ...]
    stored: HalfTensors
    bytes_more: int


def find_units(graph: Graph, stored: HalfTensors) -> list[Unit]:
    """Return what can be pinned of a fused graph and is stored in half, in execution order."""
    leader = {name: name for name in graph.inputs}
    members = {name: [name] for name in graph.inputs}
    for node in graph.nodes:
        source = node.inputs[0] if node.moves_alone else node.output
        first = leader.get(source, node.output)
        leader[node.output] = first
        members.setdefault(first, []).append(node.output)
    found = []
    for names in members.values():
        nodes = [graph.producers[n] for n in names if n in graph.producers]
        constants = {c for n in nodes for c in n.inputs if graph.tensors[c].value is not None}
        tensors = {t for t in stored.tensors if t in names or _is_copy(t, names)}
        kept = HalfTensors(tensors=frozenset(tensors), constants=stored.constants & constants)
        if kept.count:
            found.append(
                Unit(tensors=tuple(names), stored=kept, bytes_more=_bytes_more(graph, kept))
            )
    return found


def rank_units(
    units: Sequence[Unit], measure: Callable[[HalfTensors], float], effort: Effort
) -> list[Unit]:
    """Order units by what rounding them alone adds to the mean square, for the bytes they cost.
    `measure` gives the mean square where this is rounded, infinite where a value is not finite."""

    def measured(part: Sequence[Unit]) -> tuple[float, Sequence[Unit]]:
        whole = NOTHING
        for unit in part:
            whole = whole.together(unit.stored)
        return measure(whole), part

    left = [measured(units)] if units else []
    total = left[0][0] if left else 0.0
    ended: list[tuple[float, Sequence[Unit]]] = []
    while left:
        left.sort(key=lambda known: known[0])
        square, part = left.pop()
        small = square == 0 or (math.isfinite(total) and square <= _LITTLE * total)
        if len(part) == 1 or small or effort.is_spent(_SHARE):
            ended.append((square, part))
            if len(part) > 1 and not small:
                effort.leave("tensors to round alone", len(part))
            continue
        middle = len(part) // 2
        left += [measured(half) for half in (part[:middle], part[middle:])]
    worth = {
        id(unit): square / sum(one.bytes_more for one in part)
        for square, part in ended
        for unit in part
    }
    return sorted(units, key=lambda unit: -worth[id(unit)])


def _is_copy(tensor: str, names: Iterable[str]) -> bool:
    """Return whether a stored tensor is a copy of one of these in another layout."""
    head, _, roles = tensor.rpartition("_")
    return head in names and roles.isupper()


def _bytes_more(graph: Graph, kept: HalfTensors) -> int:
    elements = 0
    for name in kept.tensors:
        if name in graph.tensors:
            readers = len(graph.consumers[name])
            elements += math.prod(graph.tensors[name].shape) * (1 + readers)
    for name in kept.constants:
        elements += math.prod(graph.tensors[name].shape)
    return max(1, 2 * elements)  # two bytes more each


NODES = 100_000
"""Nodes that a search may plan in all: some ten minutes of one core."""
_NODES_A_RUN = 0.1
"""A run of a set of inputs launches what a plan writes the kernels of, which is less work."""


class Effort:
    """The work that one search has done, of what it may do."""

    def __init__(self, *, nodes: int, share: float = 1.0) -> None:
        """For a model of so many nodes; `share` of the usual effort."""
        self._nodes = max(1, nodes)
        self._limit = share * NODES
        self._spent = 0.0
        self._left: dict[str, int] = {}
        self.plans, self.runs = 0, 0

    def plan(self) -> None:
        """Count one plan of the model."""
        self.plans += 1
        self._spent += self._nodes

    def run(self, samples: int = 1) -> None:
        """Count one run of each of some sets of inputs."""
        self.runs += samples
        self._spent += samples * self._nodes * _NODES_A_RUN

    def is_spent(self, share: float = 1.0) -> bool:
        """Return whether this share of it is done."""
        return self._spent >= share * self._limit

    def leave(self, what: str, count: int) -> None:
        """Note what a search did not look at for that reason; nothing if `count` is zero."""
        if count:
            self._left[what] = self._left.get(what, 0) + count

    @property
    def left(self) -> tuple[str, ...]:
        """Return what was left untried, in words for people."""
        return tuple(f"{count} {what}" for what, count in self._left.items())
