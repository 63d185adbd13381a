"""Check a finished program: launches, the virtual machine's code, and their memory.

Do the launches do what the planning graph says, with kernels that the target can run?  Does the
program that the virtual machine runs launch what was planned, in the planned memory?  Does every
launch find in its memory what it is to read, and write over nothing that is needed?

The memory plan is followed step by step, as the device will: which tensor a slot holds, who made
it, what each launch reads and writes, and whether a place in the pool of textures is one that the
image fits and a device can take.  Nothing of how the plan was made is trusted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from adrenoc.base.errors import DefectError
from adrenoc.base.tvmapi import Call, bits_of
from adrenoc.bundle.manifest import MemorySlot
from adrenoc.ir.graph import ALLOC, CLML, CPU, Graph, Node
from adrenoc.ir.layout import GLOBAL, POOL, TEXTURE, Memory, OperandSpec
from adrenoc.ir.program import Program, Step
from adrenoc.passes.lower.lower import IMAGE_IN_POOL
from adrenoc.passes.lower.plan_memory import PoolPlace, Storage, size_bytes
from adrenoc.passes.verify.check_graph import check_image
from adrenoc.target.gpu import Limits

Place = tuple[str, object]
"""A piece of memory: its kind, and which of that kind."""
SLOT, INPUT, OUTPUT, PARAM = "slot", "input", "output", "param"


def place_of(program: Program, storage: Storage, name: str) -> Place:
    """Return the memory that a launch is given for a tensor or param."""
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
    """Follow the plan through all steps."""
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
    """Yield all that launches are given as images."""
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
        """Return the inputs that this program writes."""
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
                read[place] = owner = graph.owner(name)
                if self.holds.get(place) != owner:
                    what = f"from {place[0]} {place[1]}: {self.holds.get(place, 'nothing')}"
                    raise DefectError(f"{_name_step(step)} reads {owner} {what}")
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
            for other in read.values():  # what is read of the pool lies apart
                if owner != other and overlap(self.storage.places, owner, other):
                    raise DefectError(
                        f"{_name_step(step)} reads {other} from the memory it writes, of {owner}"
                    )
            self._write(step, place, owner)

    def finish(self) -> None:
        """Check that what the model gives has been made."""
        graph = self.program.graph
        for name in graph.outputs:
            place = self._place(name)
            if place[0] == SLOT:
                raise DefectError(f"the output {name} is in a slot, which does not outlive the run")
            if place[0] == OUTPUT and place not in self.holds:
                raise DefectError(f"nothing makes the output {name}")

    def _place(self, name: str) -> Place:
        return place_of(self.program, self.storage, name)

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
    """Hold a place against the image that lies there, its slot and the target."""
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


_POINTER_BYTES = 8
"""Of a kernel's argument: all are memory."""

GPU = "gpu"
"""The place of a step that launches a kernel."""


def check_kernels(program: Program, limits: Limits) -> None:
    """Every kernel fits the target."""
    for kernel in program.kernels.values():
        arguments = len(kernel.scopes)
        if refused := limits.refuse_group(kernel.launch.work_group):
            raise DefectError(f"{kernel.name} has {refused}")
        for seen, most, what in (
            (kernel.shared_bytes, limits.local_mem_bytes, "bytes of local memory a group"),
            (arguments, limits.max_kernel_args, "arguments"),
            (arguments * _POINTER_BYTES, limits.max_kernel_args_bytes, "bytes of arguments"),
        ):
            if seen > most:
                raise DefectError(f"{kernel.name} has {seen} {what}, at most {most}")


def check_launches(program: Program, limits: Limits) -> None:
    """Each step reads and writes what its node does, by a kernel made for such memory."""
    graph = program.graph
    if len(graph.nodes) != len(program.steps):
        raise DefectError(f"{len(program.steps)} steps for {len(graph.nodes)} nodes")
    for node, step in zip(graph.nodes, program.steps, strict=True):
        _check_step(program, node, step)
        if step.place == GPU:
            _check_arguments(program, node, step)
            scopes = program.kernels[step.kernel].scopes
            for images, most, what in (
                (scopes[: -step.written].count(TEXTURE), limits.max_read_image_args, "reads"),
                (scopes[-step.written :].count(TEXTURE), limits.max_write_image_args, "writes"),
            ):
                if images > most:
                    raise DefectError(f"{node.name} {what} {images} images, at most {most}")


def _check_step(program: Program, node: Node, step: Step) -> None:
    """The step gives its kernel what the node reads and writes, and nothing else."""
    graph = program.graph
    results = node.attrs["results"] if step.place == CLML else node.writes
    written, wanted = _owners(graph, step.writes), _owners(graph, results)
    if written != wanted:
        raise DefectError(
            f"{node.name} writes {_list_items(written)}, and should {_list_items(wanted)}"
        )
    read = _owners(graph, (name for name in step.reads if name not in program.params))
    computed = _owners(graph, (n for n in node.inputs if graph.tensors[n].value is None))
    computed -= written - read  # what it changes in place
    if step.place == CLML:  # what it writes beside its own output counts as its input
        computed -= written
    if read != computed:
        raise DefectError(
            f"{node.name} is given {_list_items(read)} to read, not {_list_items(computed)}"
        )


def _check_arguments(program: Program, node: Node, step: Step) -> None:
    """Each argument is of the shape, dtype and memory that the kernel declares."""
    kernel = program.kernels[step.kernel]
    declared = kernel.func.params
    if not len(declared) == len(kernel.scopes) == len(step.arguments):
        raise DefectError(f"{node.name} gives {kernel.name} {len(step.arguments)} arguments")
    for name, buffer, scope in zip(step.arguments, declared, kernel.scopes, strict=True):
        spec = spec_of(program, name)
        given = (*spec.physical, spec.dtype, spec.scope)
        wanted = (*(int(extent) for extent in buffer.shape), str(buffer.dtype), scope)
        if given != wanted:
            raise DefectError(
                f"{node.name} gives {kernel.name} {name}, which is {_list_items(given)}, for "
                f"{_list_items(wanted)}"
            )


def spec_of(program: Program, name: str) -> OperandSpec:
    """Return a tensor or param as kernels see it."""
    param = program.params.get(name)
    return program.graph.operand(name) if param is None else param.spec


def _owners(graph: Graph, names: Iterable[str]) -> set[str]:
    return {graph.owner(name) for name in names}


def _list_items(items: Iterable[object]) -> str:
    return " ".join(map(str, items)) or "nothing"


_STORAGE, _TENSOR = "relax.vm.alloc_storage", "relax.vm.alloc_tensor"


def check_module(module: Any, program: Program, storage: Mapping[str, Storage]) -> None:
    """Hold each function against its program; `storage` is by region, that of `main` under ""."""
    known = {var.name_hint for var in module.get_global_vars()}
    for symbol, part in (("", program), *program.regions.items()):
        name = f"{symbol}_textures" if symbol else "main"
        if name not in known:
            raise DefectError(f"the module has no function {name}")
        reader = _Reader(name=name, program=part, storage=storage[symbol])
        reader.check(module[name], results_given=bool(symbol))


@dataclass(kw_only=True)
class _Reader:
    """Reads one function back, and follows the program beside it."""

    name: str
    program: Program
    storage: Storage
    places: dict[Any, Place] = field(default_factory=dict)
    """Variable -> the memory that it stands for."""
    fresh: set[Any] = field(default_factory=set)
    """Storage that is no slot: what outlives the run lies there."""
    slots: int = 0

    def check(self, function: Any, *, results_given: bool) -> None:
        """Every allocation and launch, in order."""
        graph = self.program.graph
        given: list[Place] = [(INPUT, name) for name in graph.inputs]
        results = graph.outputs if results_given else ()
        given += [(OUTPUT, name) for name in results]
        given += [(PARAM, name) for name in self.program.params]
        # Those of regions follow the own ones of `main`.
        self.places.update(zip(function.params, given, strict=False))
        owners = self._owners_in_order(set(results))
        steps = (step for step in self.program.steps if step.place != ALLOC)
        for block in function.body.blocks:
            for binding in block.bindings:
                operator = (
                    getattr(getattr(binding.value, "op", None), "name", "")
                    if _is_call(binding.value)
                    else ""
                )
                if operator == _STORAGE:
                    self._follow_storage(binding.var, binding.value)
                elif operator == _TENSOR:
                    self._follow_tensor(binding.var, binding.value, next(owners, None))
                elif _is_call(binding.value) and _name_of(binding.value.op) == IMAGE_IN_POOL:
                    self._follow_image(binding.var, binding.value, next(owners, None))
                elif not (
                    _is_call(binding.value) and _name_of(binding.value.op).endswith("_usable")
                ):
                    self._follow_launch(binding.value, next(steps, None))
        left = next(steps, None)
        if left is not None:
            raise DefectError(f"{self.name} does not launch {left.kernel or left.place}")
        if self.slots != len(self.storage.plan.slots):
            raise DefectError(
                f"{self.name} has {self.slots} slots of {len(self.storage.plan.slots)}"
            )

    def _owners_in_order(self, given: set[str]) -> Iterator[str]:
        """Yield the tensors that get memory, in the order of their first launches."""
        graph = self.program.graph
        seen = {*given, *graph.input_names}
        for step in self.program.steps:
            for owner in map(graph.owner, step.writes):
                if owner not in seen:
                    seen.add(owner)
                    yield owner

    def _follow_storage(self, var: Any, call: Any) -> None:
        """All slots come first, in their order."""
        if self.slots == len(self.storage.plan.slots):
            self.fresh.add(var)
            return
        slot = self.storage.plan.slots[self.slots]
        scope = GLOBAL if slot.scope == CPU else slot.scope
        seen = (_extents(call.args[0]), _dtype(call.args[2]), call.args[3].value)
        if seen != (tuple(slot.shape), slot.dtype, scope):
            raise DefectError(f"{self.name} allocates {seen} for slot {self.slots}, {slot}")
        self.places[var] = (SLOT, self.slots)
        self.slots += 1

    def _follow_tensor(self, var: Any, call: Any, owner: str | None) -> None:
        """Each tensor lies at the beginning of its slot, or of storage of its own."""
        if owner is None:
            raise DefectError(f"{self.name} allocates {var.name}, which nothing writes")
        spec, storage = self.program.graph.operand(owner), call.args[0]
        place = place_of(self.program, self.storage, owner)
        held = (OUTPUT, owner) if storage in self.fresh else self.places.get(storage)
        seen = (_extents(call.args[2]), _dtype(call.args[3]), call.args[4].value)
        wanted = (tuple(spec.physical), spec.dtype, spec.scope)
        if held != place or int(call.args[1].value) or seen != wanted:
            raise DefectError(f"{self.name} has {owner} as {seen} in {held}, planned was {place}")
        self.places[var] = place

    def _follow_image(self, var: Any, call: Any, owner: str | None) -> None:
        """Each image of the pool lies at its place there."""
        place = None if owner is None else self.storage.places.get(owner)
        if owner is None or place is None:
            raise DefectError(f"{self.name} has {var.name} in a pool, planned was {owner}")
        storage, shape, dtype, *numbers = call.args
        spec = self.program.graph.operand(owner)
        planned = [place.offset, place.pitch_texels, place.grid.bands]
        wanted = (tuple(spec.physical), spec.dtype, planned)
        seen = (_extents(shape), _dtype(dtype), [int(number.value) for number in numbers])
        held = self.places.get(storage)
        if seen != wanted or held != (SLOT, self.storage.slot_of[owner]):
            raise DefectError(f"{self.name} has {owner} as {seen} in {held}, planned was {place}")
        self.places[var] = place_of(self.program, self.storage, owner)

    def _follow_launch(self, value: Any, step: Step | None) -> None:
        """A kernel, or a function of the CPU, with its arguments."""
        if step is None:
            raise DefectError(f"{self.name} launches more than was planned")
        if step.place == CLML:
            if _is_call(value):
                raise DefectError(f"{self.name} leaves no choice for the region {step.kernel}")
            return
        if not _is_call(value):
            raise DefectError(f"{self.name} has a choice where {step.kernel} was planned")
        callee, arguments = value.op, list(value.args)
        if step.place != "gpu":
            callee, *arguments = arguments
        wanted = [place_of(self.program, self.storage, name) for name in step.arguments]
        seen = [self.places.get(argument) for argument in arguments]
        called = _name_of(callee)
        if seen != wanted or (step.kernel and called != step.kernel):
            raise DefectError(
                f"{self.name} launches {called} with {seen}, planned was {step.kernel} with "
                f"{wanted}"
            )


def _is_call(value: Any) -> bool:
    return isinstance(value, Call)


def _name_of(callee: Any) -> str:
    """Return the name of a function of the module, of an operator, or of one of the runtime's."""
    return str(
        getattr(callee, "name_hint", None)
        or getattr(callee, "global_symbol", None)
        or getattr(callee, "name", "")
    )


def _extents(shape: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in shape.values)


def _dtype(constant: Any) -> str:
    return str(constant.value)
