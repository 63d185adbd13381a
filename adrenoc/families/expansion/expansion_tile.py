"""Tiles of an expansion with its depthwise convolution, and what they cost.

The clocks of a work-group are those of its two phases.  Instructions beside the multiply-adds and
registers are fitted to the machine code of built kernels (`scripts/bench_kernels`; Adreno 660 and
750, inverted residual blocks of MobileNetV2 and EfficientNet).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from adrenoc.families.depthwise.depthwise import UNROLLED_ROWS, rows_read
from adrenoc.families.expansion.expansion_plan import ExpansionTile, Region
from adrenoc.families.shared.conv_geometry import ConvGeometry
from adrenoc.families.shared.conv_weights import HALVES_A_LOAD
from adrenoc.families.shared.machine import (
    BUFFER_LATENCY_CLOCKS,
    LOCAL_READ_CLOCKS,
    SPILLED,
    WAVE,
    Machine,
)
from adrenoc.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.ir.layout import LANES, Extents
from adrenoc.target.gpu import Limits

PIXELS, OUT_BLOCKS, BANDS = (1, 2, 4), (1, 2, 4), (1, 2, 4)
MOST_SUMS, MOST_BLOCKS = 8, 8
"""Of a thread; blocks of a work-group."""
TEXELS_AT_ONCE = 4
"""That a thread asks for: of more, compilers keep the weights in registers, too."""
MADE = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1))
"""Rows and columns that a thread makes at a time."""
MADE_TRIED = 2
FEWEST_PIXELS, MOST_PIXELS = 64, 360
"""Of the rectangle of one block that is kept."""
FEWEST_A_SIDE = 4
"""Rows, and columns, of the output that a work-group makes."""
MOST_ROUNDS = 4
MOST_EMPTY = 1.15
"""Rows and columns of all rectangles, for each that is there."""
ROUND_ALU, TURN_ALU, TEXEL_ALU = 65.0, 8.0, 4.5
ROUND_SLOTS, TURN_SLOTS, TEXEL_SLOTS = 75.0, 51.0, 6.5
"""Instructions, and those with empty slots, beside the multiply-adds: of some wide pixels, of a
turn of their loop, of a texel."""
HALF_ALU, HELD_ALU = 8.0, 4.0
"""Of a vector that becomes float, and half again; and of one that becomes float."""
STORE_SLOTS, SHIFTED_SLOTS = 6.0, 5.0
"""Of a wide pixel that is stored, and of a test whether it belongs to the work-group."""
PLACE_ALU, MADE_ALU, OUTPUT_ALU = 16.0, 25.0, 6.0
PLACE_SLOTS, MADE_SLOTS, OUTPUT_SLOTS = 45.0, 90.0, 10.0
"""Of a place in the rectangle, of some output pixels, and of each."""
TAPS_STORED = 2
"""Vectors of taps, and of what else is read of each channel, that a thread brings."""
WAITS = 7
"""How often a thread waits, beside once a turn, and once where it makes output."""
WIDE_HALF, WIDE_FLOAT = 2.0, 4.0
MADE_HALF, MADE_FLOAT = 4.0, 6.0
"""What coordinates and pointers take in each phase."""
FINISHED_HALF, FINISHED_FLOAT = 2.0, 3.0
"""Registers for each sum that is finished, beside what is read of each block."""
BANDS_HALF, ONE_BAND_HALF = 2.0, 2.0
"""More of them in halves where threads make different blocks, and fewer in any case."""
HALF_WEIGHTS = 0.5
"""Registers for each block of weights of a turn that waits, in halves."""
AHEAD_HALF, AHEAD_FLOAT = 0.12, 0.5
"""Registers for each wide pixel of the rows that compilers read ahead."""
OUTPUT_HALF, OUTPUT_FLOAT = 1.2, 1.0
"""Registers for each output pixel, which is a float beside wide pixels of either kind."""
LOOPED_ROWS = 2
"""That they read ahead where the loop over the rows of taps stays one."""
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ExpansionWork:
    """Both convolutions as a cost model sees them."""

    depthwise: ConvGeometry
    source: Extents
    """What the expansion reads."""
    out: Extents
    storage_bytes: int
    half: bool
    """Whether the products of the expansion are in half precision."""
    finish_work: int
    """Scalar instructions that make four elements of the sums of the expansion."""
    epilogue_work: int
    """Scalar instructions that make four elements of the sums of taps."""

    @property
    def taps(self) -> int:
        """Of one channel."""
        return math.prod(self.depthwise.kernel)

    @property
    def element_bytes(self) -> int:
        """Of a number in local memory, taps aside."""
        return 2 if self.half else FLOAT_BYTES

    def region(self, tile: ExpansionTile) -> Region:
        """The wide pixels that a work-group keeps."""
        return Region.of(self.depthwise, self.source, self.out, tile.rows, tile.columns)


def candidates(work: ExpansionWork, limits: Limits) -> Iterator[ExpansionTile]:
    """The tiles that suit the extents and fit local memory."""
    e = work.out
    # The first sums of deep networks are in float in the end, and have to fit so.
    in_float = replace(work, half=False)
    for rows, columns in product(_shares(e.h), _shares(e.w)):
        if rows * columns > MOST_PIXELS:
            continue
        region = Region.of(work.depthwise, work.source, e, rows, columns)
        whole = (rows, columns) == (e.h, e.w)
        if region.pixels > MOST_PIXELS or (region.pixels < FEWEST_PIXELS and not whole):
            continue
        for out_blocks, bands, pixels in product(OUT_BLOCKS, BANDS, PIXELS):
            blocks = out_blocks * bands
            if blocks > max(1, min(MOST_BLOCKS, e.blocks)) or pixels * out_blocks > MOST_SUMS:
                continue
            if pixels > region.across.computed:
                continue
            items = region.runs(pixels) * region.down.computed * bands
            threads = min(WAVE if items > WAVE // 2 else WAVE // 2, limits.max_work_group_size)
            if items > MOST_ROUNDS * threads:
                continue
            unroll = _unroll(work.source.blocks, pixels)
            for made_rows, made_columns in _made(work, rows, columns, blocks, threads):
                tile = ExpansionTile(
                    rows=rows,
                    columns=columns,
                    pixels=pixels,
                    out_blocks=out_blocks,
                    bands=bands,
                    made_rows=made_rows,
                    made_columns=made_columns,
                    unroll=unroll,
                    work_group=(threads, 1, 1),
                )
                if shared_bytes(in_float, tile, region) <= limits.local_mem_bytes:
                    yield tile


def _shares(extent: int) -> list[int]:
    """Rows, or columns, of work-groups that share so many about equally."""
    shares = {-(-extent // n) for n in range(1, extent + 1)}
    shares = {n for n in shares if -(-extent // n) * n <= MOST_EMPTY * extent}
    return sorted(n for n in shares if n >= min(FEWEST_A_SIDE, extent))


def _unroll(blocks: int, pixels: int) -> int:
    """Input blocks that are asked for at once, which divide all."""
    most = max(TEXELS_AT_ONCE // pixels, 1)
    return max(n for n in range(1, most + 1) if blocks % n == 0)


def _made(
    work: ExpansionWork, rows: int, columns: int, blocks: int, threads: int
) -> list[tuple[int, int]]:
    """The ways to share the output among threads that read the least."""

    def reads(made: tuple[int, int]) -> float:
        items = rows * columns * blocks // (made[0] * made[1])
        return math.ceil(items / threads) * (_held(work, made) + made[0] * work.taps)

    suited = [made for made in MADE if not rows % made[0] and not columns % made[1]]
    return sorted(suited, key=reads)[:MADE_TRIED]


def _held(work: ExpansionWork, made: tuple[int, int]) -> int:
    """Wide pixels that so many rows and columns of the output read."""
    return rows_read(work.depthwise, made[0]) * len(work.depthwise.columns(made[1]))


def shared_bytes(work: ExpansionWork, tile: ExpansionTile, region: Region) -> int:
    """Local memory of a work-group."""
    per_load = HALVES_A_LOAD // LANES if work.half else 1
    loads = tile.window(work.source.blocks) * LANES * tile.group_blocks // per_load
    weights = -(-loads // tile.threads) * tile.threads * per_load
    pixels = region.held * tile.group_blocks
    taps = (work.taps + 1) * tile.group_blocks
    return ((weights + pixels) * work.element_bytes + taps * FLOAT_BYTES) * LANES


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """What one thread does."""

    alu: float
    """Instructions of the arithmetic pipe; those of half arithmetic are as long as they take."""
    slots: float
    """Instructions and empty slots."""
    reads: float
    """Vectors to and from local memory."""
    texels: float
    """That are read, and stored."""
    waits: float


@lru_cache(maxsize=MOST_KNOWN)
def scored(work: ExpansionWork, limits: Limits, machine: Machine) -> Scored[ExpansionTile]:
    """The tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits), lambda tile: estimate_clocks(work, tile, machine, limits)
    )


def estimate_clocks(
    work: ExpansionWork, tile: ExpansionTile, machine: Machine, limits: Limits
) -> float:
    """Clocks of both on the target."""
    region, e = work.region(tile), work.out
    counts = _counts(work, tile, region, machine)
    busiest = max(
        WAVE * counts.alu / machine.lanes,
        WAVE * counts.texels / machine.texels_of(work.storage_bytes),
        counts.reads * LOCAL_READ_CLOCKS,
    )
    waves = math.ceil(tile.threads / WAVE)
    groups = region.down.count * region.across.count * e.n
    groups *= math.ceil(e.blocks / tile.group_blocks)
    serial = 2 * counts.slots + counts.waits * BUFFER_LATENCY_CLOCKS
    registers = _registers(work, tile)
    if registers > machine.registers / 2:  # what does not fit goes to memory
        serial *= SPILLED
    shared = shared_bytes(work, tile, region)
    by_memory = machine.waves_of_groups(tile.threads, shared, limits.local_mem_bytes)
    resident = max(1, min(machine.resident_waves(registers), by_memory))
    pipes = machine.clocks(groups * waves, busiest, serial, resident)
    return machine.with_memory(pipes, machine.memory_clocks(_bytes(work)), resident)


def _counts(work: ExpansionWork, tile: ExpansionTile, region: Region, machine: Machine) -> _Counts:
    """Both phases, each of whole rounds of all threads."""
    items = region.runs(tile.pixels) * region.down.computed * tile.bands
    rounds = math.ceil(items / tile.threads)
    blocks = tile.window(work.source.blocks)
    turns, texels = blocks // tile.unroll, blocks * tile.pixels
    sums = tile.pixels * tile.out_blocks
    mads = blocks * sums * LANES * LANES
    finish = work.finish_work + (HALF_ALU if work.half else 0)
    wide_alu = ROUND_ALU + TURN_ALU * turns + TEXEL_ALU * texels + sums * finish
    wide_slots = ROUND_SLOTS + TURN_SLOTS * turns + TEXEL_SLOTS * texels
    wide_slots += sums * (finish + STORE_SLOTS + (SHIFTED_SLOTS if region.shifted else 0))
    made = (tile.made_rows, tile.made_columns)
    outputs, held = math.prod(made), _held(work, made)
    places, made_rounds = tile.made_rounds[0], math.prod(tile.made_rounds)
    taps = tile.made_rows * work.taps
    of_blocks = tile.out_blocks if work.finish_work else 0
    of_taps = float(outputs * (work.taps * LANES + work.epilogue_work))
    of_taps += held * (HELD_ALU if work.half else 0)
    return _Counts(
        alu=rounds * (mads / (machine.half_rate if work.half else 1.0) + wide_alu)
        + places * PLACE_ALU
        + made_rounds * (MADE_ALU + outputs * OUTPUT_ALU + of_taps),
        slots=rounds * (mads + wide_slots)
        + places * PLACE_SLOTS
        + made_rounds * (MADE_SLOTS + outputs * OUTPUT_SLOTS + taps + of_taps),
        reads=_brought(work, tile, region)
        + rounds * (blocks * LANES * tile.out_blocks + sums + of_blocks)
        + made_rounds * (held + taps),
        texels=rounds * texels + made_rounds * outputs,
        waits=rounds * turns + made_rounds + WAITS,
    )


def _brought(work: ExpansionWork, tile: ExpansionTile, region: Region) -> int:
    """Vectors that a thread stores before the products: weights, taps, zeros."""
    weights = tile.window(work.source.blocks) * LANES * tile.group_blocks
    zeros = region.held * tile.group_blocks if region.padded else 0
    return TAPS_STORED + sum(math.ceil(count / tile.threads) for count in (weights, zeros))


def _registers(work: ExpansionWork, tile: ExpansionTile) -> float:
    """Full registers of four that a thread needs, in the phase that needs more."""
    return max(_registers_of_wide(work, tile), _registers_of_output(work, tile))


def _registers_of_wide(work: ExpansionWork, tile: ExpansionTile) -> float:
    sums, unroll = tile.pixels * tile.out_blocks, tile.unroll
    wide = float(sums + unroll * tile.pixels)
    # Compilers finish all sums at once, in float.
    finished = sums * (FINISHED_HALF if work.half else FINISHED_FLOAT) + tile.out_blocks
    if work.half:
        parts, _ = tile.parts(tile.window(work.source.blocks), half=True)
        totals = sums if parts > 1 else 0
        wide = (wide + totals + HALF_WEIGHTS * unroll * tile.out_blocks) / 2 + WIDE_HALF
        finished += totals / 2 + (BANDS_HALF if tile.bands > 1 else 0.0) - ONE_BAND_HALF
    else:
        wide += unroll * tile.out_blocks + WIDE_FLOAT
    return max(wide, finished) if work.finish_work else wide


def _registers_of_output(work: ExpansionWork, tile: ExpansionTile) -> float:
    rows = rows_read(work.depthwise, tile.made_rows)
    if tile.made_rows == 1 and rows > UNROLLED_ROWS:  # a loop, which compilers keep
        rows = LOOPED_ROWS
    held = rows * len(work.depthwise.columns(tile.made_columns))
    outputs = tile.made_rows * tile.made_columns
    if work.half:
        return outputs * OUTPUT_HALF + held * AHEAD_HALF + MADE_HALF
    return outputs * OUTPUT_FLOAT + held * AHEAD_FLOAT + MADE_FLOAT


def _bytes(work: ExpansionWork) -> int:
    """What memory has to move: the input, the output, weights and taps."""
    source, out = work.source, work.out
    vectors = source.n * source.h * source.w * source.blocks
    vectors += out.n * out.h * out.w * out.blocks + source.blocks * LANES * out.blocks
    return (vectors * work.storage_bytes + out.blocks * work.taps * FLOAT_BYTES) * LANES
