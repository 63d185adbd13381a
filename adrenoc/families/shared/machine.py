"""What cost models need of a GPU: the rates of one micro shader processor.

Rates that the target file does not state are those of the Adreno 660, the slowest pipe ratio of
the listed GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adrenoc.target.gpu import Performance

WAVE = 128
"""Threads that run in step where a kernel fills them; half arithmetic is fast only so."""
BYTES_PER_CLOCK = 64.0
"""Of texels, of buffers and of local memory, each, per micro shader processor."""
LOCAL_READ_CLOCKS = 8.0
"""Of a wave that reads one vector a thread from local memory."""
TEXTURE_LATENCY_CLOCKS = 150
BUFFER_LATENCY_CLOCKS = 300
SPILLED = 4.0
"""How much longer a thread takes whose registers go to memory."""
UNHIDDEN = 0.02
"""Of the lesser of the time of the pipes and that of memory, what is not hidden by the other where
enough waves are resident."""
ENOUGH_REGISTERS = 16
"""Full registers a thread that leave enough waves: four on an Adreno 660, six on a 750."""
LOCAL_GRAIN = 1024
"""Bytes of local memory are given to work-groups in such pieces."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the model needs of a GPU, per micro shader processor."""

    processors: int
    lanes: float
    half_rate: float
    texels: float
    registers: int
    dram_bytes: float
    """A clock, for the whole GPU."""
    texel_weights: bool
    launch_clocks: float
    """Of one more kernel in the queue; 0 where the target tells nothing."""
    winograd_least_pixels: int
    """That Winograd's algorithm in three kernels needs: phones have shown what clocks do not."""
    most_waves: int = 16
    """That one processor keeps, however few registers they take."""
    waves_together: int = 2
    """That come and go with each other: one on each of the processors that share local memory."""

    def texels_of(self, element_bytes: int) -> float:
        """Texels a clock, of four elements of so many bytes."""
        return min(self.texels, BYTES_PER_CLOCK / (4 * element_bytes))

    @staticmethod
    def of(performance: Performance) -> Machine:
        """From a target's figures; unknown ones are an Adreno 660's."""
        p = performance
        processors = (p.compute_units or 3) * (p.micro_sps_per_compute_unit or 2)
        lanes = (p.fp32_fma_lanes or 128 * processors) / processors
        texels = (p.texels_per_clock or 4 * processors) / processors
        return Machine(
            processors=processors,
            lanes=lanes,
            half_rate=p.fp16_rate or 2.0,
            texels=texels,
            registers=p.registers_vec4_per_fiber_slot or 64,
            dram_bytes=1e3 * (p.dram_gb_per_s or 35.0) / (p.clock_mhz or 840),
            texel_weights=p.texel_weights is not False,
            launch_clocks=(p.launch_us or 0.0) * (p.clock_mhz or 840),
            winograd_least_pixels=p.split_winograd_least_pixels or 1,
            most_waves=p.max_waves_per_compute_unit or 16,
            waves_together=p.wave_granularity or 2,
        )

    def memory_clocks(self, *sizes: int) -> float:
        """Clocks that DRAM needs to move so many bytes, each once.

        The second-level cache of the listed GPUs is smaller than nearly every tensor.
        """
        return sum(sizes) / self.dram_bytes

    def with_memory(self, pipes: float, memory: float, resident: float) -> float:
        """Clocks of what keeps the pipes busy for so long, and memory, with so many waves.

        Where memory is the bound, the faster of two kernels is still the better, and of two alike
        the one with more waves: they ask for more at a time.
        """
        few = max(1.0, self.registers / ENOUGH_REGISTERS / resident)
        return max(pipes, memory) + few * UNHIDDEN * min(pipes, memory)

    def resident_waves(self, registers: float) -> int:
        """Waves that fit beside each other with so many full registers a thread.

        A thread gets whole registers.
        """
        fit = min(self.most_waves, int(self.registers // max(math.ceil(registers), 1)))
        return max(1, fit - fit % self.waves_together)

    def waves_of_groups(
        self, threads: int, shared_bytes: int, local_mem_bytes: int, *, wave: int = WAVE
    ) -> int:
        """Waves of one processor whose work-groups of so many threads find local memory; 0 if none.

        A work-group has waves on each of the processors that share the memory.

        Source: Mesa, ir3.c (`ir3_get_reg_independent_max_waves`).
        """
        taken = max(1, math.ceil(shared_bytes / LOCAL_GRAIN)) * LOCAL_GRAIN
        of_group = math.ceil(threads / (wave * self.waves_together)) * self.waves_together
        return min(self.most_waves, local_mem_bytes // taken * of_group)

    def clocks(self, waves: int, busiest: float, serial: float, resident: int) -> float:
        """Clocks of so many waves of the whole GPU, so many of a processor beside each other.

        `busiest` is how long one wave keeps the pipe that it needs most, `serial` how long it
        takes alone: throughput bounds many waves, latency bounds few.
        """
        here = math.ceil(waves / self.processors)
        return max(here * busiest, math.ceil(here / resident) * serial)
