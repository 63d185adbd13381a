"""Pick how threads share lines: of reductions, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from adrenoc.families.reduce.lines import LineTile, Members
from adrenoc.families.shared.context import RuleContext
from adrenoc.families.shared.machine import TEXTURE_LATENCY_CLOCKS, WAVE, Machine
from adrenoc.ir.graph import Node
from adrenoc.kernels.work_group import pick_work_group, power_of_two
from adrenoc.target.gpu import Limits
from adrenoc.tvmapi import bits_of

TEAMS = (2, 4, 8, 16, 32, 64, 128)
LINES_BESIDE = 16
"""Lines along W that a work-group takes, where it has teams apart."""
THREADS = 128
MOST_THREADS = 256
"""Threads a work-group: a kernel of many registers gets no more than these on some devices."""
SLOTS_A_TEXEL = 12.0
"""Instructions beside the read: coordinates, conversion, and the four lanes folded."""
FOLD_CLOCKS = 80.0
"""Of a step in local memory, with its barrier."""
REGISTERS = 10


@dataclass(frozen=True, kw_only=True)
class LineWork:
    """`lines` results in x, y, z of `length` texels each, which are read `passes` times.

    `folds` is how often a team has to agree on a value, and `along_w` whether lines lie along W.
    """

    lines: tuple[int, int, int]
    length: int
    passes: int
    folds: int
    along_w: bool


def pick_line_tile(context: RuleContext, node: Node, family: str, work: LineWork) -> LineTile:
    """The schedule with the least estimate, or what the tuning log says."""
    machine = Machine.of(context.performance)
    storage_bytes = bits_of(context.options.storage_dtype) // 8
    return context.choose(
        node,
        family,
        candidates(work, context.limits),
        lambda tile: estimate_clocks(work, tile, machine, storage_bytes),
    )


def candidates(work: LineWork, limits: Limits) -> Iterator[LineTile]:
    """One thread a line, and teams no larger than the line."""
    yield LineTile(work_group=pick_work_group(work.lines, limits))
    wide, high, deep = work.lines
    most = min(MOST_THREADS, limits.max_work_group_size)
    for team in TEAMS:
        if team > min(work.length, most):
            break
        if not work.along_w and wide >= 4:
            beside = min(LINES_BESIDE, power_of_two(wide), most // team)
            yield LineTile(work_group=(beside, team, 1), members=Members.ALONG_Y)
        teams = min(max(THREADS // team, 1), power_of_two(wide * high * deep))
        yield LineTile(work_group=(team, teams, 1), members=Members.ALONG_X)


def estimate_clocks(work: LineWork, tile: LineTile, machine: Machine, storage_bytes: int) -> float:
    """Clocks of the kernel, from the texels that one thread reads one after the other."""
    texels = math.ceil(work.length / tile.team) * work.passes
    group = math.prod(tile.work_group)
    threads = WAVE if group > WAVE // 2 else WAVE // 2
    groups = math.ceil(math.prod(work.lines) * tile.team / group)
    waves = groups * math.ceil(group / threads)
    slots = texels * SLOTS_A_TEXEL
    folds = work.folds * math.ceil(math.log(tile.team, 4)) if tile.team > 1 else 0
    # Members of a team beside each other read lines apart where lines do not lie along W.
    apart = tile.members is Members.ALONG_X and not work.along_w and work.lines[0] > 1
    texture = texels / machine.texels_of(storage_bytes) * (2.0 if apart else 1.0)
    busiest = threads * max(slots / machine.lanes, texture) + folds * FOLD_CLOCKS / 2
    at_once = 1 if tile.team == 1 else 2
    serial = texels / at_once * TEXTURE_LATENCY_CLOCKS + threads / 64 * slots + folds * FOLD_CLOCKS
    return machine.clocks(waves, busiest, serial, machine.resident_waves(REGISTERS))
