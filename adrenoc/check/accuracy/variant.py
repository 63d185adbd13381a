"""Compiled variants of a model, ready to run.

Variants of one model share most of their kernels, so a trial runs step by step from a store that
builds each distinct kernel once.  What is timed, and what has steps on the CPU, runs as a bundle
would: in TVM's virtual machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import relax
from tvm_ffi.structural import structural_equal, structural_hash

from adrenoc.base.errors import DeviceError
from adrenoc.base.files.outputs import cache_errors
from adrenoc.base.files.read import cache_folder
from adrenoc.ir.operand import TEXTURE, OperandSpec
from adrenoc.ir.program import Program, Step
from adrenoc.kernels.codegen.build import build_kernel
from adrenoc.native.opencl import build_cached
from adrenoc.target.target import Target

Arrays = Mapping[str, np.ndarray]
_KERNEL = "kernel"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The figures of one compiled variant, for its cost.

    `floor_us` is the roofline's sum over all launches, `time_us` the same with the gaps between
    them; None where the target gives no rates.
    """

    memory_bytes: int
    moved_bytes: int
    floor_us: float | None
    time_us: float | None = None


class Variant(Protocol):
    """Runs on inputs by the graph's names; gives the outputs in order."""

    plan: Plan

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs in order."""


class KernelStore:
    """Built kernels by what they compute, whatever their names.

    What the driver makes of them is kept where `adrenoc run` keeps it: a second search finds it.
    """

    def __init__(self, target: Target, device: Any) -> None:
        self._target, self._number = target, int(device.index)
        self._programs = cache_folder() / "programs"
        with cache_errors(self._programs.parent):
            self._programs.parent.mkdir(parents=True, exist_ok=True)
        self._built: dict[Any, list[tuple[Any, Any]]] = {}

    def function(self, func: Any) -> Any:
        """The function that launches a kernel: takes its tensors, the output last."""
        named = func.with_attr("global_symbol", _KERNEL)
        alike = self._built.setdefault(structural_hash(named), [])
        for known, function in alike:
            if structural_equal(known, named):
                return function
        module = build_kernel(named, self._target)
        self.build(module)
        function = module[_KERNEL]
        alike.append((named, function))
        return function

    def build(self, module: Any) -> None:
        """Build all kernels of a module side by side, as far as none was kept."""
        build_cached(module, self._number, self._programs)


class SteppedVariant:
    """Runs the launches of a program one by one, each with memory of its own.

    States, as the caches of a decoder, stay on the device: a run that is given none goes on with
    what the last one left.
    """

    def __init__(self, program: Program, plan: Plan, store: KernelStore, device: Any) -> None:
        self.plan = plan
        self._program, self._device = program, device
        kernels = {name: store.function(k.func) for name, k in program.kernels.items()}
        self._steps = [(kernels[step.kernel], step) for step in program.steps]
        self._params = upload(program, device)
        self._last_use = {
            self._owner(name): number
            for number, step in enumerate(program.steps)
            for name in step.arguments
        }
        self._states = HeldStates(program, device)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs in order for inputs by the graph's names."""
        graph = self._program.graph
        kept = {self._owner(name) for name in graph.outputs}
        with device_errors():
            held = self._states.bring(inputs)
            for number, (function, step) in enumerate(self._steps):
                for made in map(self._owner, step.writes):
                    if made not in held:
                        held[made] = empty(graph.operand(made), self._device)
                names = [self._owner(name) for name in step.arguments]
                function(*(self._params.get(n) or held[n] for n in names))
                for name in names:
                    if self._last_use[name] == number and name not in kept:
                        held.pop(name, None)
            self._device.sync()
            return [held[self._owner(name)].numpy() for name in graph.outputs]

    def _owner(self, name: str) -> str:
        return self._program.graph.owner(name)


class HeldStates:
    """The inputs of a program on the device; its states as the last run left them."""

    def __init__(self, program: Program, device: Any) -> None:
        self._graph, self._device = program.graph, device
        self._held: dict[str, Any] = {}

    def bring(self, inputs: Arrays) -> dict[str, Any]:
        """The inputs by name; a state that is not given is the one held, of zeros at first."""
        states = set(self._graph.states.values())
        for name in states:
            if name in inputs or name not in self._held:
                empty_one = np.zeros(self._graph.operand(name).physical)
                self._held[name] = self._upload(name, inputs.get(name, empty_one))
        given = {n: self._upload(n, inputs[n]) for n in self._graph.inputs if n not in states}
        return {**given, **self._held}

    def _upload(self, name: str, value: np.ndarray) -> Any:
        """In the dtype that the program has for it, which is a state's own, or the model's."""
        kept = value.astype(self._graph.operand(name).dtype, copy=False)
        return tvm.runtime.tensor(np.asarray(kept, order="C"), self._device)


class MachineVariant:
    """Runs a built program in TVM's virtual machine."""

    def __init__(
        self, executable: Any, program: Program, plan: Plan, store: KernelStore, device: Any
    ) -> None:
        self.plan = plan
        self._device, self._graph = device, program.graph
        self._states = HeldStates(program, device)
        module = executable.jit()
        store.build(module)  # else each kernel would be built by itself, as it is first launched
        self._main = relax.VirtualMachine(module, [device, tvm.cpu()])["main"]
        self._params = list(upload(program, device).values())

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs in order for inputs by the graph's names."""
        held = self._states.bring(inputs)
        made = iter(self._call(self._arguments(held)))
        states = self._graph.states  # which the program hands nobody
        return [
            (held[states[name]] if name in states else next(made)).numpy()
            for name in self._graph.outputs
        ]

    def median_ms(self, inputs: Arrays, runs: int = 5) -> float:
        """The median time of some warm runs."""
        arguments = self._arguments(self._states.bring(inputs))
        self._call(arguments)
        times = []
        for _ in range(runs):
            started = time.perf_counter()
            self._call(arguments)
            times.append((time.perf_counter() - started) * 1000)
        return sorted(times)[runs // 2]

    def _arguments(self, held: Mapping[str, Any]) -> list[Any]:
        return [*(held[name] for name in self._graph.inputs), *self._params]

    def _call(self, arguments: list[Any]) -> list[Any]:
        with device_errors():
            result = self._main(*arguments)
            self._device.sync()
        return [result] if hasattr(result, "numpy") else list(result)


def can_step(steps: tuple[Step, ...]) -> bool:
    """Whether all steps are launches of kernels."""
    return all(step.place == "gpu" for step in steps)


def upload(program: Program, device: Any) -> dict[str, Any]:
    """The packed constants on the device, by name."""
    found = {}
    for name, param in program.params.items():
        scope = None if param.spec.scope == "global" else param.spec.scope
        shape, dtype = param.value.shape, str(param.value.dtype)
        found[name] = tvm.runtime.empty(shape, dtype, device, mem_scope=scope)
        found[name].copyfrom(param.value)
    return found


def empty(spec: OperandSpec, device: Any) -> Any:
    """Memory for a tensor on a device."""
    scope = TEXTURE if spec.scope == TEXTURE else None
    return tvm.runtime.empty(spec.physical, spec.dtype, device, mem_scope=scope)


@contextmanager
def device_errors() -> Iterator[None]:
    """What the native runtime raises, as a DeviceError."""
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        raise DeviceError(
            f"the OpenCL device failed: {str(error).strip().splitlines()[0]}",
            hint="adrenoc doctor lists the devices here",
        ) from error
