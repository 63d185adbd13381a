"""What all families reckon with: pipes, figures that no file states, work-groups, single maps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PipeCost:
    """One micro shader processor, where a GPU's own file has no key for it."""

    wave_threads: int
    """Threads that run in step where a kernel fills them; half arithmetic is fast only so."""
    threads_a_slot: int
    """Threads of a wave that one issued instruction serves."""
    bytes_per_clock: float
    """Bytes a clock of texels, and as many of buffers."""
    local_read_clocks: float
    """The least clocks of a wave that reads one vector a thread from local memory."""
    local_bytes_per_clock: float
    """Bytes a clock from local memory, if what a read takes grows with its width."""
    local_by_width: float
    """How sure it is that a read's time grows with its width: 1 it does, 0.5 nobody knows, and near
    0 it does not.  The estimate is that of both, as powers of this and of the rest, so that the
    least one has the least regret."""
    texture_latency_clocks: int
    """Clocks from asking for a texel to having it."""
    buffer_latency_clocks: int
    """Clocks from asking for a number of a buffer to having it."""
    spilled: float
    """How many times as long a thread takes whose registers go to memory."""
    unhidden: float
    """The share of the lesser of the pipes' time and memory's time that the other does not hide,
    where enough waves are resident."""
    enough_registers: int
    """Full registers a thread that leave enough waves: four on an Adreno 660, six on a 750."""
    local_grain_bytes: int
    """Bytes of the pieces in which local memory is given to work-groups."""


@dataclass(frozen=True, kw_only=True)
class UnstatedCost:
    """Figures that estimates take where a GPU's file lacks the one of this name."""

    compute_units: int
    micro_sps_per_compute_unit: int
    fp32_fma_lanes_a_micro_sp: float
    texels_per_clock_a_micro_sp: float
    fp16_rate: float
    registers_vec4_per_fiber_slot: int
    max_waves_per_compute_unit: int
    wave_granularity: int
    dram_gb_per_s: float
    clock_mhz: int


@dataclass(frozen=True, kw_only=True)
class WorkGroupCost:
    """Work-groups of kernels that have no other choice."""

    most_threads: int
    """The most threads that are worth a try: beyond, no listed GPU keeps two groups in flight."""
    fewest_threads: int
    """The fewest threads that are worth a try."""


@dataclass(frozen=True, kw_only=True)
class JoinCost:
    """How many times as fast one way to compute something has to be as the other.

    Estimates of different kernels err by more than those of schedules of one.
    """

    pair: float
    """One kernel for a depthwise and a 1x1 convolution, beside two."""
    winograd: float
    """Winograd's algorithm in one kernel, beside the convolution as it is: it loses digits too."""
    winograd_three: float
    """Winograd's algorithm in three kernels, which take memory for planes, beside each single
    one."""
    winograd_least_launches: float
    """The fewest launches that a convolution has to last for the algorithm: shorter ones have
    nothing to gain by it, and digits to lose."""
    prologue: float
    """Maps that are computed where a convolution reads, beside a kernel of their own."""
    image: float
    """A stem that reads the image as it is given, beside a copy in texels."""


@dataclass(frozen=True, kw_only=True)
class MapCost:
    """A kernel that computes one element from one."""

    texel_instructions: int
    """Instructions of a texel beside its arithmetic: coordinates, conversion, the store."""
