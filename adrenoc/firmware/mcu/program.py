"""The whole model as kernels with places in memory: what is printed, reported and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adrenoc.base.decision import Decision
from adrenoc.firmware.mcu.borders import border_decision
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.fold_constants import fold_constants
from adrenoc.firmware.mcu.fuse_sums import fuse_sums
from adrenoc.firmware.mcu.kernel import Kernel
from adrenoc.firmware.mcu.network import Network, sources_of
from adrenoc.firmware.mcu.operators import Reshape
from adrenoc.firmware.mcu.plan_memory import (
    Block,
    MemoryPlan,
    Overlap,
    Overlaps,
    align_words,
    plan_memory,
)
from adrenoc.firmware.mcu.rules import choose_kernel
from adrenoc.firmware.mcu.schedule import Measured, Room
from adrenoc.firmware.mcu.share_flash import share_flash

STATE = "state"
"""What the keys of blocks begin with that are kept between runs."""
_LEAST_SCRATCH = 2048
"""Bytes that an operator may always take."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Bytes of the arena that are kept between runs; so many at the `end` begin as what."""

    at: int
    size_bytes: int
    end: tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One kernel with C expressions for where its tensors lie."""

    name: str
    label: str
    kernel: Kernel
    sources: tuple[str, ...]
    result: str
    scratch: str
    state: str
    made: int
    """The tensor that it makes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Steps in order over one arena, which is the whole of the RAM but for inputs and outputs.

    `network` is what the steps compute, `original` what it was before anything was folded.
    """

    network: Network
    original: Network
    core: Core
    steps: tuple[Step, ...]
    memory: MemoryPlan
    blocks: tuple[Block, ...]
    decisions: tuple[Decision, ...]
    rooms: Mapping[int, Room]
    """What the operator that makes a tensor may take."""

    @property
    def states(self) -> tuple[State, ...]:
        """What is kept between runs."""
        found = []
        for number, step in enumerate(self.steps):
            if size := step.kernel.state_bytes:
                at = self.memory.offsets[f"{STATE}{number}"]
                found.append(State(at=at, size_bytes=size, end=step.kernel.state_end))
        return tuple(found)

    @property
    def constant_bytes(self) -> int:
        """Weights and tables in flash."""
        arrays = [array for step in self.steps for array in step.kernel.arrays]
        constants = sum(self.network.tensors[i].size_bytes for i in self.network.constants)
        return sum(array.size_bytes for array in arrays) + constants


def make_program(
    original: Network, core: Core, *, measured: Measured | None = None, spare_bytes: int = 0
) -> Program:
    """Fold what cannot vary, choose kernels and plan memory.

    Weights may take `spare_bytes` of flash beyond their bytes, where that saves instructions.
    """
    decisions = [border_decision(original.tensors[i], d) for i, d in original.dtypes.items()]
    network = fold_constants(original, decisions, group=core.channel_group)
    if core.has_dsp:
        network = fuse_sums(network, decisions)
    homes = _homes(network)
    known = measured or Measured()
    spare = share_flash(network, core, known, spare_bytes, _LEAST_SCRATCH)
    rooms = [Room(scratch_bytes=_LEAST_SCRATCH, spare_bytes=s) for s in spare]
    chosen = _choose_kernels(network, core, homes, rooms, known)
    # What the smallest arena leaves free beside an operator's tensors makes it faster.
    free = _free_bytes(network, chosen)
    rooms = [Room(scratch_bytes=f, spare_bytes=s) for f, s in zip(free, spare, strict=True)]
    roomier = _choose_kernels(network, core, homes, rooms, known)
    results = [operator.result for operator in network.operators]
    if roomier.memory.size_bytes <= chosen.memory.size_bytes:
        chosen = roomier
    kernels, blocks, memory = chosen.kernels, chosen.blocks, chosen.memory
    steps = []
    for number, (index, kernel) in enumerate(kernels):
        operator = network.operators[index]
        scratch = f"scratch{number}"
        steps.append(
            Step(
                name=f"layer{index}",
                label=network.labels[index] if network.labels else type(operator).__name__,
                kernel=kernel,
                sources=tuple(_place(network, homes, s, memory) for s in sources_of(operator)),
                result=_place(network, homes, operator.result, memory),
                scratch=_print_address(scratch, memory) if kernel.scratch_bytes else "0",
                state=_print_address(f"{STATE}{number}", memory) if kernel.state_bytes else "0",
                made=operator.result,
            )
        )
    return Program(
        network=network,
        original=original,
        core=core,
        steps=tuple(steps),
        memory=memory,
        blocks=tuple(blocks),
        decisions=(*decisions, *chosen.decisions),
        rooms=dict(zip(results, rooms, strict=True)),
    )


def _homes(network: Network) -> list[str]:
    """For each tensor, the key of the memory that holds it; reshapes share one.

    What an input and an output would share is the input's; the reshape between them is a copy.
    """
    homes = [f"tensor{index}" for index in range(len(network.tensors))]
    for index in network.constants:
        homes[index] = f"constant{index}"
    for number, index in enumerate(network.inputs):
        homes[index] = f"input{number if len(network.inputs) > 1 else ''}"
    for number, index in enumerate(network.outputs):
        if not homes[index].startswith("input"):
            homes[index] = f"output{number if len(network.outputs) > 1 else ''}"
    fixed = {home for home in homes if not home.startswith("tensor")}
    for operator in reversed(network.operators):
        if isinstance(operator, Reshape) and homes[operator.source] not in fixed:
            homes[operator.source] = homes[operator.result]
    for operator in network.operators:
        if isinstance(operator, Reshape) and homes[operator.result] not in fixed:
            homes[operator.result] = homes[operator.source]
    return homes


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chosen:
    """Kernels by the index of their operators, and the memory that they take."""

    kernels: list[tuple[int, Kernel]]
    blocks: list[Block]
    memory: MemoryPlan
    decisions: list[Decision]


def _choose_kernels(
    network: Network,
    core: Core,
    homes: Sequence[str],
    rooms: Sequence[Room],
    measured: Measured,
) -> _Chosen:
    """Return a kernel for each operator, within its room; reshapes need none."""
    decisions: list[Decision] = []
    kernels = []
    for index, operator in enumerate(network.operators):
        joined = isinstance(operator, Reshape) and homes[operator.source] == homes[operator.result]
        if not joined:
            kernel = choose_kernel(network, operator, core, rooms[index], measured, decisions)
            kernels.append((index, kernel))
    blocks, overlaps = _blocks(network, homes, kernels)
    memory = plan_memory(blocks, overlaps)
    return _Chosen(kernels=kernels, blocks=blocks, memory=memory, decisions=decisions)


def _free_bytes(network: Network, chosen: _Chosen) -> list[int]:
    """Return what lies between the tensors of each operator and the end of the arena."""
    free = [_LEAST_SCRATCH] * len(network.operators)
    for time, (index, _) in enumerate(chosen.kernels):
        ends = [
            chosen.memory.offsets[block.key] + block.size_bytes
            for block in chosen.blocks
            if block.first <= time <= block.last and not block.key.startswith("scratch")
        ]
        free[index] = max(_LEAST_SCRATCH, chosen.memory.size_bytes - max(ends, default=0) - 8)
    return free


def _blocks(
    network: Network, homes: Sequence[str], kernels: Sequence[tuple[int, Kernel]]
) -> tuple[list[Block], Overlaps]:
    """Return what lives in the arena from when to when, and what may lie over what."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    size: dict[str, int] = {}
    for time, (index, _) in enumerate(kernels):
        operator = network.operators[index]
        for tensor in (operator.result, *sources_of(operator)):
            home = homes[tensor]
            if home.startswith("tensor"):
                first.setdefault(home, time)
                last[home] = time
                size[home] = network.tensors[tensor].size_bytes
    blocks = [Block(key=k, size_bytes=size[k], first=first[k], last=last[k]) for k in first]
    overlaps: dict[tuple[str, str], Overlap] = {}
    for time, (index, kernel) in enumerate(kernels):
        operator = network.operators[index]
        result, sources = homes[operator.result], [homes[s] for s in sources_of(operator)]
        if kernel.state_bytes:
            whole = len(kernels) - 1
            state = kernel.state_bytes
            blocks.append(Block(key=f"{STATE}{time}", size_bytes=state, first=0, last=whole))
        if kernel.scratch_bytes:
            key = f"scratch{time}"
            bytes_ = kernel.scratch_bytes
            blocks.append(Block(key=key, size_bytes=bytes_, first=time, last=time))
        for place, source in enumerate(sources):
            dies = source in last and result in first and last[source] == time == first[result]
            if dies and kernel.in_place:
                overlaps[result, source] = Overlap(bytes_before=0, exact=True)
            elif dies and kernel.gap_bytes is not None and kernel.gap_source in (None, place):
                overlaps[result, source] = Overlap(bytes_before=align_words(kernel.gap_bytes))
    return blocks, overlaps


def _place(network: Network, homes: Sequence[str], tensor: int, memory: MemoryPlan) -> str:
    """Return a C expression for the place of a tensor, in bytes."""
    home = homes[tensor]
    if home in memory.offsets:
        return _print_address(home, memory)
    if network.tensors[tensor].dtype == "int8":
        return home
    return f"(int8_t *){home}" if home.startswith("output") else f"(const int8_t *){home}"


def _print_address(home: str, memory: MemoryPlan) -> str:
    return f"arena + {memory.offsets[home]}"
