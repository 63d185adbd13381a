"""Does every launch find in its memory what it is to read, and write over nothing that is needed?

The memory plan is followed step by step, as the device will: which tensor a slot holds, who made
it, what each launch reads and writes, and whether a place in the pool of textures is one that the
image fits and a device can take.  Nothing of how the plan was made is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from adrenoc.base.errors import DefectError
from adrenoc.base.tvmapi import bits_of
from adrenoc.bundle.manifest import MemorySlot
from adrenoc.ir.node_kinds import CPU
from adrenoc.ir.operand import GLOBAL, POOL, TEXTURE, Memory, OperandSpec
from adrenoc.ir.program import Program, Step
from adrenoc.passes.lower.plan_memory import Storage, size_bytes
from adrenoc.passes.lower.pool_textures import PoolPlace
from adrenoc.passes.verify.image_limits import check_image
from adrenoc.target.gpu import Limits

Place = tuple[str, object]
"""A piece of memory: its kind, and which of that kind."""
SLOT, INPUT, OUTPUT, PARAM = "slot", "input", "output", "param"


def place_of(program: Program, storage: Storage, name: str) -> Place:
    """Return the memory that a launch is given for a tensor or param.

    Raises:
        DefectError: there is none.
    """
    if name in program.params:
        return PARAM, name
    graph = program.graph
    owner = graph.owner(name)
    if owner in storage.places:
        return SLOT, (storage.slot_of[owner], owner)
    if owner in storage.slot_of:
        return SLOT, storage.slot_of[owner]
    if owner in graph.input_names:
        return INPUT, owner
    if owner in graph.output_owners:
        return OUTPUT, owner
    raise DefectError(f"{name} lies in {owner}, which has no memory")


def check_storage(program: Program, storage: Storage, limits: Limits) -> None:
    """Follow the plan through all steps.

    Raises:
        DefectError: naming the step, the tensor and the slot.
    """
    for name, slot in storage.slot_of.items():
        if not 0 <= slot < len(storage.plan.slots):
            raise DefectError(f"{name} is in slot {slot} of {len(storage.plan.slots)}")
        spec, held = program.graph.operand(name), storage.plan.slots[slot]
        if name in storage.places:
            check_place(name, spec, storage.places[name], held, limits)
        else:
            _check_fits(name, spec, held, slot)
    for name, spec in _images(program):
        check_image(name, spec.physical, limits)
    for number, held in enumerate(storage.plan.slots):
        if held.scope == TEXTURE:
            check_image(f"slot {number}", held.shape, limits)
    walk = _Walk(program=program, storage=storage)
    for step in program.steps:
        walk.follow(step)
    walk.finish()


def _images(program: Program) -> Iterator[tuple[str, OperandSpec]]:
    """All that launches are given as images."""
    for name, param in program.params.items():
        if param.spec.memory is Memory.TEXTURE:
            yield name, param.spec
    graph = program.graph
    for step in program.steps:
        for name in step.arguments:
            if name not in program.params and graph.operand(name).memory is Memory.TEXTURE:
                yield name, graph.operand(name)


def _check_fits(name: str, spec: OperandSpec, slot: MemorySlot, number: int) -> None:
    """The slot is memory of the kind that the tensor needs, and large enough."""
    if spec.memory is Memory.TEXTURE:
        # The clamp border stays where the image ends: its rows and columns have to be the tensor's.
        fits = (slot.scope, slot.dtype, slot.shape[1:]) == (
            TEXTURE,
            spec.dtype,
            spec.physical[1:],
        ) and slot.shape[0] >= spec.physical[0]
    else:
        scope = CPU if spec.memory is Memory.CPU else GLOBAL
        fits = slot.scope == scope and slot.bytes >= size_bytes(spec)
    if not fits:
        raise DefectError(
            f"{name}, {spec.dtype} {spec.physical} in {spec.scope}, does not fit slot {number}, "
            f"{slot.dtype} {slot.shape} in {slot.scope}"
        )


@dataclass(kw_only=True)
class _Walk:
    """What each piece of memory holds after the steps so far."""

    program: Program
    storage: Storage
    holds: dict[Place, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    """Tensors that something has been written to."""
    changed: set[str] = field(default_factory=set)
    """States that hold what the next run is to find: by the name of the input, they are gone."""

    @cached_property
    def states(self) -> frozenset[str]:
        """The inputs that this program writes."""
        return frozenset(self.program.graph.states.values())

    def follow(self, step: Step) -> None:
        """One step: what it reads has to be there, then it writes."""
        graph = self.program.graph
        read: dict[Place, str] = {}
        for name in step.reads:
            place = self._place(name)
            if name in self.changed:
                raise DefectError(f"{_name_step(step)} reads {name} as it was before it changed")
            if place[0] in (SLOT, OUTPUT):
                owner = graph.owner(name)
                self._check_holds(step, place, owner)
                read[place] = owner
        written: dict[Place, str] = {}
        for name in step.writes:
            place, owner = self._place(name), graph.owner(name)
            if owner in self.states:
                self.changed.add(owner)
            elif place[0] not in (SLOT, OUTPUT):
                raise DefectError(
                    f"{_name_step(step)} writes {owner}, an {place[0]} of the program"
                )
            if written.setdefault(place, owner) != owner:
                raise DefectError(f"{_name_step(step)} writes {owner} over {written[place]}")
            image = graph.operand(name).memory is Memory.TEXTURE
            if place in read and (image or read[place] != owner):
                raise DefectError(
                    f"{_name_step(step)} reads {read[place]} from the memory it writes"
                )
            self._check_apart(step, owner, read)
            self._write(step, place, owner)

    def _check_apart(self, step: Step, owner: str, read: dict[Place, str]) -> None:
        """What is read of the pool lies apart from what is written there."""
        places = self.storage.places
        for other in read.values():
            if owner != other and overlap(places, owner, other):
                raise DefectError(
                    f"{_name_step(step)} reads {other} from the memory it writes, of {owner}"
                )

    def finish(self) -> None:
        """What the model gives has been made."""
        graph = self.program.graph
        for name in graph.outputs:
            place = self._place(name)
            if place[0] == SLOT:
                raise DefectError(f"the output {name} is in a slot, which does not outlive the run")
            if place[0] == OUTPUT and place not in self.holds:
                raise DefectError(f"nothing makes the output {name}")

    def _place(self, name: str) -> Place:
        return place_of(self.program, self.storage, name)

    def _check_holds(self, step: Step, place: Place, owner: str) -> None:
        held = self.holds.get(place)
        if held != owner:
            what = "nothing" if held is None else held
            raise DefectError(
                f"{_name_step(step)} reads {owner} from {place[0]} {place[1]}: {what}"
            )

    def _write(self, step: Step, place: Place, owner: str) -> None:
        if self.holds.get(place) == owner:
            return  # further blocks of it
        if owner in self.begun:
            lost = self.holds.get(place, "another tensor of the pool")
            raise DefectError(
                f"{_name_step(step)} goes on with {owner}, which {lost} has overwritten"
            )
        self.begun.add(owner)
        for other_place, other in list(self.holds.items()):
            if other_place != place and overlap(self.storage.places, owner, other):
                del self.holds[other_place]
        self.holds[place] = owner


def _name_step(step: Step) -> str:
    return f"the launch of {step.kernel}" if step.kernel else f"the copy of {step.arguments[0]}"


def check_place(
    name: str, spec: OperandSpec, place: PoolPlace, slot: MemorySlot, limits: Limits
) -> None:
    """Hold a place against the image that lies there, its slot and the target.

    Raises:
        DefectError: the image does not fit, or no device makes one there.
    """
    if spec.memory is not Memory.TEXTURE or slot.scope != POOL:
        raise DefectError(f"{name}, in {spec.scope}, is at {place} of a slot in {slot.scope}")
    layers, rows, columns, lanes = spec.physical
    texel = lanes * bits_of(spec.dtype) // 8
    align = limits.image_pitch_align_texels
    grid = place.grid
    fits = (
        (grid.columns, grid.rows, grid.layers * grid.bands) == (columns, rows, layers)
        and (grid.bands == 1 or grid.layers & (grid.layers - 1) == 0)
        and grid.width <= min(place.pitch_texels, limits.image2d_max_width_texels)
        and grid.height <= limits.image2d_max_height_texels
        and place.pitch_texels % align == 0
        and place.offset % (align * texel) == 0
        and place.bytes == grid.height * place.pitch_texels * texel
        and place.offset + place.bytes <= slot.bytes
    )
    if not fits:
        raise DefectError(
            f"{name}, {columns} x {rows} texels of {texel} bytes in {layers} layers, does not fit "
            f"{place} of {slot.bytes} bytes, in rows of multiples of {align} texels"
        )


def overlap(places: Mapping[str, PoolPlace], one: str, other: str) -> bool:
    """Return whether two tensors are in the pool, and share bytes there."""
    return one in places and other in places and places[one].overlaps(places[other])
