"""What convolutions take beside their multiply-adds, and which of their schedules are tried.

`slots` are instructions and empty slots of one thread, `alu` those of them that take the arithmetic
pipe, `waits` how often it waits for a buffer or at a barrier, `registers` full ones, of four
numbers.  Of keys that differ in these words, or in `half` and `float`, the first is explained.
What says no more in one table means the same in all, those of `cost.py` too:

    pixels, out_blocks      neighbours along W that a thread may make, and output blocks of each
    most_sums, unrolls      the most vectors of sums that it keeps; input blocks a k-step, or pass
    splits, split_k         threads that may share a sum; `split_k_registers` more where they do
    threads, widths, heights                threads that a work-group may have: in all, along W, H
    start, loop, k_step, end                before loops; a k-step beside reads and multiply-adds;
                                            behind loops, for each sum
    texel, chunk            of each that is read, beside the read itself
    other_registers, address_registers      of coordinates, loop counters and pointers
    barrier_clocks, fold_clocks             of a fold's step in local memory: write, barrier, read
"""

from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ConvTextureCost:
    """Fitted numbers of a convolution whose threads each read their own weights."""

    pixels: Sizes
    out_blocks: Sizes
    most_sums: int
    """Vectors of sums a thread: beyond, no listed GPU keeps two waves in flight."""
    narrowest_group: int
    """Threads along W in a work-group, where the image has so many."""
    sides: Sizes
    """Threads of a work-group along an axis."""
    most_whole: int
    """Threads along an axis that a work-group takes as they are, power of two or not."""
    address_registers: int
    """Registers of coordinates, loop counters and pointers, as built kernels' ISA shows."""
    texel_slots: float
    """Slots of a texture read beside the read itself: coordinates to float, centred, in a row."""
    half_load_slots: float
    """Slots of a 16-byte load of halves beside the load itself; they are then taken apart."""
    float_load_slots: float
    """Slots of a 16-byte load of floats beside the load itself."""
    loop_slots: float
    start_slots: float
    end_slots: float
    end_alu: float
    """Arithmetic instructions after the loops, for each sum."""


@dataclass(frozen=True, kw_only=True)
class ConvLocalCost:
    """Fitted numbers of a convolution whose weights lie in local memory.  One pass of the innermost
    loop, a k-step, takes one input block and one kernel row."""

    pixels: Sizes
    out_blocks: Sizes
    most_sums: int
    widths: Sizes
    """Threads along W in a work-group; whole rows where they are short."""
    heights: Sizes
    most_whole_row: int
    """The longest row, in threads, that a work-group takes as it is, power of two or not."""
    most_whole_column: int
    """The longest column, in threads, that a work-group takes as it is."""
    split_k: Sizes
    unrolls: Sizes
    fewest_threads: int
    """The fewest threads of a work-group that could split its sums further."""
    shared_bytes: int
    """Local memory for the weights of a work-group: a quarter of what the listed GPUs have, so
    that several work-groups run beside each other."""
    alike_share: float
    """The least share of the longest chunk that fits which a shorter chunk has to reach, for the
    sake of chunks that are all alike."""
    most_padding: float
    """The most input blocks, with those that fill the last k-step, for each that is there."""
    k_step_slots: float
    k_step_alu: float
    texel_slots: float
    """Slots of each texel that is read: its column as a float."""
    texel_alu: float
    numbers_alu: float
    """Arithmetic instructions of each load of an image's numbers, at an address of 64 bits."""
    pixel_alu: float
    """Arithmetic instructions of each texel that is put together of an image's numbers."""
    chunk_slots: float
    """Slots to bring a chunk of weights to local memory, beside its loads."""
    chunk_alu: float
    load_slots: float
    load_alu: float
    texel_load_slots: float
    """Slots of each load of a chunk whose weights come as texels."""
    texel_load_alu: float
    chunk_waits: float
    """How often a thread waits for each chunk: for its loads and at barriers."""
    end_waits: float
    texels_a_wait: int
    """Texels that a thread asks for between two waits."""
    float_loads_a_wait: float
    """Loads of an image's numbers between two waits, where they stay floats."""
    half_loads_a_wait: float
    """Loads of an image's numbers between two waits, where they become halves."""
    end_slots: float
    split_k_slots: float
    """Slots after the loops where splits are added, for each sum and each halving of the splits."""
    other_registers: float
    split_k_registers: float
    texel_registers: float
    """Registers in place of `other_registers` where weights come as texels: no pointers."""
    texel_split_k_registers: float
    """Further registers where splits are added and weights come as texels."""
    taps_registers: float
    """Further registers where a kernel row has several taps."""
    stride_registers: float
    """Further registers where the pixels of neighbouring threads lie apart."""
    waiting_weights: int
    """Vectors of weights that wait in registers for their multiply-adds."""
    norm_texel_alu: float
    """Arithmetic instructions of each texel that statistics of a norm are taken of."""
    norm_texel_slots: float
    norm_alu: float
    """Arithmetic instructions of the statistics of a pixel beside those of its texels."""
    norm_slots: float
    norm_waits: float
    """How often a thread waits for statistics at barriers."""
    stem_registers: float
    """Registers in place of `other_registers` where there is only one input block: no loop over
    k-steps, whose counters and pointers would be kept."""
    bands_registers: float
    """Further registers where threads of a work-group make different bands."""
    stem_weights: int
    """Vectors of weights that wait in registers where there is only one input block."""
    narrow_row: int
    """Taps of a row of an image whose loads share their addresses."""
    word_registers: float
    """Registers of each load of bytes, which has an address of 64 bits."""
    words_registers: float
    """Registers of a convolution of bytes beside those of its loads."""
    words_split_k_registers: float
    """Further registers of a convolution of bytes where splits are added."""


@dataclass(frozen=True, kw_only=True)
class ConvConstantsCost:
    """Assumed numbers of a convolution whose weights a wave copies to the constant file.  A k-step
    takes some input blocks and one kernel row."""

    pixels: Sizes
    out_blocks: Sizes
    most_sums: int
    unrolls: Sizes
    most_taps: int
    """The most taps of all input blocks of a k-step, where it takes several."""
    widest_row: int
    """The most taps of a kernel row, all of which are written out."""
    sides: Sizes
    """Threads of a work-group along an axis."""
    fewest_slots: int
    """The fewest waves that find a slot."""
    fewest_pixels: int
    """The fewest pixels of an output: a wave makes them all by the same weights."""
    copy_clocks: int
    """Clocks from the request of a copy until its numbers are in the file."""
    step_slots: float
    """Slots of a k-step beside reads and multiply-adds: the request, the wait, counters."""
    texel_slots: float
    """Slots of a texel beside its read: its coordinates as floats."""
    row_texel_slots: float
    """Further slots of a texel where the kernel has several taps a row."""
    start_slots: float
    end_slots: float
    other_registers: float


@dataclass(frozen=True, kw_only=True)
class ConvMatricesCost:
    """Assumed numbers of a 1x1 convolution by matrix units: nobody has published a figure."""

    tiles_high: Sizes
    """Tiles of pixels that a work-group may make."""
    tiles_wide: Sizes
    """Tiles of output channels that a work-group may make."""
    rate: float
    """Multiply-adds of matrix units for each of half arithmetic."""
    step_slots: float
    texel_slots: float
    """Slots of a texel that is brought to local memory."""
    end_slots: float
    """Slots after the loop, for each vector of four."""
    waits: float
    """How often a step waits as long as for a texel."""
    registers: float
    doubt: float
    """Times as long as the other numbers say that it is taken for: where a driver has no such
    words its threads make the tiles, and more is lost than was to be won."""


@dataclass(frozen=True, kw_only=True)
class ConvDotCost:
    """Fitted numbers of convolutions that multiply bytes: what a load takes beside itself."""

    load_work: int
    """Instructions of a load's address."""
    edge_work: int
    """Instructions that find the nearest pixel where one may lie outside, with a choice for each of
    its words."""


@dataclass(frozen=True, kw_only=True)
class WinogradConvCost:
    """Fitted numbers of Winograd's algorithm in one kernel."""

    tiles: Sizes
    """Tiles of a plane that a thread may multiply."""
    out_blocks: Sizes
    """Output blocks that a thread may make of each tile."""
    columns: Sizes
    """Threads beside each other that share their weights."""
    bands: Sizes
    """Runs of output blocks that a work-group may make."""
    split_k: Sizes
    chunks: Sizes
    """Input blocks in local memory at a time."""
    unrolls: Sizes
    """Input blocks whose operands a thread may ask for together."""
    most_threads: int
    most_shared_bytes: int
    """The most bytes of local memory of a work-group: so much of a GPU's that two groups run beside
    each other."""
    most_sums: int
    few_columns: int
    """Columns below which so few threads read each weight that local memory only delays it."""
    most_padding: float
    """The most input blocks, those that fill up the last chunk included, for each that is there."""
    widened: float
    """Times as much as a load of floats that a load takes of halves which become floats."""
    texel_slots: float
    """Slots of a texel of weights in the place of a load, whatever it holds: a coordinate of its
    own as a float beside two that it shares."""
    texel_alu: float
    chunk_waits: float
    """How often a thread waits for each chunk, mostly at barriers."""
    end_waits: float
    half_registers: float
    """Registers of coordinates, loop counters and pointers, where arithmetic is in halves."""
    float_registers: float
    split_k_registers: float
    load_registers: float
    texels_a_row: int
    """Texels that a thread reads for a row of a transformed tile."""
    waves_at_once: int
    """Waves start in pairs: a kernel with barriers gets half of the registers, spills the rest."""


@dataclass(frozen=True, kw_only=True)
class WinogradInstructions:
    """Instructions of Winograd's one kernel beside its multiply-adds, for one thread."""

    start: float
    chunk: float
    """Instructions of each chunk, weights that threads share included."""
    k_step: float
    """Instructions of a k-step of the loop over the input blocks of a chunk."""
    own: float
    """Instructions of a load of weights that are not shared; others count with the chunk."""
    flush: float
    """Instructions for each sum of an input block."""
    end: float
    """Instructions for each output block after the loops."""


@dataclass(frozen=True, kw_only=True)
class WinogradTransformCost:
    """The transforms before and after, where they are kernels of their own."""

    texel_slots: float
    """Slots of a texel that is read or stored."""
    texel_alu: float
    registers: int
    """Registers beside the rows that a thread holds."""


@dataclass(frozen=True, kw_only=True)
class DepthwiseCost:
    """A depthwise convolution alone."""

    rows: Sizes
    pixels: Sizes
    widths: Sizes
    heights: Sizes
    most_multiplies: int
    """The most multiply-adds of vectors in one kernel: they are written out, and compilers take
    long over long kernels."""
    start_slots: float
    """Slots of a thread beside its reads, multiply-adds and stores."""
    texel_slots: float
    store_slots: float
    word_slots: float
    """Slots of a word of bytes: its address, that of the nearest pixel inside, and a choice."""
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
    most_averaging_threads: int
    """Threads of a work-group that makes a whole image, and its mean."""
    averaging_slots: float
    """Slots of a thread that the mean takes."""
    averaging_reads: int
    """Vectors to and from local memory of a thread that its folds take, beside what it leaves."""


@dataclass(frozen=True, kw_only=True)
class SeparableCost:
    """A depthwise convolution with the 1x1 convolution after it."""

    shared_bytes: Sizes
    """Bytes of local memory of a work-group that are worth a try."""
    pixels: Sizes
    out_blocks: Sizes
    split_k: Sizes
    most_sums: int
    most_texels: int
    """The most texels that a thread asks for at once, where all rows of taps are written out."""
    most_blocks_a_part: int
    """The most input blocks whose products are added up in half precision."""
    fewest_threads: int
    texel_alu: float
    """Arithmetic instructions of a texel: its column and row as floats."""
    texel_slots: float
    row_alu: float
    """Arithmetic instructions of a row of taps that stays one pass of a loop."""
    row_slots: float
    chunk_waits: int
    last_waits: int
    other_registers: float
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
    The clocks of a work-group are those of its two phases."""

    pixels: Sizes
    """Wide pixels, neighbours along W, that a thread may compute at a time."""
    out_blocks: Sizes
    """Wide blocks that a thread may compute of each pixel."""
    bands: Sizes
    """Threads that may share the wide blocks of the same pixels."""
    most_sums: int
    most_blocks: int
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
    k_step_alu: float
    k_step_slots: float
    texel_alu: float
    texel_slots: float
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
    made_alu: float
    """Arithmetic instructions of each time that a thread begins to make output pixels."""
    made_slots: float
    output_alu: float
    output_slots: float
    taps_stored: int
    """Vectors of taps, and of what else each channel reads, brought to local memory."""
    waits: int
    """How often a thread waits, beside once a k-step and once where it makes output."""
    wide_half_registers: float
    """Registers of coordinates and pointers in the first phase, where arithmetic is in halves."""
    wide_float_registers: float
    made_half_registers: float
    """Registers of coordinates and pointers in the second phase, beside wide pixels in halves."""
    made_float_registers: float
    finished_half_registers: float
    """Registers for each sum of halves that is finished, beside what is read of each block."""
    finished_float_registers: float
    bands_half_registers: float
    """Further registers where threads make different blocks and arithmetic is in halves."""
    saved_half_registers: float
    """Registers that arithmetic in halves takes less, whatever else holds."""
    weights_half_registers: float
    """Registers, in halves, for each block of weights of a k-step that waits."""
    ahead_half_registers: float
    """Registers for each wide pixel in halves, of the rows that compilers read ahead."""
    ahead_float_registers: float
    output_half_registers: float
    """Registers for each output pixel, which is a float, beside wide pixels in halves."""
    output_float_registers: float
    looped_rows: int
    """Rows that compilers read ahead where the loop over the rows of taps stays one."""
