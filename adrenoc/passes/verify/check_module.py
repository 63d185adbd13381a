"""Does the program that the virtual machine runs launch what was planned, in the planned memory?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adrenoc.base.errors import DefectError
from adrenoc.base.tvmapi import Call
from adrenoc.ir.node_kinds import ALLOC, CLML, CPU
from adrenoc.ir.operand import GLOBAL
from adrenoc.ir.program import Program, Step
from adrenoc.passes.lower.emit_relax import IMAGE_IN_POOL
from adrenoc.passes.lower.plan_memory import Storage
from adrenoc.passes.verify.check_storage import INPUT, OUTPUT, PARAM, SLOT, Place, place_of

_STORAGE, _TENSOR = "relax.vm.alloc_storage", "relax.vm.alloc_tensor"


def check_module(module: Any, program: Program, storage: Mapping[str, Storage]) -> None:
    """Hold each function against its program; `storage` is by region, that of `main` under "".

    Raises:
        DefectError: naming the function and the launch.
    """
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
                self._follow(binding.var, binding.value, owners, steps)
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

    def _follow(self, var: Any, value: Any, owners: Iterator[str], steps: Iterator[Step]) -> None:
        """One binding."""
        operator = getattr(getattr(value, "op", None), "name", "") if _is_call(value) else ""
        if operator == _STORAGE:
            self._follow_storage(var, value)
        elif operator == _TENSOR:
            self._follow_tensor(var, value, next(owners, None))
        elif _is_call(value) and _name_of(value.op) == IMAGE_IN_POOL:
            self._follow_image(var, value, next(owners, None))
        elif not (_is_call(value) and _name_of(value.op).endswith("_usable")):
            self._follow_launch(value, next(steps, None))

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
    """Of a function of the module, of an operator, or of one that the runtime has."""
    return str(
        getattr(callee, "name_hint", None)
        or getattr(callee, "global_symbol", None)
        or getattr(callee, "name", "")
    )


def _extents(shape: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in shape.values)


def _dtype(constant: Any) -> str:
    return str(constant.value)
