"""Make the whole model a program: for each operator the fastest kernel that covers it on the core,
plain C at the end, with places in memory.

Three choices make it small and fast. Sums become part of the convolution before them: of t =
convolution(x); y = t + s there stays y = convolution(x) + s, a strip of pixels at a time, where s
lay. Flash beyond the weights' bytes goes to the operators that save most for it. Tensors lie in the
arena in as few bytes as are alive at once: each from the operator that makes it to the last that
reads it, apart from all others but a source that dies in making it; a result may begin so many
bytes before that source that nothing is overwritten before it is read.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from adrenoc.base.decision import Decision
from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.dsp.depthwise import depthwise_choices, paired_kernel
from adrenoc.firmware.mcu.dsp.products import covers, product_choices
from adrenoc.firmware.mcu.fixed_point import sum_product
from adrenoc.firmware.mcu.fold_constants import fold_constants
from adrenoc.firmware.mcu.kernel import (
    Choice,
    FirmwareKernel,
    Grounds,
    Measured,
    Room,
    digest_of,
    pick,
    usable,
)
from adrenoc.firmware.mcu.mve.depthwise import vector_depthwise_choices
from adrenoc.firmware.mcu.mve.products import vector_choices
from adrenoc.firmware.mcu.neon.depthwise import neon_depthwise
from adrenoc.firmware.mcu.neon.products import neon_products
from adrenoc.firmware.mcu.network import Network, border_decision, has_words
from adrenoc.firmware.mcu.operators import Convolution, Depthwise, Filter, Operator, Reshape, Sum
from adrenoc.firmware.mcu.plain import plain_kernel
from adrenoc.firmware.mcu.plain_words import word_filter, word_kernel

_Products: TypeAlias = Callable[[Convolution, Network], list[Choice]]
_Windows: TypeAlias = Callable[[Depthwise, Network], list[Choice]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedules:
    """The choices of an operator, those of a faster arithmetic first, and why that declined."""

    ways: tuple[Sequence[Choice], ...]
    refused: str = ""


def schedules_of(operator: Filter, network: Network, core: Core) -> Schedules:
    """Return all schedules of an operator on a core; none where plain C computes it."""
    refused, found = "", []
    ways = () if has_words(network, operator) else _WAYS.get(core.facts.arithmetic, ())
    for products, depthwise in ways:
        try:
            if isinstance(operator, Convolution):
                found.append(products(operator, network))
            elif isinstance(operator, Depthwise):
                found.append(depthwise(operator, network))
        except RefusedError as error:
            refused = refused or str(error)
    return Schedules(ways=tuple(found), refused=refused)


def choose_kernel(
    network: Network,
    operator: Operator,
    core: Core,
    room: Room,
    measured: Measured,
    decisions: list[Decision],
) -> FirmwareKernel:
    """Return the kernel of an operator, with a decision where a faster one declined. It takes what
    `room` allows of working memory, or the least that there is."""
    if not isinstance(operator, Filter):
        words = has_words(network, operator)
        return word_kernel(operator, network) if words else plain_kernel(operator, network)
    if has_words(network, operator):
        return word_filter(operator, network, core)
    subject, refused = network.tensors[operator.result].name, ""
    if core.facts.arithmetic == "neon":
        try:
            kernel = _processor_kernel(operator, network)
        except RefusedError as error:
            kernel, refused = plain_kernel(operator, network), str(error)
    else:
        schedules = schedules_of(operator, network, core)
        refused = schedules.refused
        if not schedules.ways:
            kernel = _plain_kernel(operator, network, core)
        else:
            digest = digest_of(operator, network, core)
            times_us = measured.times_us.get(digest, {})
            choices = [c for way in schedules.ways if (c := usable(way, digest, measured))]
            chosen, grounds = pick(choices, room, times_us)
            kernel = replace(chosen.make(), schedule=chosen.key)
            if times_us:
                decisions.append(_decide_tuned(subject, chosen, times_us, grounds))
    if refused:
        decisions.append(Decision(subject=subject, taken=kernel.how, reason=refused))
    return kernel


def _plain_kernel(operator: Filter, network: Network, core: Core) -> FirmwareKernel:
    if isinstance(operator, Depthwise) and core.has_dsp:
        with suppress(RefusedError):
            return paired_kernel(operator, network)
    return plain_kernel(operator, network)


def _decide_tuned(
    subject: str, chosen: Choice, times_us: Mapping[str, float], grounds: Grounds
) -> Decision:
    taken = ", ".join(f"{key} {value}" for key, value in chosen.actions.items())
    reason = "none that the tuning log measured fits into the arena: by the cost model"
    if grounds is Grounds.ESTIMATED:
        reason = "at the rate of those in the tuning log faster than the ones of them that fit"
    if grounds is Grounds.MEASURED:
        reason = f"the fastest of the tuning log that fits: {times_us[chosen.key]:.3f} µs there"
    return Decision(subject=subject, taken=taken, reason=reason)


def _processor_kernel(operator: Filter, network: Network) -> FirmwareKernel:
    if isinstance(operator, Convolution):
        return neon_products(operator, network)
    if isinstance(operator, Depthwise):
        return neon_depthwise(operator, network)
    raise TypeError(type(operator))


_WAYS: dict[str, tuple[tuple[_Products, _Windows], ...]] = {
    "dsp": ((product_choices, depthwise_choices),),
    "mve": ((vector_choices, vector_depthwise_choices), (product_choices, depthwise_choices)),
}
"""The schedules of convolutions and of depthwise ones, those of the faster arithmetic first."""


STATE = "state"
"""What the keys of blocks begin with that are kept between runs."""
_LEAST_SCRATCH = 2048
"""Bytes that an operator may always take."""


@dataclass(frozen=True, kw_only=True)
class ArenaState:
    """Bytes of the arena that are kept between runs; so many at the `end` begin as what."""

    at: int
    size_bytes: int
    end: tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class FirmwareStep:
    """One kernel with C expressions for where its tensors lie."""

    name: str
    label: str
    kernel: FirmwareKernel
    sources: tuple[str, ...]
    result: str
    scratch: str
    state: str
    made: int
    """The tensor that it makes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FirmwareProgram:
    """Steps in order over one arena, which is the whole of the RAM but for inputs and outputs.
    `network` is what the steps compute, `original` what it was before anything was folded."""

    network: Network
    original: Network
    core: Core
    steps: tuple[FirmwareStep, ...]
    memory: ArenaPlan
    blocks: tuple[ArenaBlock, ...]
    decisions: tuple[Decision, ...]
    rooms: Mapping[int, Room]
    """What the operator that makes a tensor may take."""

    @property
    def states(self) -> tuple[ArenaState, ...]:
        """Return what is kept between runs."""
        found = []
        for number, step in enumerate(self.steps):
            if size := step.kernel.state_bytes:
                at = self.memory.offsets[f"{STATE}{number}"]
                found.append(ArenaState(at=at, size_bytes=size, end=step.kernel.state_end))
        return tuple(found)

    @property
    def constant_bytes(self) -> int:
        """Weights and tables in flash."""
        arrays = [array for step in self.steps for array in step.kernel.arrays]
        constants = sum(self.network.tensors[i].size_bytes for i in self.network.constants)
        return sum(array.size_bytes for array in arrays) + constants


def make_program(
    original: Network, core: Core, *, measured: Measured | None = None, spare_bytes: int = 0
) -> FirmwareProgram:
    """Fold what cannot vary, choose kernels and plan memory. Weights may take `spare_bytes` of
    flash beyond their bytes, where that saves instructions."""
    decisions = [border_decision(original.tensors[i], d) for i, d in original.dtypes.items()]
    network = fold_constants(original, decisions, group=core.channel_group)
    if core.has_dsp:
        network = fuse_sums(network, decisions)
    homes = _homes(network)
    known = measured or Measured()
    spare = share_flash(network, core, known, spare_bytes)
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
        scratch, state = f"scratch{number}", f"{STATE}{number}"
        steps.append(
            FirmwareStep(
                name=f"layer{index}",
                label=network.labels[index] if network.labels else type(operator).__name__,
                kernel=kernel,
                sources=tuple(_place(network, homes, s, memory) for s in operator.sources),
                result=_place(network, homes, operator.result, memory),
                scratch=f"arena + {memory.offsets[scratch]}" if kernel.scratch_bytes else "0",
                state=f"arena + {memory.offsets[state]}" if kernel.state_bytes else "0",
                made=operator.result,
            )
        )
    return FirmwareProgram(
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
    """Return for each tensor the key of the memory that holds it; reshapes share one. What an
    input and an output would share is the input's; the reshape between them is a copy."""
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

    kernels: list[tuple[int, FirmwareKernel]]
    blocks: list[ArenaBlock]
    memory: ArenaPlan
    decisions: list[Decision]


def _choose_kernels(
    network: Network, core: Core, homes: Sequence[str], rooms: Sequence[Room], measured: Measured
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
    network: Network, homes: Sequence[str], kernels: Sequence[tuple[int, FirmwareKernel]]
) -> tuple[list[ArenaBlock], Overlaps]:
    """Return what lives in the arena from when to when, and what may lie over what."""
    lives: dict[str, ArenaBlock] = {}
    for time, (index, _) in enumerate(kernels):
        operator = network.operators[index]
        for tensor in (operator.result, *operator.sources):
            home, size = homes[tensor], network.tensors[tensor].size_bytes
            if home.startswith("tensor"):
                first = lives[home].first if home in lives else time
                lives[home] = ArenaBlock(key=home, size_bytes=size, first=first, last=time)
    blocks = list(lives.values())
    overlaps: dict[tuple[str, str], Overlap] = {}
    for time, (index, kernel) in enumerate(kernels):
        operator = network.operators[index]
        ends = (0, len(kernels) - 1)
        for key, size, (first, last) in (
            (f"{STATE}{time}", kernel.state_bytes, ends),
            (f"scratch{time}", kernel.scratch_bytes, (time, time)),
        ):
            if size:
                blocks.append(ArenaBlock(key=key, size_bytes=size, first=first, last=last))
        result = homes[operator.result]
        for place, source in enumerate(homes[s] for s in operator.sources):
            if source not in lives or result not in lives:
                continue
            if not lives[source].last == time == lives[result].first:
                continue
            if kernel.in_place:
                overlaps[result, source] = Overlap(bytes_before=0, exact=True)
            elif kernel.gap_bytes is not None and kernel.gap_source in (None, place):
                overlaps[result, source] = Overlap(bytes_before=align_words(kernel.gap_bytes))
    return blocks, overlaps


def _place(network: Network, homes: Sequence[str], tensor: int, memory: ArenaPlan) -> str:
    """Return a C expression for the place of a tensor, in bytes."""
    home = homes[tensor]
    if home in memory.offsets:
        return f"arena + {memory.offsets[home]}"
    if network.tensors[tensor].dtype == "int8":
        return home
    return f"(int8_t *){home}" if home.startswith("output") else f"(const int8_t *){home}"


def share_flash(network: Network, core: Core, measured: Measured, spare_bytes: int) -> list[int]:
    """Return how many bytes of flash each operator may take; all of them at most `spare_bytes`."""
    shares = [0] * len(network.operators)
    if not spare_bytes:
        return shares
    gains: list[tuple[float, int, int]] = []
    for index, operator in enumerate(network.operators):
        if not isinstance(operator, Filter):
            continue
        ways = schedules_of(operator, network, core).ways
        if not ways:
            continue
        digest = digest_of(operator, network, core)
        times_us = measured.times_us.get(digest, {})
        known = [usable(way, digest, measured) for way in ways]

        def take(spare: int) -> Choice:
            room = Room(scratch_bytes=_LEAST_SCRATCH, spare_bytes=spare)
            return pick(known, room, times_us)[0]  # noqa: B023  (called in this turn alone)

        lean, large = take(0), take(spare_bytes)
        if large.spare_bytes:
            gain = (lean.instructions - large.instructions) / large.spare_bytes
            gains.append((gain, large.spare_bytes, index))
    left = spare_bytes
    for gain, wanted, index in sorted(gains, reverse=True):
        if gain > 0 and wanted <= left:
            shares[index] = wanted
            left -= wanted
    return shares


_TRIES = 300
_ALIGN = 4


@dataclass(frozen=True, kw_only=True)
class ArenaBlock:
    """Something that lives in the arena while operators `first` to `last` run."""

    key: str
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class ArenaPlan:
    """Offsets in the arena by key, and its size."""

    offsets: Mapping[str, int]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """A result may lie over its source, by beginning `bytes_before` it or, unless `exact`, more."""

    bytes_before: int
    exact: bool = False


Overlaps = Mapping[tuple[str, str], Overlap]
"""How two tensors may overlap, by (result, source)."""


def plan_memory(blocks: Sequence[ArenaBlock], overlaps: Overlaps) -> ArenaPlan:
    """Return the smallest of several plans: first fit, by size and in seeded random orders."""
    orders = [
        sorted(blocks, key=lambda b: -b.size_bytes),
        sorted(blocks, key=lambda b: (b.first, -b.size_bytes)),
        sorted(blocks, key=lambda b: (-b.last, -b.size_bytes)),
    ]
    shuffle = random.Random(0)
    orders += [shuffle.sample(list(blocks), len(blocks)) for _ in range(_TRIES)]
    floor = max((align_words(block.size_bytes) for block in blocks), default=0)
    best: ArenaPlan | None = None
    for order in orders:
        found = _first_fit(order, overlaps)
        if best is None or found.size_bytes < best.size_bytes:
            best = found
        if best.size_bytes <= floor:
            break
    return best or ArenaPlan(offsets={}, size_bytes=0)


def align_words(size_bytes: int) -> int:
    """Bytes, rounded up to whole words."""
    return -(-size_bytes // _ALIGN) * _ALIGN


def _first_fit(order: Sequence[ArenaBlock], overlaps: Overlaps) -> ArenaPlan:
    placed: list[tuple[ArenaBlock, int]] = []
    for block in order:
        alive = [(b, at) for b, at in placed if b.first <= block.last and block.first <= b.last]
        candidates = {0, *(at + align_words(b.size_bytes) for b, at in alive)}
        for other, at in alive:
            for key, way in (((block.key, other.key), -1), ((other.key, block.key), 1)):
                if key in overlaps:
                    candidates.add(max(0, at + way * align_words(overlaps[key].bytes_before)))
        spots = sorted(candidates)
        spot = next(s for s in spots if all(_apart(block, s, b, at, overlaps) for b, at in alive))
        placed.append((block, spot))
    return ArenaPlan(
        offsets={block.key: at for block, at in placed},
        size_bytes=max((at + align_words(b.size_bytes) for b, at in placed), default=0),
    )


def _apart(
    block: ArenaBlock, at: int, other: ArenaBlock, other_at: int, overlaps: Overlaps
) -> bool:
    """Return whether two blocks that are alive at once may lie so."""
    if at + block.size_bytes <= other_at or other_at + other.size_bytes <= at:
        return True
    for key, before in (
        ((block.key, other.key), other_at - at),
        ((other.key, block.key), at - other_at),
    ):
        if key in overlaps:
            spare = before - overlaps[key].bytes_before
            if spare == 0 or (spare > 0 and not overlaps[key].exact):
                return True
    return False


def fuse_sums(network: Network, decisions: list[Decision]) -> Network:
    """Return the same function, with sums that a convolution can take in that convolution."""
    readers = Counter(index for o in network.operators for index in o.sources)
    makers = {operator.result: n for n, operator in enumerate(network.operators)}
    operators: list[Operator | None] = list(network.operators)
    labels = list(network.labels)
    for number, operator in enumerate(network.operators):
        if not isinstance(operator, Sum):
            continue
        made = max(operator.sources, key=lambda index: makers.get(index, -1))
        before = operators[makers[made]] if made in makers else None
        if not isinstance(before, Convolution) or not _fits(network, before, operator):
            continue
        if readers[made] != 1 or made in network.outputs:
            continue
        joined = operator if made == operator.sources[0] else _swap_operands(operator)
        operators[makers[made]] = None
        operators[number] = replace(before, result=operator.result, joined=joined)
        labels[number] = f"{labels[makers[made]]} + {labels[number]}"
        decisions.append(
            Decision(
                subject=network.tensors[operator.result].name,
                taken="added by the convolution",
                reason="a strip at a time, over the other operand",
            )
        )
    kept = [n for n, operator in enumerate(operators) if operator is not None]
    return replace(
        network,
        operators=tuple(o for o in operators if o is not None),
        labels=tuple(labels[n] for n in kept),
    )


def _swap_operands(operator: Sum) -> Sum:
    first, second = operator.tables
    return replace(
        operator,
        sources=operator.sources[::-1],
        tables=(second, first),
        wanted=None if operator.wanted is None else operator.wanted.T,
    )


def _fits(network: Network, before: Convolution, operator: Sum) -> bool:
    """Return whether a convolution can take a sum: its own code, equal shapes, two lines."""
    shapes = {network.tensors[index].shape for index in (*operator.sources, operator.result)}
    varies = not any(index in network.constants for index in operator.sources)
    if len(shapes) != 1 or before.joined is not None or not varies:
        return False
    try:
        sum_product(operator)
    except RefusedError:
        return False
    return covers(before, network)
