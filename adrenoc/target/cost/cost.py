"""The record of all fitted constants: `target.cost.<family>.<name>`.

What products of matrices, attention and reductions take.  Words as in `conv_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.target.cost.conv_cost import (
    ConvDotCost,
    ConvLocalCost,
    ConvTextureCost,
    WinogradConvCost,
    WinogradInstructions,
    WinogradTransformCost,
)
from adrenoc.target.cost.depthwise_cost import DepthwiseCost, ExpansionCost, SeparableCost
from adrenoc.target.cost.machine_cost import (
    JoinCost,
    MapCost,
    PipeCost,
    UnstatedCost,
    WorkGroupCost,
)

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GemvCost:
    """Few vectors by a constant matrix."""

    splits: Sizes
    """Threads that may share a sum."""
    threads: Sizes
    """Threads that a work-group may have."""
    threads_of_layers: Sizes
    """Threads that a work-group may have which computes the layer before it too."""
    unrolls: Sizes
    """Input blocks a k-step; of schedules that are alike the first is taken, for its weights come
    from memory and two reads are under way."""
    texel_slots: float
    """Slots of each texel that is read."""
    loop_slots: float
    """Slots of a k-step beside reads and multiply-adds."""
    barrier_clocks: int
    """Clocks of one step of a fold in local memory: write, barrier, read."""
    other_registers: int
    """Registers that coordinates, loop counters and pointers take."""


@dataclass(frozen=True, kw_only=True)
class NBitsCost:
    """Fitted numbers of products by weights of few bits, for one token or many; a k-step is one
    word for each output."""

    tokens: Sizes
    """Tokens that a thread may serve."""
    few_tokens: int
    """Tokens for which weights are opened once for all that a thread serves: of more tokens, a
    work-group opens them in local memory, once for all of its threads."""
    blocks: Sizes
    """Blocks of four outputs that a thread may make."""
    most_sums: int
    """Vectors of sums a thread: beyond, few waves are left to hide each other's reads."""
    splits: Sizes
    """Threads that may share a sum."""
    threads: Sizes
    """Threads that a work-group may have."""
    unrolls: Sizes
    """Words a thread may ask for at a time."""
    unpack_vectors: float
    """Instructions of four lanes that make floats of four numbers of a word."""
    token_vectors: float
    """Instructions of four lanes a k-step that make a token's eight numbers ready."""
    open_slots: float
    """Slots that make floats of a number of four outputs, where many tokens share them."""
    part_vectors: float
    """Instructions of four lanes that scale the whole sum of a group of inputs, and add it."""
    read_slots: float
    """Slots of each read."""
    loop_slots: float
    """Slots of a k-step beside reads and arithmetic."""
    barrier_clocks: int
    """Clocks of one step of a fold in local memory: write, barrier, read."""
    other_registers: int
    """Registers that coordinates, loop counters and pointers take."""


@dataclass(frozen=True, kw_only=True)
class MatmulCost:
    """Fitted numbers of a product of two activations."""

    rows: Sizes
    """Rows that a thread may make."""
    blocks: Sizes
    """Blocks of four columns that a thread may make."""
    most_sums: int
    """Vectors of sums a thread: beyond, few waves are left to hide each other's reads."""
    texel_slots: float
    """Slots of each texel that is read."""
    loop_slots: float
    """Slots of a k-step beside reads and multiply-adds."""
    address_registers: int
    """Registers that coordinates, loop counters and pointers take."""


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """Attention in one kernel; a run is what lies between two steps of its softmax."""

    heights: Sizes
    """Threads along the rows of a work-group."""
    parts: Sizes
    """Parts of the keys, with threads of their own."""
    unrolls: Sizes
    """Blocks of depth, or of four keys, whose texels a thread may ask for before it waits."""
    most_threads: int
    """The most threads of a work-group."""
    most_key_blocks: int
    """The most vectors of scores, by four, that stay in registers beside the rest."""
    texel_slots: float
    """Slots of each texel that is read."""
    run_slots: float
    """Slots of a run beside reads and multiply-adds: maxima, exponentials, barriers."""
    run_waits: int
    """How often a run waits beside for its texels: at barriers, and for the first texels."""
    exponential_slots: float
    """Slots of an exponential."""
    registers: int
    """Registers of a thread beside its scores, as the ISA of built kernels shows."""
    key_block_registers: int
    """Registers of each vector of scores."""


@dataclass(frozen=True, kw_only=True)
class CachedCost:
    """Attention of few tokens over a cache; a run is as many rows as there are threads."""

    threads: Sizes
    """Threads that may share a head of a token, or a part of the rows."""
    lanes: Sizes
    """Threads of these that may share a row, which they read beside each other."""
    groups: float
    """Work-groups of one token that a processor is to have."""
    least_rows: int
    """Rows of a part, at least, with a full cache."""
    filled_parts: Sizes
    """Of how many rows of a cache one is filled, in the cases that a schedule is judged by."""
    registers: int
    """Registers of a thread beside the queries that it holds."""
    vector_slots: float
    """Slots of a vector of a key or value: its read, and what is multiplied by it."""
    folds: int
    """Folds in local memory that a run takes."""
    fold_clocks: float
    """Clocks of one step of a fold in local memory: write, barrier, read."""


@dataclass(frozen=True, kw_only=True)
class RecurrentCost:
    """Recurrent layers: one work-group that goes through the steps."""

    splits: Sizes
    """Threads that may share the sums of a block of units."""
    teams: Sizes
    """Blocks of units that may be made at the same time."""
    texels_a_wait: float
    """Texels of weights that a thread asks for before it waits."""
    barrier_clocks: float
    """Clocks of a write to local memory, a barrier and a read."""
    end_clocks: float
    """Clocks of the activations that end a step."""


@dataclass(frozen=True, kw_only=True)
class RowsCost:
    """Reductions, softmax and norms: threads that share rows."""

    teams: Sizes
    """Threads that may share a row."""
    rows_beside: int
    """Rows along W that a work-group takes, where its teams are apart."""
    narrow: int
    """The fewest rows along W for which teams are apart."""
    threads: int
    """Threads of a work-group."""
    most_threads: int
    """The most threads of a work-group: a kernel of many registers gets no more on some devices."""
    texel_slots: float
    """Slots of each texel: coordinates, conversion, and the four lanes folded."""
    fold_clocks: float
    """Clocks of one step of a fold in local memory, with its barrier."""
    apart: float
    """How many times as long texels take whose rows lie apart."""
    at_once: int
    """Texels that a thread of a team asks for before it waits."""
    registers: int
    """Registers of a thread."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What estimates reckon with, a table of `targets/cost/*.toml` each."""

    name: str
    """The name of the file, such as "a7xx"."""
    pipes: PipeCost
    unstated: UnstatedCost
    work_groups: WorkGroupCost
    joins: JoinCost
    map: MapCost
    conv_texture: ConvTextureCost
    conv_local: ConvLocalCost
    conv_dot: ConvDotCost
    winograd_conv: WinogradConvCost
    winograd_slots_half: WinogradInstructions
    """Instructions and empty slots, where arithmetic is in halves."""
    winograd_slots_float: WinogradInstructions
    winograd_alu_half: WinogradInstructions
    """What of them takes the arithmetic pipe."""
    winograd_alu_float: WinogradInstructions
    winograd_transform: WinogradTransformCost
    depthwise: DepthwiseCost
    separable: SeparableCost
    expansion: ExpansionCost
    gemv: GemvCost
    matmul: MatmulCost
    n_bits: NBitsCost
    attention: AttentionCost
    cached: CachedCost
    recurrent: RecurrentCost
    rows: RowsCost
