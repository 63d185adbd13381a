"""What cost models need of a GPU: the rates of one micro shader processor.

Rates that the target file does not state are those of its cost table, `[unstated]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.shared.tile_columns import (
    Column,
    choose,
    larger,
    raise_to,
    round_down,
    round_up,
    smaller,
)
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Performance

MHZ_A_GHZ = 1e3


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the model needs of a GPU, per micro shader processor."""

    processors: int
    lanes: float
    half_rate: float
    texels: float
    registers: int
    dram_bytes: float
    """Bytes a clock that memory moves for the whole GPU."""
    texel_weights: bool
    launch_clocks: float
    """Clocks of one more kernel in the queue; 0 where the target tells nothing."""
    winograd_least_pixels: int
    """The fewest pixels of an output for Winograd's algorithm in three kernels: phones have shown
    what clocks do not."""
    most_waves: int
    """The most waves that one processor keeps, however few registers they take."""
    waves_together: int
    """Waves that start and end together: one on each of the processors that share local memory."""
    cost: Cost
    """Fitted constants, a table for each family."""

    @property
    def wave(self) -> int:
        """Threads that run in step where a kernel fills them."""
        return self.cost.pipes.wave_threads

    @property
    def slots_a_wave(self) -> float:
        """Issue slots that an instruction of a whole wave takes."""
        return self.wave / self.cost.pipes.threads_a_slot

    def threads_of(self, group: int) -> int:
        """Threads of the waves of a work-group: small ones run as waves of half the threads."""
        return self.wave if group > self.wave // 2 else self.wave // 2

    def texels_of(self, element_bytes: int) -> float:
        """Texels a clock, of four elements of so many bytes."""
        return min(self.texels, self.cost.pipes.bytes_per_clock / (LANES * element_bytes))

    @staticmethod
    def from_performance(performance: Performance, cost: Cost) -> Machine:
        """Return the machine of a target's figures and of the cost table that it names."""
        p, u = performance, cost.unstated
        processors = (p.compute_units or u.compute_units) * (
            p.micro_sps_per_compute_unit or u.micro_sps_per_compute_unit
        )
        lanes = (p.fp32_fma_lanes or u.fp32_fma_lanes_a_micro_sp * processors) / processors
        texels = (p.texels_per_clock or u.texels_per_clock_a_micro_sp * processors) / processors
        clock_mhz = p.clock_mhz or u.clock_mhz
        return Machine(
            processors=processors,
            lanes=lanes,
            half_rate=p.fp16_rate or u.fp16_rate,
            texels=texels,
            registers=p.registers_vec4_per_fiber_slot or u.registers_vec4_per_fiber_slot,
            dram_bytes=MHZ_A_GHZ * (p.dram_gb_per_s or u.dram_gb_per_s) / clock_mhz,
            texel_weights=p.texel_weights is not False,
            launch_clocks=(p.launch_us or 0.0) * clock_mhz,
            winograd_least_pixels=p.split_winograd_least_pixels or 1,
            most_waves=p.max_waves_per_compute_unit or u.max_waves_per_compute_unit,
            waves_together=p.wave_granularity or u.wave_granularity,
            cost=cost,
        )

    def end_doubt(self) -> tuple[Machine, Machine]:
        """Return the same where wide reads of local memory take longer, and where they do not;
        itself twice where that is known."""
        if not 0.0 < self.cost.pipes.local_by_width < 1.0:
            return self, self
        sure = (replace(self.cost.pipes, local_by_width=share) for share in (1.0, 0.0))
        by_width, whatever = (replace(self, cost=replace(self.cost, pipes=pipes)) for pipes in sure)
        return by_width, whatever

    def hedge(
        self,
        busiest: Column,
        vectors: Column,
        vector_bytes: Column,
        finish: Callable[[Column], Column],
    ) -> Column:
        """Clocks of a kernel that reads so many vectors of local memory a thread.

        `busiest` is how long a wave keeps the other pipes, and `finish` makes the clocks of the
        kernel of how long it keeps the busiest of all.  Nobody knows whether wide reads take longer
        than narrow ones (`local_by_width`), so a schedule is as good as it is under both.
        """
        cost = self.cost.pipes
        narrow = larger(busiest, vectors * cost.local_read_clocks)
        wide = larger(busiest, vectors * vector_bytes * self.wave / cost.local_bytes_per_clock)
        sure = min(cost.local_by_width, 1.0)
        by_narrow, by_width = finish(narrow), finish(wide)
        both = by_width
        if sure < 1.0:
            both = raise_to(by_narrow, 1.0 - sure) * raise_to(by_width, sure)
            both = choose(by_width == math.inf, by_width, both)
        return choose(wide <= narrow, by_narrow, both)

    def memory_clocks(self, *sizes: Column) -> Column:
        """Clocks that DRAM needs to move so many bytes, each once.

        The second-level cache of the listed GPUs is smaller than nearly every tensor.
        """
        return sum(sizes) / self.dram_bytes

    def overlap_with_memory(self, pipes: Column, memory: Column, resident: Column) -> Column:
        """Clocks of what keeps the pipes busy for so long, and memory, with so many waves.

        Where memory is the bound, the faster of two kernels is still the better, and of two alike
        the one with more waves: they ask for more at a time.
        """
        cost = self.cost.pipes
        few = larger(1.0, self.registers / cost.enough_registers / resident)
        return larger(pipes, memory) + few * cost.unhidden * smaller(pipes, memory)

    def resident_waves(self, registers: Column) -> Column:
        """Waves that fit beside each other with so many full registers a thread.

        A thread gets whole registers.
        """
        whole = larger(round_up(registers), 1)
        fit = smaller(self.most_waves, round_down(self.registers // whole))
        return larger(1, fit - fit % self.waves_together)

    def waves_of_groups(
        self,
        threads: Column,
        shared_bytes: Column,
        local_mem_bytes: int,
        *,
        wave: int | None = None,
    ) -> Column:
        """Waves of one processor whose work-groups of so many threads find local memory; 0 if none.

        A work-group has waves on each of the processors that share the memory.

        Source: Mesa, ir3.c (`ir3_get_reg_independent_max_waves`).
        """
        grain = self.cost.pipes.local_grain_bytes
        taken = larger(1, round_up(shared_bytes / grain)) * grain
        together = (wave or self.wave) * self.waves_together
        of_group = round_up(threads / together) * self.waves_together
        return smaller(self.most_waves, local_mem_bytes // taken * of_group)

    def clocks(self, waves: Column, busiest: Column, serial: Column, resident: Column) -> Column:
        """Clocks of so many waves of the whole GPU, so many of a processor beside each other.

        `busiest` is how long one wave keeps the pipe that it needs most, `serial` how long it
        takes alone: throughput bounds many waves, latency bounds few.
        """
        here = round_up(waves / self.processors)
        return larger(here * busiest, round_up(here / resident) * serial)
