"""Give intermediate tensors their storage, reusing it as soon as its last reader has run.

An image serves another tensor only if width, height and format agree, for the clamp border must
stay where it is; it may have more layers than are used.  A buffer serves any tensor that is not
larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adrenoc.layout import bytes_of
from adrenoc.manifest import MemoryPlan, MemorySlot
from adrenoc.operand import GLOBAL, TEXTURE, Memory, OperandSpec
from adrenoc.passes.cpu_nodes import CPU
from adrenoc.passes.lower import Program
from adrenoc.tvmapi import bits_of


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The plan and, for each intermediate tensor, the slot that holds it."""

    plan: MemoryPlan
    slot_of: dict[str, int]


def plan_memory(program: Program) -> Storage:
    """Assign a slot to the output of each step that is not an output of the graph."""
    graph = program.graph
    last_use: dict[str, int] = {}
    for position, step in enumerate(program.steps):
        for name in step.arguments:
            last_use[graph.aliases.get(name, name)] = position
    slots: list[_Slot] = []
    slot_of: dict[str, int] = {}
    for position, step in enumerate(program.steps):
        name = step.arguments[-1]
        if name in graph.outputs:
            continue
        spec = graph.operand(name)
        index = _best(slots, spec, position)
        if index is None:
            slots.append(_Slot(spec))
            index = len(slots) - 1
        slots[index].take(spec, until=last_use[name])
        slot_of[name] = index
    return Storage(
        plan=MemoryPlan(
            slots=tuple(s.result() for s in slots),
            peak_bytes=sum(s.bytes for s in slots if not s.on_cpu),
        ),
        slot_of=slot_of,
    )


class _Slot:
    """Storage under planning: grows to the largest tensor that it serves."""

    def __init__(self, spec: OperandSpec) -> None:
        self.texture = spec.memory is Memory.TEXTURE
        self.on_cpu = spec.memory is Memory.CPU
        self.dtype = spec.dtype
        self.shape = list(spec.physical) if self.texture else [size_bytes(spec)]
        self._until = -1

    def take(self, spec: OperandSpec, until: int) -> None:
        self._until = until
        if self.texture:
            self.shape[0] = max(self.shape[0], spec.physical[0])
        else:
            self.shape[0] = max(self.shape[0], size_bytes(spec))

    def free_at(self, position: int) -> bool:
        return self._until < position

    def serves(self, spec: OperandSpec) -> bool:
        if self.texture != (spec.memory is Memory.TEXTURE):
            return False
        if self.on_cpu != (spec.memory is Memory.CPU):
            return False
        return not self.texture or (
            self.dtype == spec.dtype and self.shape[1:] == list(spec.physical[1:])
        )

    def growth(self, spec: OperandSpec) -> int:
        """How far the slot is from the size that this tensor needs."""
        need = spec.physical[0] if self.texture else size_bytes(spec)
        return abs(self.shape[0] - need)

    @property
    def bytes(self) -> int:
        if self.texture:
            return bytes_of(self.shape, bits_of(self.dtype))
        return self.shape[0]

    def result(self) -> MemorySlot:
        return MemorySlot(
            scope=TEXTURE if self.texture else CPU if self.on_cpu else GLOBAL,
            shape=tuple(self.shape),
            dtype=self.dtype if self.texture else "uint8",
            bytes=self.bytes,
        )


def size_bytes(spec: OperandSpec) -> int:
    """Bytes of a tensor in a buffer; a scalar has one element."""
    return math.prod(spec.physical) * max(bits_of(spec.dtype) // 8, 1)


def _best(slots: list[_Slot], spec: OperandSpec, position: int) -> int | None:
    """The free slot that wastes least, None if there is none."""
    fitting = [
        (slot.growth(spec), index)
        for index, slot in enumerate(slots)
        if slot.free_at(position) and slot.serves(spec)
    ]
    return min(fitting)[1] if fitting else None
