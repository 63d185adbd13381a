"""Give intermediate tensors their storage, and say what the GPU holds while the model runs.

An image serves another tensor only if width, height and format agree, for the clamp border must
stay where it is; it may have more layers than are used.  A buffer serves any tensor that is not
larger.  Tensors that can share are a class of their own, packed apart from the others.  Where
textures may lie in a pool (`pool_textures`), those that can do, and all share one slot
(`docs/explanation/textures.md`).

Before -> after:
    image2d_array_t, 4 layers of 28 x 28        image2d_t, 112 x 28
    texel (x, y) of layer l at (x, y, l)        at (l * 28 + x, y), for x in 0 to 27
    x = -1 reads the border, zeros              x = -1 is sent beyond the image: zeros

What the runtime takes from the device for a request mirrors `adrenoc/native/src/opencl/memory.h`,
so that planned and allocated bytes are equal; a test on a device holds the two together.

Tensors that are never alive at once share a slot, one piece of memory.  A slot costs as much as the
largest tensor in it.  No single order of packing is best: for concatenations that grow step by step
the largest tensor has to come first, for chains the order of the program wins.  So several greedy
orders are tried and the cheapest packing is kept.

Source of the idea: Y. Pisarchyk and J. Lee, Efficient Memory Management for Deep Neural Net
Inference (2020), greedy by size and greedy by breadth for shared objects.
"""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from adrenoc.base.tvmapi import bits_of
from adrenoc.bundle.manifest import MemoryPlan, MemorySlot
from adrenoc.ir.graph import CPU, Graph
from adrenoc.ir.layout import GLOBAL, LANES, POOL, TEXTURE, Memory, OperandSpec, bytes_of
from adrenoc.ir.program import Program, Step
from adrenoc.kernels.codegen.opencl_source import Grid
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """A tensor that is alive from step `first` to step `last`, both included."""

    name: str
    first: int
    last: int
    bytes: int


def most_alive(intervals: Iterable[Lifetime]) -> tuple[int, int]:
    """(bytes, step): the most bytes that are alive at once, and the first step where they are."""
    change: dict[int, int] = defaultdict(int)
    for interval in intervals:
        change[interval.first] += interval.bytes
        change[interval.last + 1] -= interval.bytes
    alive, most, where = 0, 0, 0
    for step in sorted(change):
        alive += change[step]
        if alive > most:
            most, where = alive, step
    return most, where


def pack_slots(intervals: Sequence[Lifetime]) -> list[list[Lifetime]]:
    """Tensors by slot, such that no two in a slot are alive at once; the cheapest way found."""
    least, _ = most_alive(intervals)
    best: list[_Slot] | None = None
    for order in _SLOT_ORDERS:
        slots = _pack(sorted(intervals, key=order))
        if best is None or _cost(slots) < _cost(best):
            best = slots
        if _cost(best) == least:
            break
    return [slot.held for slot in best or []]


_SLOT_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda i: (i.first,),
    lambda i: (-i.last, -i.first),
    lambda i: (-i.bytes, i.first),
    lambda i: (-i.bytes * (i.last - i.first + 1), i.first),
    lambda i: (i.first - i.last, -i.bytes, i.first),
)


@dataclass(kw_only=True)
class _Slot:
    bytes: int = 0
    held: list[Lifetime] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) of what is held, ascending."""

    def is_free_during(self, interval: Lifetime) -> bool:
        after = bisect(self.times, (interval.first,))
        if after < len(self.times) and self.times[after][0] <= interval.last:
            return False
        return after == 0 or self.times[after - 1][1] < interval.first

    def take(self, interval: Lifetime) -> None:
        insort(self.times, (interval.first, interval.last))
        self.held.append(interval)
        self.bytes = max(self.bytes, interval.bytes)

    def waste(self, interval: Lifetime) -> tuple[int, int]:
        """Return how far the slot would grow, then how far it is from the size that is needed."""
        return max(0, interval.bytes - self.bytes), abs(interval.bytes - self.bytes)


def _pack(ordered: Sequence[Lifetime]) -> list[_Slot]:
    slots: list[_Slot] = []
    for interval in ordered:
        free = [slot for slot in slots if slot.is_free_during(interval)]
        if free:
            slot = min(free, key=lambda s: s.waste(interval))
        else:
            slots.append(slot := _Slot())
        slot.take(interval)
    return slots


def _cost(slots: Sequence[_Slot]) -> int:
    return sum(slot.bytes for slot in slots)


_LARGEST_TEXEL_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class PoolPlace:
    """Where a tensor lies in the buffer of the pool, as an image with its layers in a grid."""

    offset: int
    bytes: int
    pitch_texels: int
    grid: Grid

    def overlaps(self, other: PoolPlace) -> bool:
        """Return whether some byte belongs to both."""
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


def pool_textures(
    program: Program, intervals: Sequence[Lifetime], limits: Limits
) -> dict[str, PoolPlace]:
    """Return a place in the pool for each intermediate texture that can lie there."""
    fitting = _find_fitting(program, intervals, limits)
    step = limits.image_pitch_align_texels * _LARGEST_TEXEL_BYTES
    sized = []
    for interval in intervals:
        grid = fitting.get(interval.name)
        if grid is not None:
            spec = program.graph.operand(interval.name)
            pitch = _pitch(grid, limits)
            held = grid.height * pitch * LANES * bits_of(spec.dtype) // 8
            place = PoolPlace(offset=0, bytes=held, pitch_texels=pitch, grid=grid)
            sized.append((interval, place, -(-held // step) * step))
    found = pack_by_offset([(i.first, i.last, taken) for i, _, taken in sized])
    return {
        interval.name: replace(place, offset=offset)
        for (interval, place, _), offset in zip(sized, found, strict=True)
    }


def layer_grids(program: Program, places: Mapping[str, PoolPlace]) -> dict[str, dict[str, Grid]]:
    """Return kernel -> parameter -> how layers lie, for parameters that are given such images."""
    grids: dict[str, dict[str, Grid]] = {}
    for step in program.steps:
        if step.place == "gpu":
            params = program.kernels[step.kernel].func.params
            for param, name in zip(params, step.arguments, strict=True):
                place = places.get(_owner(program, name))
                if place is not None:
                    grids.setdefault(step.kernel, {})[param.name] = place.grid
    return grids


def arrange_layers(layers: int, rows: int, columns: int, limits: Limits) -> Grid | None:
    """Return all layers beside each other, or in bands of a power of two, padded least.  None where
    no image is wide and high enough.  Bands are whole: a layer that a tensor does not have then
    lies below its image, and zeros are read there."""
    whole = Grid(columns=columns, rows=rows, layers=layers)
    if _is_within(whole, limits):
        return whole
    powers = (1 << power for power in range(layers.bit_length()))
    banded = [
        Grid(columns=columns, rows=rows, layers=power, bands=layers // power)
        for power in powers
        if layers % power == 0
    ]
    within = [grid for grid in banded if _is_within(grid, limits)]
    return min(within, key=lambda g: (_pitch(g, limits) * g.height, g.bands), default=None)


def _is_within(grid: Grid, limits: Limits) -> bool:
    """Return whether there are images so wide and high."""
    return (
        grid.width <= limits.image2d_max_width_texels
        and grid.height <= limits.image2d_max_height_texels
    )


def _pitch(grid: Grid, limits: Limits) -> int:
    """Return texels from one row to the next."""
    align = limits.image_pitch_align_texels
    return -(-grid.width // align) * align


def _find_fitting(
    program: Program, intervals: Sequence[Lifetime], limits: Limits
) -> dict[str, Grid]:
    """Find tensors that only kernels touch, within limits; a parameter gets one kind of image."""
    graph = program.graph
    fitting: dict[str, Grid] = {}
    for interval in intervals:
        spec = graph.operand(interval.name)
        if spec.memory is Memory.TEXTURE:
            layers, rows, columns, _ = spec.physical
            grid = arrange_layers(layers, rows, columns, limits)
            if grid is not None:
                fitting[interval.name] = grid
    for part, step in _all_steps(program):
        for name in step.arguments:
            owner = _owner(part, name)
            if owner in fitting and not (part is program and _is_whole(program, step, name)):
                del fitting[owner]
    while lost := _find_mixed(program, fitting):
        fitting = {name: grid for name, grid in fitting.items() if name not in lost}
    return fitting


def _is_whole(program: Program, step: Step, name: str) -> bool:
    """Return whether a kernel is given the image with the rows and columns that its memory has."""
    graph = program.graph
    own, whole = graph.operand(name).physical, graph.operand(graph.owner(name)).physical
    return step.place == "gpu" and own[1:] == whole[1:]


def _find_mixed(program: Program, fitting: Mapping[str, Grid]) -> set[str]:
    """Find tensors that share a parameter with others that lie elsewhere or in other bands."""
    given: dict[tuple[str, int], set[str]] = defaultdict(set)
    outside: set[tuple[str, int]] = set()
    for part, step in _all_steps(program):
        for number, name in enumerate(step.arguments):
            owner = _owner(part, name)
            if part is program and owner in fitting:
                given[step.kernel, number].add(owner)
            else:
                outside.add((step.kernel, number))
    lost = set[str]().union(*(given[place] for place in outside & given.keys()))
    for names in given.values():
        found = {(fitting[name].macro, fitting[name].numbers) for name in names}
        if len(found) > 1:
            lost |= {name for name in names if fitting[name].bands > 1}
    return lost


def _all_steps(program: Program) -> Iterator[tuple[Program, Step]]:
    for part in (program, *program.regions.values()):
        for step in part.steps:
            yield part, step


def _owner(program: Program, name: str) -> str:
    """Return the tensor whose memory a step is given; of a packed constant, its own name."""
    return name if name in program.params else program.graph.owner(name)


# Offsets


_Sized = tuple[int, int, int]
"""(first step, last step, bytes)."""

_ORDERS: tuple[Callable[[_Sized], tuple[int, ...]], ...] = (
    lambda i: (-i[2], i[0]),
    lambda i: (i[0], -i[2]),
    lambda i: (-i[2] * (i[1] - i[0] + 1), i[0]),
    lambda i: (i[0] - i[1], -i[2]),
    lambda i: (-i[1], -i[0]),
)


def pack_by_offset(sized: Sequence[_Sized]) -> list[int]:
    """Return offsets such that no two that are alive at once overlap; the least end found."""
    best: list[int] = []
    least = math.inf
    for order in _ORDERS:
        offsets = [0] * len(sized)
        placed: list[int] = []
        for number in sorted(range(len(sized)), key=lambda n: order(sized[n])):
            first, last, held = sized[number]
            at = 0
            beside = (n for n in placed if sized[n][0] <= last and first <= sized[n][1])
            for other in sorted(beside, key=offsets.__getitem__):
                if at + held <= offsets[other]:
                    break
                at = max(at, offsets[other] + sized[other][2])
            offsets[number] = at
            placed.append(number)
        end = max((offsets[n] + sized[n][2] for n in placed), default=0)
        if end < least:
            best, least = offsets, end
    return best


_SMALLEST_STEP_BYTES = 256
_STEPS = 16
"""A size of n steps is a class of its own up to so many; then steps double."""


def buffer_bytes(requested: int) -> int:
    """Bytes of the size class that serves a buffer: at most an eighth more than requested."""
    step = _SMALLEST_STEP_BYTES
    while step * _STEPS <= requested:
        step *= 2
    return max(step, -(-requested // step) * step)


def image_bytes(physical: Sequence[int], bits: int) -> int:
    """Bytes of an image of physical shape [layers, rows, columns, 4]; the driver may pad rows."""
    return bytes_of(physical, bits)


def pitched_image_bytes(physical: Sequence[int], bits: int, align_texels: int) -> int:
    """Bytes of such an image in linear memory, whose rows begin at multiples of `align_texels`."""
    layers, rows, columns, lanes = physical
    padded = -(-columns // align_texels) * align_texels
    return math.prod((layers, rows, padded, lanes)) * bits // 8


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The plan and, for each intermediate tensor, the slot that holds it."""

    plan: MemoryPlan
    slot_of: dict[str, int]
    places: dict[str, PoolPlace] = field(default_factory=dict)
    """Where in the slot of the pool a tensor lies, for those that are there."""


def plan_memory(program: Program, pool_within: Limits | None = None) -> Storage:
    """Assign a slot to the output of each step that is not an output of the graph.  With
    `pool_within`, textures lie in one buffer as far as they can within these limits."""
    graph = program.graph
    intervals = live_intervals(program)
    places = {} if pool_within is None else pool_textures(program, intervals, pool_within)
    classes: dict[object, list[Lifetime]] = defaultdict(list)
    for interval in intervals:
        if interval.name not in places:
            classes[_class_of(graph.operand(interval.name))].append(interval)
    slots: list[MemorySlot] = []
    slot_of = dict.fromkeys(places, 0)
    if places:
        held = max(place.offset + place.bytes for place in places.values())
        slots.append(MemorySlot(scope=POOL, shape=(held,), dtype="uint8", bytes=held))
    for members in classes.values():
        for sharing in pack_slots(members):
            slot_of.update((interval.name, len(slots)) for interval in sharing)
            slots.append(_slot([graph.operand(interval.name) for interval in sharing]))
    slot_bytes = sum(slot.bytes for slot in slots if slot.scope != CPU)
    input_bytes = _border_bytes(graph, graph.inputs)
    output_bytes = _border_bytes(graph, graph.results)
    param_bytes = sum(allocated_bytes(p.spec) for p in program.params.values())
    regions = [plan_memory(part).plan for part in program.regions.values()]
    param_bytes += sum(plan.param_bytes for plan in regions)
    region_bytes = sum(plan.slot_bytes for plan in regions)
    on_gpu = [i for i in intervals if graph.operand(i.name).memory is not Memory.CPU]
    return Storage(
        plan=MemoryPlan(
            slots=tuple(slots),
            slot_bytes=slot_bytes,
            input_bytes=input_bytes,
            output_bytes=output_bytes,
            param_bytes=param_bytes,
            live_bytes=most_alive(on_gpu)[0],
            region_bytes=region_bytes,
            peak_bytes=slot_bytes + input_bytes + output_bytes + param_bytes + region_bytes,
        ),
        slot_of=slot_of,
        places=places,
    )


def live_intervals(program: Program) -> list[Lifetime]:
    """Return when each intermediate tensor is alive, in steps, and the bytes that hold it alone."""
    graph = program.graph
    first_use: dict[str, int] = {}
    last_use: dict[str, int] = {}
    for position, step in enumerate(program.steps):
        for name in step.writes:
            first_use.setdefault(graph.owner(name), position)
        for name in step.arguments:
            last_use[graph.owner(name)] = position
    kept = {*graph.input_names, *(graph.owner(name) for name in graph.outputs)}
    return [
        Lifetime(
            name=name,
            first=position,
            last=last_use[name],
            bytes=allocated_bytes(graph.operand(name)),
        )
        for name, position in first_use.items()
        if name not in kept
    ]


def _class_of(spec: OperandSpec) -> object:
    """Tensors with equal classes can share memory."""
    if spec.memory is Memory.TEXTURE:
        return spec.dtype, spec.physical[1:]
    return spec.memory is Memory.CPU


def _slot(specs: Sequence[OperandSpec]) -> MemorySlot:
    """Return the storage that serves all of these tensors."""
    first = specs[0]
    if first.memory is Memory.TEXTURE:
        shape = (max(spec.physical[0] for spec in specs), *first.physical[1:])
        held = image_bytes(shape, bits_of(first.dtype))
        return MemorySlot(scope=TEXTURE, shape=shape, dtype=first.dtype, bytes=held)
    requested = max(size_bytes(spec) for spec in specs)
    on_cpu = first.memory is Memory.CPU
    return MemorySlot(
        scope=CPU if on_cpu else GLOBAL,
        shape=(requested,),
        dtype="uint8",
        bytes=requested if on_cpu else buffer_bytes(requested),
    )


def _border_bytes(graph: Graph, names: Sequence[str]) -> int:
    """Return what the inputs or outputs of the model take on the GPU."""
    specs = (graph.operand(graph.owner(name)) for name in dict.fromkeys(names))
    return sum(allocated_bytes(spec) for spec in specs if spec.memory is not Memory.CPU)


def allocated_bytes(spec: OperandSpec) -> int:
    """Return what the runtime takes for a tensor that has memory of its own."""
    if spec.memory is Memory.TEXTURE:
        return image_bytes(spec.physical, bits_of(spec.dtype))
    requested = size_bytes(spec)
    return requested if spec.memory is Memory.CPU else buffer_bytes(requested)


def size_bytes(spec: OperandSpec) -> int:
    """Return bytes of a tensor in a buffer; a scalar has one element."""
    return math.prod(spec.physical) * max(bits_of(spec.dtype) // 8, 1)
