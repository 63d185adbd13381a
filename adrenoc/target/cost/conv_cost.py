"""What convolutions take beside their multiply-adds, and which of their schedules are tried.

`slots` are instructions and empty slots of one thread, `alu` those of them that take the arithmetic
pipe, `waits` how often it waits for a buffer or at a barrier, `registers` full ones, of four
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ConvTextureCost:
    """Weights as texels, or from a buffer, each thread its own."""

    pixels: Sizes
    """Of a thread, neighbours along W."""
    out_blocks: Sizes
    """Of a thread."""
    most_sums: int
    """Vectors of sums a thread: beyond, no listed GPU keeps two waves in flight."""
    narrowest_group: int
    """Threads along W in a work-group, where the image has so many."""
    sides: Sizes
    """Threads of a work-group along an axis."""
    most_whole: int
    """Threads along an axis that a work-group takes as they are, power of two or not."""
    address_registers: int
    """That coordinates, loop counters and pointers take, as the ISA of built kernels shows."""
    texel_slots: float
    """A texture read beside itself: coordinates to float, centred, in a row."""
    half_load_slots: float
    """The same of a 16-byte load of halves, which are then taken apart."""
    float_load_slots: float
    loop_slots: float
    start_slots: float
    """Before the loops."""
    end_slots: float
    """After them, for each sum."""
    end_alu: float


@dataclass(frozen=True, kw_only=True)
class ConvLocalCost:
    """Weights in local memory.

    One pass of the innermost loop, a k-step, takes one input block and one kernel row.
    """

    pixels: Sizes
    out_blocks: Sizes
    most_sums: int
    widths: Sizes
    """Threads along W in a work-group; whole rows where they are short."""
    heights: Sizes
    most_whole_row: int
    """Threads along W that are taken as they are."""
    most_whole_column: int
    split_k: Sizes
    """Threads that share a sum."""
    unrolls: Sizes
    """Input blocks a k-step."""
    fewest_threads: int
    """Of a work-group that could share its sums more."""
    shared_bytes: int
    """Local memory for the weights of a work-group: a quarter of what the listed GPUs have, so
    that several work-groups run beside each other."""
    alike_share: float
    """Of the longest chunk that fits, what one has to have at least of which all are alike."""
    most_padding: float
    """Input blocks with those that fill up the last k-step, for each that is there."""
    k_step_slots: float
    """Of a k-step of the loop beside reads and multiply-adds."""
    k_step_alu: float
    texel_slots: float
    """For each texel: its column as a float."""
    texel_alu: float
    numbers_alu: float
    """Of each load of an image's numbers, which has an address of 64 bits."""
    pixel_alu: float
    """Of each texel that is put together of them."""
    chunk_slots: float
    """To bring a chunk."""
    chunk_alu: float
    load_slots: float
    """For each load of it."""
    load_alu: float
    chunk_waits: float
    end_waits: float
    texels_a_wait: int
    float_loads_a_wait: float
    """Of the numbers of an image."""
    half_loads_a_wait: float
    """The same of those that become halves."""
    end_slots: float
    split_k_slots: float
    """At the end, for each sum and each halving of the splits."""
    other_registers: float
    """That coordinates, loop counters and pointers take."""
    split_k_registers: float
    """More of them where splits are added."""
    taps_registers: float
    """Where a row has several taps."""
    stride_registers: float
    """Where the pixels of neighbours lie apart."""
    waiting_weights: int
    stem_registers: float
    """In place of `other_registers` of the only input block: no loop over k-steps, whose counters
    and pointers would be kept."""
    bands_registers: float
    stem_weights: int
    narrow_row: int
    """Taps of a row of an image whose loads share their addresses."""
    word_registers: float
    """Of bytes: for each load, which has an address of 64 bits."""
    words_registers: float
    """Of bytes, beside them."""
    words_split_k_registers: float


@dataclass(frozen=True, kw_only=True)
class ConvDotCost:
    """Convolutions that multiply bytes: what a load takes beside itself."""

    load_work: int
    """Instructions: its address."""
    edge_work: int
    """Those of the nearest pixel where it may lie outside, with a choice for each of its words."""


@dataclass(frozen=True, kw_only=True)
class WinogradConvCost:
    """Winograd's algorithm in one kernel."""

    tiles: Sizes
    """Of a plane that a thread multiplies."""
    out_blocks: Sizes
    columns: Sizes
    """Threads beside each other that share their weights."""
    bands: Sizes
    split_k: Sizes
    chunks: Sizes
    """Input blocks in local memory at a time."""
    unrolls: Sizes
    most_threads: int
    most_shared_bytes: int
    """Of a work-group: so much of a GPU that two of them run beside each other."""
    most_sums: int
    """Of a thread, in vectors."""
    few_columns: int
    """Below, each weight is read by so few threads that local memory only delays it."""
    most_padding: float
    """Input blocks with those that fill up the last chunk, for each that is there."""
    widened: float
    """What a load of halves takes that become floats, for each of floats."""
    texel_slots: float
    """A texel of weights in the place of such a load, whatever it holds: a coordinate of its own as
    a float beside two that it shares."""
    texel_alu: float
    chunk_waits: float
    """Most of them at barriers."""
    end_waits: float
    half_registers: float
    """That coordinates, loop counters and pointers take, in halves."""
    float_registers: float
    split_k_registers: float
    load_registers: float
    """Of a load with its address."""
    texels_a_row: int
    """That a thread reads for a row of a transformed tile."""
    waves_at_once: int
    """Waves start in pairs: a kernel with barriers gets half of the registers, and spills the
    rest."""


@dataclass(frozen=True, kw_only=True)
class WinogradInstructions:
    """Instructions of Winograd's one kernel beside its multiply-adds, for one thread."""

    start: float
    chunk: float
    k_step: float
    """Of the loop over the input blocks of a chunk."""
    own: float
    """A load of weights that are not shared; others count with the chunk."""
    flush: float
    """Each sum of an input block."""
    end: float
    """Each output block."""


@dataclass(frozen=True, kw_only=True)
class WinogradTransformCost:
    """The transforms before and after, where they are kernels of their own."""

    texel_slots: float
    """Of a texel that is read or stored."""
    texel_alu: float
    registers: int
    """Beside the rows that a thread holds."""
