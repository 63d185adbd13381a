"""What products of matrices, attention and reductions take.  Words as in `conv_cost`."""

from __future__ import annotations

from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GemvCost:
    """Few vectors by a constant matrix."""

    splits: Sizes
    """Threads that share a sum."""
    threads: Sizes
    """Of a work-group."""
    unrolls: Sizes
    """Of schedules alike the first: its weights come from memory, and two reads are under way."""
    texel_slots: float
    loop_slots: float
    barrier_clocks: int
    """Of one step of a fold in local memory: write, barrier, read."""
    other_registers: int


@dataclass(frozen=True, kw_only=True)
class NBitsCost:
    """Weights of few bits by one token or many; a step is one word for each output."""

    tokens: Sizes
    blocks: Sizes
    """Of four outputs, a thread."""
    most_sums: int
    """Vectors of sums a thread: beyond, few waves are left to hide each other's reads."""
    splits: Sizes
    """Threads that share a sum."""
    threads: Sizes
    """Of a work-group."""
    unrolls: Sizes
    unpack_vectors: float
    """Instructions of four lanes that make floats of four numbers of a word."""
    token_vectors: float
    """A step, to make a token's eight numbers ready."""
    read_slots: float
    loop_slots: float
    barrier_clocks: int
    """Of one step of a fold in local memory: write, barrier, read."""
    other_registers: int


@dataclass(frozen=True, kw_only=True)
class MatmulCost:
    """A product of two activations."""

    rows: Sizes
    blocks: Sizes
    most_sums: int
    """Vectors of sums a thread: beyond, few waves are left to hide each other's reads."""
    texel_slots: float
    loop_slots: float
    address_registers: int


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """Attention in one kernel; a run is what lies between two steps of its softmax."""

    heights: Sizes
    """Threads along the rows of a work-group."""
    unrolls: Sizes
    most_threads: int
    most_key_blocks: int
    """Vectors of scores by four that stay in registers beside the rest."""
    texel_slots: float
    run_slots: float
    """Beside reads and multiply-adds: maxima, exponentials, barriers."""
    run_waits: int
    """How often a run waits beside: at barriers, and for the first texels."""
    exponential_slots: float
    registers: int
    """Of a thread beside its scores, as the ISA of built kernels shows."""
    key_block_registers: int


@dataclass(frozen=True, kw_only=True)
class CachedCost:
    """Attention of few tokens over a cache; a run is as many rows as there are threads."""

    threads: Sizes
    """That share a head of a token."""
    vector_slots: float
    """Of a vector of a key or value: its read, and what is multiplied by it."""
    folds: int
    """A run, in local memory."""
    fold_clocks: float


@dataclass(frozen=True, kw_only=True)
class RowsCost:
    """Reductions, softmax and norms: threads that share rows."""

    teams: Sizes
    rows_beside: int
    """Along W that a work-group takes, where it has teams apart."""
    narrow: int
    """Rows along W below which they are not taken so."""
    threads: int
    """Of a work-group."""
    most_threads: int
    """A kernel of many registers gets no more than these on some devices."""
    texel_slots: float
    """Coordinates, conversion, and the four lanes folded."""
    fold_clocks: float
    """Of a step in local memory, with its barrier."""
    apart: float
    """How many times as long texels take whose rows lie apart."""
    at_once: int
    """Texels that a thread of a team asks for before it waits."""
    registers: int
