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
    """Rows of pixels that a thread may make."""
    pixels: Sizes
    """Pixels of each row that a thread may make."""
    widths: Sizes
    """Threads along W in a work-group."""
    heights: Sizes
    """Threads along H in a work-group."""
    most_multiplies: int
    """The most multiply-adds of vectors in one kernel: they are written out, and compilers take
    long over long kernels."""
    start_slots: float
    """Slots of a thread beside its reads, multiply-adds and stores."""
    texel_slots: float
    """Slots of each texel that is read."""
    store_slots: float
    """Slots of each texel that is stored."""
    word_slots: float
    """Slots of a word of bytes: its address in a buffer, that of the nearest pixel inside, and a
    choice."""
    row_slots: float
    """Slots of a kernel row that is one pass of a loop."""
    start_waits: int
    """How often a thread waits, beside once for each kernel row."""
    other_registers: int
    """Registers that have to be free beside vectors, or some of these go to memory."""
    taps_ahead: float
    """Registers for each tap that compilers read ahead."""
    texels_ahead: float
    """Registers for each texel that compilers read ahead."""


@dataclass(frozen=True, kw_only=True)
class SeparableCost:
    """A depthwise convolution with the 1x1 convolution after it."""

    shared_bytes: Sizes
    """Bytes of local memory of a work-group that are worth a try."""
    pixels: Sizes
    """Pixels, neighbours along W, that a thread may make."""
    out_blocks: Sizes
    """Output blocks that a thread may make of each pixel."""
    split_k: Sizes
    """Threads that may share a sum."""
    most_sums: int
    """The most vectors of sums that a thread keeps."""
    most_texels: int
    """The most texels that a thread asks for at once, where all rows of taps are written out."""
    most_blocks_a_part: int
    """The most input blocks whose products are added up in half precision."""
    fewest_threads: int
    """The fewest threads of a work-group."""
    texel_alu: float
    """Arithmetic instructions of a texel: its column and row as floats."""
    texel_slots: float
    """Slots of a texel beside its read."""
    row_alu: float
    """Arithmetic instructions of a row of taps that stays one pass of a loop."""
    row_slots: float
    """Slots of a row of taps that stays one pass of a loop."""
    chunk_waits: int
    """How often a thread waits for each chunk."""
    last_waits: int
    """How often a thread waits after its loops."""
    other_registers: float
    """Registers that coordinates, loop counters and pointers take."""
    chunk_registers: float
    """Further registers where chunks follow each other."""
    finish_registers: float
    """Further registers of a bias and an activation between the two convolutions."""
    stride_registers: float
    """Further registers of coordinates where pixels lie apart."""
    float_registers: float
    """Further registers of weights in floats where rows of taps are a loop, and no strides."""


@dataclass(frozen=True, kw_only=True)
class ExpansionCost:
    """A depthwise convolution with the 1x1 convolution before it, whose pixels are the wide ones.

    The clocks of a work-group are those of its two phases.
    """

    pixels: Sizes
    """Wide pixels, neighbours along W, that a thread may compute at a time."""
    out_blocks: Sizes
    """Wide blocks that a thread may compute of each pixel."""
    bands: Sizes
    """Threads that may share the wide blocks of the same pixels."""
    most_sums: int
    """The most vectors of sums that a thread keeps."""
    most_blocks: int
    """The most wide blocks of a work-group."""
    texels_at_once: int
    """The most texels that a thread asks for at once: of more, compilers keep the weights in
    registers, too."""
    made_sides: Sizes
    """Rows, and columns, of the output that a thread may make at a time."""
    most_made: int
    """The most pixels of the output that a thread makes at a time."""
    made_tried: int
    """How many rectangles of output pixels are tried for each work-group."""
    fewest_pixels: int
    """The fewest pixels of the rectangle that local memory keeps of one block."""
    most_pixels: int
    """The most pixels of the rectangle that local memory keeps of one block."""
    fewest_a_side: int
    """The fewest rows, and columns, of the output that a work-group makes."""
    most_rounds: int
    """The most times that a work-group's threads begin to compute wide pixels."""
    most_empty: float
    """The most rows and columns of all rectangles for each that is there."""
    round_alu: float
    """Arithmetic instructions of each time that a thread begins to compute wide pixels."""
    round_slots: float
    """Slots of each time that a thread begins to compute wide pixels."""
    k_step_alu: float
    """Arithmetic instructions of a k-step beside multiply-adds."""
    k_step_slots: float
    """Slots of a k-step beside reads and multiply-adds."""
    texel_alu: float
    """Arithmetic instructions of a texel that is read."""
    texel_slots: float
    """Slots of a texel that is read, beside the read itself."""
    half_alu: float
    """Arithmetic instructions of a vector of halves that becomes floats, and halves again."""
    held_alu: float
    """Arithmetic instructions of a vector of halves that becomes floats."""
    store_slots: float
    """Slots of a wide pixel that is stored to local memory."""
    shifted_slots: float
    """Slots of a test whether a wide pixel belongs to the work-group."""
    place_alu: float
    """Arithmetic instructions that find a place in the rectangle."""
    place_slots: float
    """Slots that find a place in the rectangle."""
    made_alu: float
    """Arithmetic instructions of each time that a thread begins to make output pixels."""
    made_slots: float
    """Slots of each time that a thread begins to make output pixels."""
    output_alu: float
    """Arithmetic instructions of each output pixel."""
    output_slots: float
    """Slots of each output pixel."""
    taps_stored: int
    """Vectors of taps, and of what else is read of each channel, that a thread brings to local
    memory."""
    waits: int
    """How often a thread waits, beside once a k-step and once where it makes output."""
    wide_half_registers: float
    """Registers of coordinates and pointers in the first phase, where arithmetic is in halves."""
    wide_float_registers: float
    """Registers of coordinates and pointers in the first phase, where arithmetic is in floats."""
    made_half_registers: float
    """Registers of coordinates and pointers in the second phase, beside wide pixels in halves."""
    made_float_registers: float
    """Registers of coordinates and pointers in the second phase, beside wide pixels in floats."""
    finished_half_registers: float
    """Registers for each sum of halves that is finished, beside what is read of each block."""
    finished_float_registers: float
    """Registers for each sum of floats that is finished, beside what is read of each block."""
    bands_half_registers: float
    """Further registers where threads make different blocks and arithmetic is in halves."""
    saved_half_registers: float
    """Registers that arithmetic in halves takes less, whatever else holds."""
    weights_half_registers: float
    """Registers, in halves, for each block of weights of a k-step that waits."""
    ahead_half_registers: float
    """Registers for each wide pixel in halves, of the rows that compilers read ahead."""
    ahead_float_registers: float
    """Registers for each wide pixel in floats, of the rows that compilers read ahead."""
    output_half_registers: float
    """Registers for each output pixel, which is a float, beside wide pixels in halves."""
    output_float_registers: float
    """Registers for each output pixel beside wide pixels in floats."""
    looped_rows: int
    """Rows that compilers read ahead where the loop over the rows of taps stays one."""
