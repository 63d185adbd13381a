"""What cost models reckon with: the rates of one micro shader processor, and scored schedules.

Rates that the target file does not state are those of its cost table, `[unstated]`.  Passes weigh a
node's best estimate against another way to compute it, and the rule of the node then picks among
the same candidates: a search of thousands is made once for all who ask (`Scored`).

A tile whose actions are arrays stands for many tiles, an element each.  Cost models are written
once for both, by the words of this file.  Of numbers they do what Python
does, of arrays the same for each element, in the same order: an estimate has the same bits whether
its tile was asked for alone or among thousands.

Before -> after:
    ConvTile(pixels=1, out_blocks=2), ConvTile(pixels=4, out_blocks=2)
    ConvTile(pixels=array([1, 4]), out_blocks=array([2, 2]))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from adrenoc.ir.layout import LANES
from adrenoc.ir.options import CompileOptions
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import ConstantFile, Limits, Performance
from adrenoc.target.target import Target

T = TypeVar("T")


Column = Any
"""A number of one tile, or the array of those of many."""


def larger(first: Column, second: Column) -> Column:
    """Return the larger of two numbers."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def smaller(first: Column, second: Column) -> Column:
    """Return the smaller of two numbers."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def choose(condition: Column, then: Column, other: Column) -> Column:
    """Return the first where the condition holds, else the other; both are made for every tile."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, other)
    return then if condition else other


def round_up(number: Column) -> Column:
    """Return the least whole number that is not below."""
    if isinstance(number, np.ndarray):
        return np.ceil(number).astype(np.int64)
    return math.ceil(number)


def round_down(number: Column) -> Column:
    """Return the whole part of a number that is not negative."""
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def look_up(numbers: Column, function: Callable[[int], Any]) -> Column:
    """Return what `function` says of a whole number; it is asked once for each that differs."""
    if not isinstance(numbers, np.ndarray):
        return function(numbers)
    # `np.unique` would load NumPy's masked arrays, as long a work as a hundred such tables.
    distinct = sorted(set(numbers.ravel().tolist()))
    places = np.searchsorted(distinct, numbers)
    return np.array([function(number) for number in distinct])[places]


def is_one(actions: Column, wanted: object) -> Column:
    """Return whether an action that is no number is this one."""
    if isinstance(actions, np.ndarray):
        return np.array([action is wanted for action in actions.tolist()], dtype=bool)
    return actions is wanted


def raise_to(numbers: Column, exponent: float) -> Column:
    """Numbers to a power.  NumPy's own differs in the last bit from one processor to another."""
    if isinstance(numbers, np.ndarray):
        return np.array([number**exponent for number in numbers.tolist()], dtype=np.float64)
    return numbers**exponent


class TileTable(Sequence[T]):
    """Tiles in order, as a tile of columns; each is made as it is asked for."""

    def __init__(self, kind: type[T], actions: Mapping[str, Any], count: int) -> None:
        """`count` tiles of these actions: an array each, or what all have in common."""
        self._kind, self._actions, self._count = kind, dict(actions), count

    @property
    def columns(self) -> T:
        """Return the tile that stands for all."""
        return self._kind(**self._actions)

    def estimate(self, estimate: Callable[[T], Column]) -> np.ndarray:
        """Return what `estimate` makes of each tile."""
        if not self._count:
            return np.empty(0)
        return np.broadcast_to(np.asarray(estimate(self.columns), dtype=np.float64), self._count)

    def where(self, condition: Callable[[T], Column]) -> TileTable[T]:
        """Return those of which it holds, in the same order."""
        kept = np.broadcast_to(np.asarray(condition(self.columns), dtype=bool), self._count)
        actions = self._map_columns(lambda column: column[kept])
        return TileTable(self._kind, actions, int(np.count_nonzero(kept)))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        listed = self._map_columns(np.ndarray.tolist)
        for place in range(self._count):
            yield self._kind(**{name: _pick(value, place) for name, value in listed.items()})

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._count))]
        if not 0 <= place < self._count:
            raise IndexError(place)
        one = self._map_columns(lambda column: column[place : place + 1].tolist())
        return self._kind(**{name: _pick(value, 0) for name, value in one.items()})

    def _map_columns(self, change: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        """Return the actions, with what `change` makes of each array."""

        def change_all(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(change_all, value))
            return change(value) if isinstance(value, np.ndarray) else value

        return {name: change_all(value) for name, value in self._actions.items()}


class TileTables(Sequence[T]):
    """Tables one after the other."""

    def __init__(self, *tables: TileTable[T]) -> None:
        self._tables = tables

    def estimate(self, estimate: Callable[[T], Column]) -> np.ndarray:
        """Return what `estimate` makes of each tile, asked once a table."""
        return np.concatenate([np.empty(0), *(table.estimate(estimate) for table in self._tables)])

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._tables)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(self)[place]
        for table in self._tables:
            if place < len(table):
                return table[place]
            place -= len(table)
        raise IndexError(place)


def _pick(value: Any, place: int) -> Any:
    """Return the action of one tile: an element of a list, or of each list of a work-group."""
    if isinstance(value, tuple):
        return tuple(_pick(side, place) for side in value)
    return value[place] if isinstance(value, list) else value


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
    """Clocks of one more kernel, the host's too; 0 where the target tells nothing."""
    gap_clocks: float
    """The same of kernels that are so long that the GPU does not wait for the host."""
    winograd_least_pixels: int
    """The fewest pixels of an output for Winograd's algorithm in three kernels: phones have shown
    what clocks do not."""
    most_waves: int
    """The most waves that one processor keeps, however few registers they take."""
    waves_together: int
    """Waves that start and end together: one on each of the processors that share local memory."""
    constant_file: ConstantFile | None
    """What waves may fill of the constant file."""
    matrix_units: bool
    """Whether units multiply tiles of halves."""
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
        """Return texels a clock, of four elements of so many bytes."""
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
            launch_clocks=max(p.launch_us or 0.0, p.host_launch_us or 0.0) * clock_mhz,
            gap_clocks=(p.launch_us or 0.0) * clock_mhz,
            winograd_least_pixels=p.split_winograd_least_pixels or 1,
            most_waves=p.max_waves_per_compute_unit or u.max_waves_per_compute_unit,
            waves_together=p.wave_granularity or u.wave_granularity,
            constant_file=p.constant_file,
            matrix_units=p.matrix_units is True,
            cost=cost,
        )

    def allow(self, options: CompileOptions) -> Machine:
        """Return the same with what a compilation may use of it."""
        if options.untold_built_ins:
            return self
        return replace(self, constant_file=None, matrix_units=False)

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
        """Return clocks of a kernel that reads so many vectors of local memory a thread.  `busiest`
        is how long a wave keeps the other pipes, and `finish` makes the clocks of the kernel of how
        long it keeps the busiest of all.  Nobody knows whether wide reads take longer than narrow
        ones (`local_by_width`), so a schedule is as good as it is under both."""
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
        """Return clocks that DRAM needs to move so many bytes, each once.  The second-level cache
        of the listed GPUs is smaller than nearly every tensor."""
        return sum(sizes) / self.dram_bytes

    def overlap_with_memory(self, pipes: Column, memory: Column, resident: Column) -> Column:
        """Return clocks of what keeps the pipes busy for so long, and memory, with so many waves.
        Where memory is the bound, the faster of two kernels is still the better, and of two alike
        the one with more waves: they ask for more at a time."""
        cost = self.cost.pipes
        few = larger(1.0, self.registers / cost.enough_registers / resident)
        return larger(pipes, memory) + few * cost.unhidden * smaller(pipes, memory)

    def resident_waves(self, registers: Column) -> Column:
        """Return waves that fit beside each other with so many full registers a thread.  A thread
        gets whole registers."""
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
        `busiest` is how long one wave keeps the pipe that it needs most, `serial` how long it takes
        alone: throughput bounds many waves, latency bounds few."""
        here = round_up(waves / self.processors)
        return larger(here * busiest, round_up(here / resident) * serial)


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How a model is compiled, and what the GPU can hold and how fast it is."""

    options: CompileOptions
    limits: Limits
    machine: Machine

    @staticmethod
    def from_target(options: CompileOptions, target: Target) -> CostModel:
        """Return the cost model of a target's figures."""
        machine = Machine.from_performance(target.performance, target.cost)
        return CostModel(options=options, limits=target.limits, machine=machine.allow(options))

    @property
    def float_model(self) -> CostModel:
        """Return the cost model of the same target with arithmetic in float32."""
        return replace(self, options=replace(self.options, compute_dtype="float32"))

    @property
    def in_float32(self) -> CostModel:
        """Return the same with arithmetic and storage in float32."""
        wide = replace(self.options, compute_dtype="float32", storage_dtype="float32")
        return replace(self, options=wide)


MOST_KNOWN = 128
"""Searches that are remembered by family: a network has that many distinct layers at most."""


class Scored(Generic[T]):
    """Candidates in order, as an iterable, and the estimate of each, as a function.  Nothing is
    searched before somebody asks; any unit, less is better.  Of tables of tiles the estimate is
    asked once for all, and a tile is made for who looks at it."""

    def __init__(self, candidates: Callable[[], Iterable[T]], estimate: Callable[[T], Column]):
        self._candidates, self._estimate = candidates, estimate

    @cached_property
    def _searched(self) -> tuple[Sequence[T], np.ndarray]:
        """Return the candidates, and the estimate of each; made when somebody first asks."""
        found = self._candidates()
        if isinstance(found, (TileTable, TileTables)):
            return found, found.estimate(self._estimate)
        tiles = list(found)
        return tiles, np.array([self._estimate(tile) for tile in tiles], dtype=np.float64)

    @cached_property
    def _estimates(self) -> dict[T, float]:
        tiles, estimates = self._searched
        return dict(zip(tiles, estimates.tolist(), strict=True))

    def alone(self, tile: T) -> float:
        """Return the estimate of one tile, without those of others."""
        return float(self._estimate(tile))

    @property
    def least(self) -> float:
        """Return the least estimate; infinite where there is no candidate."""
        estimates = self._searched[1]
        return float(estimates.min()) if len(estimates) else math.inf

    def rank(self) -> Iterator[T]:
        """Return the candidates, the best first; of equals those that come first."""
        tiles, estimates = self._searched
        return (tiles[place] for place in np.argsort(estimates, kind="stable").tolist())

    def __iter__(self) -> Iterator[T]:
        return iter(self._searched[0])

    def __len__(self) -> int:
        return len(self._searched[0])

    def __call__(self, tile: T) -> float:
        """Return the estimate of a candidate, or of another tile of the family."""
        known = self._estimates.get(tile)
        return self.alone(tile) if known is None else known
