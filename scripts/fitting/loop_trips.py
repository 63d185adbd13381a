"""Trip counts for the loops of Adreno machine code, from the TIR that it was compiled from.

A compiler unrolls loops and merges them, so that those of the machine code are not those of the
TIR one by one. What one thread does is the same in both: multiplications, texels, bytes stored to
local memory. Each loop of the machine code repeats some product of TIR extents; the assignment of
such products whose counts come nearest to those of the TIR is taken.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fitting.known_extents import lanes_of, parts_of

DOTS_A_CALL = 4
"""Products of `DOT_PRODUCTS`: one a sum."""
DOTS = {"dp4acc": 1.0, "dp2acc": 0.5}
"""Instructions that multiply bytes, and the share of such a product that each makes."""
WORDS_BYTES = 16
"""That `SHARE_UINT4` stores to local memory."""
MULTIPLIES, MULTIPLY = ("mad16", "mad32"), "mul.f"
"""Kinds of instructions that multiply floats and add, and the one that only multiplies."""
MOST_SEARCHED = 2_000_000
"""Assignments of trip counts that are tried; beyond, the last loops count as run once."""
MOST_IN_ORDER = 5000
"""Ways to leave out loops of the TIR that are tried."""
AS_STATED = 0.02
"""How far the work may be off where the loops are those of the TIR in their order."""


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """What one thread does: floating-point multiplications, texels read, bytes to local memory."""

    multiplies: float = 0
    texels: float = 0
    local_bytes: float = 0

    def plus(self, other: ThreadWork, times: float = 1) -> ThreadWork:
        """This work and `times` the other."""
        added = {
            field.name: getattr(self, field.name) + times * getattr(other, field.name)
            for field in fields(self)
        }
        return ThreadWork(**added)


@dataclass(frozen=True, kw_only=True)
class Trips:
    """A trip count for each loop of the machine code.

    `off` is how far the multiply-adds then are from the multiplications of the TIR, relative.
    """

    counts: tuple[int, ...]
    off: float


def stated_extent(loop: Any) -> int:
    """How often a loop runs whose extent is a number."""
    return int(loop.extent)


def work_of(stmt: Any, extent: Callable[[Any], int] = stated_extent) -> ThreadWork:
    """The work of a TIR statement in one thread; of a condition both branches count."""
    from adrenoc.base.tvmapi import tirx

    total = ThreadWork()
    for times, part in parts_of(stmt, extent):
        total = total.plus(work_of(part, extent), times)
    if isinstance(stmt, tirx.BufferStore | tirx.Bind | tirx.Evaluate):
        total = total.plus(_work_in(stmt.value))
    if isinstance(stmt, tirx.BufferStore) and stmt.buffer.scope() == "shared":
        total = total.plus(ThreadWork(local_bytes=_bytes(stmt.value)))
    return total


def loop_extents(stmt: Any, extent: Callable[[Any], int] = stated_extent) -> list[int]:
    """Trip counts of the TIR's loops, in the order of the text."""
    from adrenoc.base.tvmapi import tirx

    own = [extent(stmt)] if isinstance(stmt, tirx.For) else []
    parts = parts_of(stmt, extent)
    return own + [found for _, part in parts for found in loop_extents(part, extent)]


def _work_in(expr: Any) -> ThreadWork:
    from tvm_ffi.structural import structural_walk

    from adrenoc.base.tvmapi import Call, Op, dtype_of, tirx

    found = {"multiplies": 0, "texels": 0, "local_bytes": 0}

    def multiply(product: Any) -> None:
        if dtype_of(product).startswith("float"):
            found["multiplies"] += lanes_of(dtype_of(product))

    def read(call: Any) -> None:
        if isinstance(call.op, Op) and call.op.name == "tirx.texture2d_load":
            found["texels"] += 1

    def macro(call: Any) -> None:
        name = str(call.args[:1]) if isinstance(call.op, Op) else ""
        if "DOT_PRODUCTS" in name:
            found["multiplies"] += DOTS_A_CALL
        if "SHARE_UINT4" in name:
            found["local_bytes"] += WORDS_BYTES

    structural_walk(expr, (tirx.Mul, multiply))
    structural_walk(expr, (Call, read))
    structural_walk(expr, (Call, macro))
    return ThreadWork(**found)


def _bytes(expr: Any) -> int:
    from adrenoc.base.tvmapi import dtype_of

    dtype = dtype_of(expr)
    found = re.search(r"\d+", dtype)
    return lanes_of(dtype) * int(found.group()) // 8 if found else 0


def machine_work(
    body: Sequence[dict[str, Any]], loops: Sequence[dict[str, Any]], *, products: bool = False
) -> dict[tuple[int, ...], ThreadWork]:
    """The work of one pass, by the loops (their numbers) that the instructions lie in.

    `body` and `loops` are what the estimator's `parse` gives.  With `products`, multiplications
    without an addition count: sums begin with some, and so do compilers' exponentials.
    """
    found: dict[tuple[int, ...], ThreadWork] = {}
    for place, instruction in enumerate(body):
        inside = tuple(n for n, loop in enumerate(loops) if loop["a"] <= place <= loop["b"])
        kind, repeats = instruction["c"], instruction["n"]
        alone = instruction["op"] == MULTIPLY
        share = DOTS.get(instruction["op"].partition(".")[0], 0.0)
        if kind in MULTIPLIES or (products and alone):
            share = 1.0
        one = ThreadWork(
            multiplies=share * repeats,
            texels=repeats if kind == "tex" else 0,
            local_bytes=repeats * _stored(instruction["op"], instruction["args"]),
        )
        found[inside] = found.get(inside, ThreadWork()).plus(one)
    return found


def _stored(op: str, arguments: str) -> int:
    """Bytes that an instruction stores to local memory: `stl.u32 l[r0.x], r1.x, 4` stores 16."""
    size = re.match(r"stl\.[a-z](\d+)", op)
    count = re.search(r",\s*(\d+)\s*$", arguments)
    return int(size.group(1)) // 8 * (int(count.group(1)) if count else 1) if size else 0


def find_trips(
    wanted: ThreadWork, extents: Sequence[int], machine: dict[tuple[int, ...], ThreadWork]
) -> Trips:
    """The trip counts that bring the machine code's work nearest to the TIR's.

    Multiplications, texels and bytes to local memory decide together (to a hundredth), since a
    kernel may multiply in several loops; where they are equal, the fewest trips.  Loops of the TIR
    in their order, some of them unrolled, come first: of many loops the search has no end, and what
    it finds has to be nearer.
    """
    loops = 1 + max((loop for inside in machine for loop in inside), default=-1)
    in_order = [_trips_of(counts, wanted, machine) for counts in _some_of(extents, loops)]
    kept = min(in_order, key=lambda found: (found[0], sum(found[1].counts)), default=None)
    if kept is not None and kept[0] <= AS_STATED:
        return kept[1]
    values = sorted({math.prod(c) for n in range(len(extents) + 1)
                     for c in itertools.combinations(extents, n)})  # fmt: skip
    searched = loops
    while searched and len(values) ** searched > MOST_SEARCHED:
        searched -= 1
    grid = np.meshgrid(*[np.array(values, float)] * searched, indexing="ij")
    trips = [axis.ravel() for axis in grid] + [np.ones(1)] * (loops - searched)

    def distance(field: str) -> np.ndarray:
        want, total = getattr(wanted, field), np.zeros(len(values) ** searched)
        for inside, work in machine.items():
            total = total + getattr(work, field) * np.prod(
                np.broadcast_arrays(np.ones_like(total), *(trips[loop] for loop in inside)), axis=0
            )
        return np.abs(total / want - 1) if want else total

    off = distance("multiplies")
    together = off + distance("texels") + distance("local_bytes")
    order = np.broadcast_arrays(sum(trips), np.round(together, 2), off)
    best = int(np.lexsort(order[:2])[0])
    if kept is not None and kept[0] <= round(float(together[best]), 2):
        return kept[1]
    counts = tuple(int(axis[best if len(axis) > 1 else 0]) for axis in trips)
    return Trips(counts=counts, off=float(off[best]))


def _some_of(extents: Sequence[int], loops: int) -> list[tuple[int, ...]]:
    """So many of the TIR's loops, in their order; none if there are too many ways."""
    if math.comb(len(extents), min(loops, len(extents))) > MOST_IN_ORDER:
        return []
    return sorted(set(itertools.combinations(extents, loops)))


def _trips_of(
    counts: tuple[int, ...], wanted: ThreadWork, machine: dict[tuple[int, ...], ThreadWork]
) -> tuple[float, Trips]:
    """How far all work then is from the TIR's, to a hundredth, and the trips."""
    total = ThreadWork()
    for inside, work in machine.items():
        total = total.plus(work, math.prod(counts[loop] for loop in inside))
    off = {field.name: _off(total, wanted, field.name) for field in fields(wanted)}
    return round(sum(off.values()), 2), Trips(counts=counts, off=off["multiplies"])


def _off(total: ThreadWork, wanted: ThreadWork, field: str) -> float:
    have, want = getattr(total, field), getattr(wanted, field)
    return float(abs(have / want - 1) if want else have)
