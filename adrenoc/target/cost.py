"""All fitted constants, `target.cost.<family>.<name>`, and how tables of `targets/cost/` are read.

A file `NAME.toml` has a `title`, a `base` (the name of another file, or none), `[sources]`, and a
table for each family with values as in every target file.  A GPU's file names one as its base, and
may have values of its own, which is what measurements on one device end in:

    [cost]
    base = "a7xx"

    [cost.conv_local]
    k_step_slots = { value = 41.0, source = "fitted to an Adreno 750, driver E031.45, 2026-12-01" }
"""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from adrenoc.base.text.spelling import did_you_mean
from adrenoc.target.conv_cost import (
    ConvConstantsCost,
    ConvDotCost,
    ConvLocalCost,
    ConvMatricesCost,
    ConvTextureCost,
    DepthwiseCost,
    ExpansionCost,
    SeparableCost,
    Sizes,
    WinogradConvCost,
    WinogradInstructions,
    WinogradTransformCost,
)
from adrenoc.target.sourced import SourcedFile


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
    most_registers: int
    """Registers that instructions of a thread can name, however few threads there are."""
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
    """How many times as fast one way to compute something has to be as the other.  Estimates of
    different kernels err by more than those of schedules of one."""

    pair: float
    """One kernel for a depthwise and a 1x1 convolution, beside two."""
    winograd: float
    """Winograd's algorithm in one kernel, beside the convolution as it is: it loses digits too."""
    winograd_three: float
    """Winograd's algorithm in three kernels, with memory for planes, beside each single one."""
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


@dataclass(frozen=True, kw_only=True)
class GemvCost:
    """Few vectors by a constant matrix."""

    splits: Sizes
    threads: Sizes
    threads_of_layers: Sizes
    """Threads that a work-group may have which computes the layer before it too."""
    unrolls: Sizes
    """Input blocks a k-step; of schedules that are alike the first is taken, for its weights come
    from memory and two reads are under way."""
    texel_slots: float
    loop_slots: float
    barrier_clocks: int
    other_registers: int


@dataclass(frozen=True, kw_only=True)
class NBitsCost:
    """Fitted numbers of products by weights of few bits, for one token or many; a k-step is one
    word for each output."""

    tokens: Sizes
    few_tokens: int
    """Tokens for which weights are opened once for all that a thread serves: of more tokens, a
    work-group opens them in local memory, once for all of its threads."""
    blocks: Sizes
    most_sums: int
    """Vectors of sums a thread: beyond, few waves are left to hide each other's reads."""
    splits: Sizes
    threads: Sizes
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
    loop_slots: float
    barrier_clocks: int
    other_registers: int


@dataclass(frozen=True, kw_only=True)
class MatmulCost:
    """Fitted numbers of a product of two activations."""

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
    parts: Sizes
    """Parts of the keys, with threads of their own."""
    unrolls: Sizes
    """Blocks of depth, or of four keys, whose texels a thread may ask for before it waits."""
    most_threads: int
    most_key_blocks: int
    """The most vectors of scores, by four, that stay in registers beside the rest."""
    row_sets: Sizes
    """Sets of four query rows a thread."""
    texel_slots: float
    run_slots: float
    """Slots of a run beside reads and multiply-adds: maxima, exponentials, barriers."""
    run_waits: int
    """How often a run waits beside for its texels: at barriers, and for the first texels."""
    exponential_slots: float
    registers: int
    """Registers of a thread beside its scores, as the ISA of built kernels shows."""
    key_block_registers: int
    """Registers of each vector of scores."""
    row_set_registers: int
    """Registers of each further set of rows: what they have mixed, largest scores and sums."""


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
    fold_clocks: float


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
    rows_beside: int
    """Rows along W that a work-group takes, where its teams are apart."""
    narrow: int
    """The fewest rows along W for which teams are apart."""
    threads: int
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


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What estimates reckon with, a table of `targets/cost/*.toml` each."""

    name: str
    pipes: PipeCost
    unstated: UnstatedCost
    work_groups: WorkGroupCost
    joins: JoinCost
    map: MapCost
    conv_texture: ConvTextureCost
    conv_local: ConvLocalCost
    conv_constants: ConvConstantsCost
    conv_matrices: ConvMatricesCost
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


UNKNOWN = "unknown"
"""The table of GPUs whose files name none."""
HEADER = {"title", "base", "sources"}
_AND_OWN = " and its own"
"""Of the name of a table that a GPU's own file has values over."""

NO_COSTS = ("most_", "alike_share")
"""How keys begin that bound what is tried."""

Sourced = tuple[Cost, dict[str, str]]
"""Constants, with their sources by "cost.FAMILY.KEY"."""


@cache
def families() -> Mapping[str, type]:
    """Return the record of each table."""
    hints: dict[str, type] = typing.get_type_hints(Cost)
    return {name: kind for name, kind in hints.items() if kind is not str}


class CostTables:
    """The cost files of one folder of targets, each read at most once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cost"
        self._known: dict[str, Sourced] = {}

    @property
    def names(self) -> list[str]:
        """Files that a GPU can name."""
        return sorted(path.stem for path in self._folder.glob("*.toml"))

    def read_file(self, file: SourcedFile, under: Sourced | None = None) -> Sourced:
        """Return the constants of a GPU by its file; `under` are those of the device that the file
        builds on, where it names no table itself."""
        own = file.table("cost")
        file.check_keys(own, {"base", *families()}, "cost")
        if under is None or "base" in own:
            base = file.text(own, "base", "cost") if "base" in own else UNKNOWN
            under = self._read_base(file, "cost.base", base)
        if not any(table for key, table in own.items() if key != "base"):
            return under
        cost, sources = _lay_over(file, under, "cost.")
        name = f"{cost.name.removesuffix(_AND_OWN)}{_AND_OWN}"
        return dataclasses.replace(cost, name=name), sources

    def read_named(self, name: str, above: tuple[str, ...] = ()) -> Sourced:
        """Return the constants of a file of this folder; `above` are files that build on it."""
        if name not in self._known:
            file = SourcedFile(self._folder / f"{name}.toml")
            file.check_keys(file.tables, HEADER | set(families()))
            file.text(file.tables, "title")
            under = None
            if "base" in file.tables:
                base = file.text(file.tables, "base")
                if base in (*above, name):
                    raise file.wrong(
                        "base", f"seen {base!r}", "a file that does not build on this one"
                    )
                under = self._read_base(file, "base", base, (*above, name))
            cost, sources = _lay_over(file, under, "")
            self._known[name] = dataclasses.replace(cost, name=name), sources
        return self._known[name]

    def _read_base(
        self, file: SourcedFile, key: str, base: str, above: tuple[str, ...] = ()
    ) -> Sourced:
        if base not in self.names:
            guess = did_you_mean(base, self.names)
            raise file.wrong(key, f"seen {base!r}{guess}", "one of " + ", ".join(self.names))
        return self.read_named(base, above)


def _lay_over(file: SourcedFile, under: Sourced | None, within: str) -> Sourced:
    """Return what a file builds on with its own values over it; a file on nothing states all."""
    tables: dict[str, Any] = {}
    sources = {} if under is None else dict(under[1])
    for family, record in families().items():
        section = f"{within}{family}"
        values = file.read_stated(record, section)
        for key in values:
            sources[f"cost.{family}.{key}"] = file.sources.pop(f"{section}.{key}")
        if under is not None:
            tables[family] = dataclasses.replace(getattr(under[0], family), **values)
            continue
        for field in dataclasses.fields(record):
            if field.name not in values:
                expected = "{ value = ..., source = ... } here or in its base"
                raise file.wrong(f"{family}.{field.name}", "missing", expected)
        tables[family] = record(**values)
    return Cost(name="" if under is None else under[0].name, **tables), sources
