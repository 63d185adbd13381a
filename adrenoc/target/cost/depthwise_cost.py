"""What depthwise convolutions take, alone and together with a 1x1 convolution.

Words as in `conv_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DepthwiseCost:
    """A depthwise convolution alone."""

    rows: Sizes
    pixels: Sizes
    widths: Sizes
    """Threads along W in a work-group."""
    heights: Sizes
    most_multiplies: int
    """Of vectors in one kernel: they are written out, and compilers take long over long kernels."""
    start_slots: float
    """Of a thread beside its multiply-adds."""
    texel_slots: float
    store_slots: float
    word_slots: float
    """A word of bytes: its address in a buffer, that of the nearest pixel inside, and a choice."""
    row_slots: float
    """Of a kernel row that is a k-step of a loop."""
    start_waits: int
    """Beside those for kernel rows."""
    other_registers: int
    """That have to be free beside vectors, or some of these go to memory."""
    taps_ahead: float
    """Registers for each tap, where compilers read ahead."""
    texels_ahead: float
    """For each texel."""


@dataclass(frozen=True, kw_only=True)
class SeparableCost:
    """A depthwise convolution with the 1x1 convolution after it."""

    shared_bytes: Sizes
    """Local memory of a work-group that is worth a try."""
    pixels: Sizes
    out_blocks: Sizes
    split_k: Sizes
    most_sums: int
    most_texels: int
    """That a thread asks for at once, where all rows of taps are written out."""
    most_blocks_a_part: int
    """Input blocks whose products are added up in halves."""
    fewest_threads: int
    texel_alu: float
    """Of a texel: its column and row as floats."""
    texel_slots: float
    row_alu: float
    """Of a row of taps that stays a k-step of a loop."""
    row_slots: float
    chunk_waits: int
    last_waits: int
    other_registers: float
    chunk_registers: float
    """What is kept where chunks follow each other."""
    finish_registers: float
    """What a bias and an activation between the two take."""
    stride_registers: float
    """What coordinates take more where pixels lie apart."""


@dataclass(frozen=True, kw_only=True)
class ExpansionCost:
    """A depthwise convolution with the 1x1 convolution before it, whose pixels are the wide ones.

    The clocks of a work-group are those of its two phases.
    """

    pixels: Sizes
    out_blocks: Sizes
    bands: Sizes
    most_sums: int
    most_blocks: int
    """Of a work-group."""
    texels_at_once: int
    """That a thread asks for: of more, compilers keep the weights in registers, too."""
    made_sides: Sizes
    """Rows, and columns, that a thread makes at a time."""
    most_made: int
    """Pixels that a thread makes at a time."""
    made_tried: int
    fewest_pixels: int
    """Of the rectangle of one block that is kept."""
    most_pixels: int
    fewest_a_side: int
    """Rows, and columns, of the output that a work-group makes."""
    most_rounds: int
    most_empty: float
    """Rows and columns of all rectangles, for each that is there."""
    round_alu: float
    """Of some wide pixels."""
    round_slots: float
    k_step_alu: float
    k_step_slots: float
    texel_alu: float
    texel_slots: float
    half_alu: float
    """Of a vector that becomes float, and half again."""
    held_alu: float
    """Of one that becomes float."""
    store_slots: float
    """Of a wide pixel that is stored."""
    shifted_slots: float
    """Of a test whether it belongs to the work-group."""
    place_alu: float
    """Of a place in the rectangle."""
    place_slots: float
    made_alu: float
    """Of some output pixels."""
    made_slots: float
    output_alu: float
    """Of each of them."""
    output_slots: float
    taps_stored: int
    """Vectors of taps, and of what else is read of each channel, that a thread brings."""
    waits: int
    """Beside once a k-step, and once where it makes output."""
    wide_half_registers: float
    """What coordinates and pointers take in the first phase."""
    wide_float_registers: float
    made_half_registers: float
    """The same in the second phase."""
    made_float_registers: float
    finished_half_registers: float
    """For each sum that is finished, beside what is read of each block."""
    finished_float_registers: float
    bands_half_registers: float
    """More in halves where threads make different blocks."""
    saved_half_registers: float
    """Fewer in halves, in any case."""
    weights_half_registers: float
    """For each block of weights of a k-step that waits, in halves."""
    ahead_half_registers: float
    """For each wide pixel of the rows that compilers read ahead."""
    ahead_float_registers: float
    output_half_registers: float
    """For each output pixel, which is a float beside wide pixels of either kind."""
    output_float_registers: float
    looped_rows: int
    """That they read ahead where the loop over the rows of taps stays one."""
