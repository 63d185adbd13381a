"""Pack intervals into slots: tensors that are never alive at once share one piece of memory.

A slot costs as much as the largest tensor in it.  No single order of packing is best: for
concatenations that grow step by step the largest tensor has to come first, for chains the order
of the program wins.  So several greedy orders are tried and the cheapest packing is kept.

Source of the idea: Y. Pisarchyk and J. Lee, Efficient Memory Management for Deep Neural Net
Inference (2020), greedy by size and greedy by breadth for shared objects.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """A tensor that is alive from step `first` to step `last`, both included."""

    name: str
    first: int
    last: int
    bytes: int


def most_alive(intervals: Iterable[Lifetime]) -> tuple[int, int]:
    """(bytes, step): the most bytes that are alive at once, and the first step where they are."""
    change: dict[int, int] = defaultdict(int)
    for interval in intervals:
        change[interval.first] += interval.bytes
        change[interval.last + 1] -= interval.bytes
    alive, most, where = 0, 0, 0
    for step in sorted(change):
        alive += change[step]
        if alive > most:
            most, where = alive, step
    return most, where


def pack_slots(intervals: Sequence[Lifetime]) -> list[list[Lifetime]]:
    """Tensors by slot, such that no two in a slot are alive at once; the cheapest way found."""
    least, _ = most_alive(intervals)
    best: list[_Slot] | None = None
    for order in _ORDERS:
        slots = _pack(sorted(intervals, key=order))
        if best is None or _cost(slots) < _cost(best):
            best = slots
        if _cost(best) == least:
            break
    return [slot.held for slot in best or []]


_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda i: (i.first,),
    lambda i: (-i.last, -i.first),
    lambda i: (-i.bytes, i.first),
    lambda i: (-i.bytes * (i.last - i.first + 1), i.first),
    lambda i: (i.first - i.last, -i.bytes, i.first),
)


@dataclass(kw_only=True)
class _Slot:
    bytes: int = 0
    held: list[Lifetime] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) of what is held, ascending."""

    def is_free_during(self, interval: Lifetime) -> bool:
        after = bisect(self.times, (interval.first,))
        if after < len(self.times) and self.times[after][0] <= interval.last:
            return False
        return after == 0 or self.times[after - 1][1] < interval.first

    def take(self, interval: Lifetime) -> None:
        insort(self.times, (interval.first, interval.last))
        self.held.append(interval)
        self.bytes = max(self.bytes, interval.bytes)

    def waste(self, interval: Lifetime) -> tuple[int, int]:
        """Return how far the slot would grow, then how far it is from the size that is needed."""
        return max(0, interval.bytes - self.bytes), abs(interval.bytes - self.bytes)


def _pack(ordered: Sequence[Lifetime]) -> list[_Slot]:
    slots: list[_Slot] = []
    for interval in ordered:
        free = [slot for slot in slots if slot.is_free_during(interval)]
        if free:
            slot = min(free, key=lambda s: s.waste(interval))
        else:
            slots.append(slot := _Slot())
        slot.take(interval)
    return slots


def _cost(slots: Sequence[_Slot]) -> int:
    return sum(slot.bytes for slot in slots)
