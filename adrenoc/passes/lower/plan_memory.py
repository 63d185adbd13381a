"""Give intermediate tensors their storage, and say what the GPU holds while the model runs.

An image serves another tensor only if width, height and format agree, for the clamp border must
stay where it is; it may have more layers than are used.  A buffer serves any tensor that is not
larger.  Tensors that can share are a class of their own, packed apart from the others.  Where
textures may lie in a pool (`pool_textures`), those that can do, and all share one slot.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from adrenoc.base.tvmapi import bits_of
from adrenoc.bundle.manifest import MemoryPlan, MemorySlot
from adrenoc.ir.allocation import buffer_bytes, image_bytes
from adrenoc.ir.graph import Graph
from adrenoc.ir.node_kinds import CPU
from adrenoc.ir.operand import GLOBAL, POOL, TEXTURE, Memory, OperandSpec
from adrenoc.ir.program import Program
from adrenoc.passes.lower.pack_slots import Lifetime, most_alive, pack_slots
from adrenoc.passes.lower.pool_textures import PoolPlace, pool_bytes, pool_textures
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The plan and, for each intermediate tensor, the slot that holds it."""

    plan: MemoryPlan
    slot_of: dict[str, int]
    places: dict[str, PoolPlace] = field(default_factory=dict)
    """Where in the slot of the pool a tensor lies, for those that are there."""


def plan_memory(program: Program, pool_within: Limits | None = None) -> Storage:
    """Assign a slot to the output of each step that is not an output of the graph.

    With `pool_within`, textures lie in one buffer as far as they can within these limits.
    """
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
        held = pool_bytes(places)
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
    """When each intermediate tensor is alive, in steps, and the bytes that hold it alone."""
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
    """Bytes of a tensor in a buffer; a scalar has one element."""
    return math.prod(spec.physical) * max(bits_of(spec.dtype) // 8, 1)
