"""Runs compiled variants of one model launch by launch, each with memory of its own.

Variants share most of their kernels, so they come from a store that builds each distinct one once.
Between two launches tensors can be rounded to half, and constants can be: what rounding alone does
to a model in float32 is the floor of the error of any plan that stores halves, and what a plan
loses beyond that is lost by its kernels.

Before -> after (`t` is rounded, and `w`):
    t = conv2d(x, w); y = relu(t)        t = conv2d(x, half(w)); t = half(t); y = relu(t)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm_ffi.structural import structural_equal, structural_hash

from adrenoc.base.errors import DeviceError
from adrenoc.base.files.outputs import cache_errors
from adrenoc.base.files.read import cache_folder
from adrenoc.base.tvmapi import tirx
from adrenoc.ir.graph import CPU, TO_CPU, Graph
from adrenoc.ir.half import HALF_MAX
from adrenoc.ir.layout import TEXTURE, OperandSpec
from adrenoc.ir.program import Program
from adrenoc.kernels.codegen.build import device_kernel
from adrenoc.native.opencl import build_cached
from adrenoc.passes.analyse.cpu_nodes import lower_for_cpu
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class HalfTensors:
    """What is stored in half: computed tensors and constants of the planning graph."""

    tensors: frozenset[str]
    constants: frozenset[str]

    @property
    def count(self) -> int:
        """Return how many tensors and constants are stored in half."""
        return len(self.tensors) + len(self.constants)

    def together(self, other: HalfTensors) -> HalfTensors:
        """Return what is stored in half in one of the two."""
        return HalfTensors(
            tensors=self.tensors | other.tensors, constants=self.constants | other.constants
        )


NOTHING = HalfTensors(tensors=frozenset(), constants=frozenset())


def stored_in_half(program: Program) -> HalfTensors:
    """Return the tensors and constants that a program holds in half precision."""
    graph = program.graph
    written = {graph.owner(name) for step in program.steps for name in step.writes}
    tensors = {
        name
        for name, tensor in graph.tensors.items()
        if tensor.value is None
        and graph.owner(name) in written
        and graph.placements[graph.owner(name)].dtype == _HALF
    }
    # Weights for local memory lie in pairs, as words; then the name alone tells.
    constants = {
        _constant_of(graph, name)
        for name, param in program.params.items()
        if str(param.value.dtype) == _HALF or name.endswith(_HALF)
    }
    return HalfTensors(tensors=frozenset(tensors), constants=frozenset(constants))


def round_to(value: np.ndarray, dtype: str) -> np.ndarray:
    """Return the numbers that remain of these in a dtype; beyond its range infinity."""
    with np.errstate(over="ignore"):
        return value.astype(dtype).astype(value.dtype)


def round_within(value: np.ndarray, dtype: str) -> np.ndarray:
    """As stored, but within the range: overflow is the fault of who made it."""
    if dtype == "float16":
        value = np.clip(value, -HALF_MAX, HALF_MAX)
    return round_to(value, dtype)


def _constant_of(graph: Graph, param: str) -> str:
    """Return the constant that a param was packed from: its name begins with the constant's."""
    name = param
    while name not in graph.tensors and "_" in name:
        name = name.rpartition("_")[0]
    return name


Arrays = Mapping[str, np.ndarray]
_KERNEL, _HALF = "kernel", "float16"


class KernelStore:
    """Built kernels by what they compute, whatever their names. What the driver makes of them is
    kept where `adrenoc run` keeps it: a second search finds it."""

    def __init__(self, target: Target, device: Any) -> None:
        self._target, self._device = target, device
        self._programs = cache_folder() / "programs"
        with cache_errors(self._programs.parent):
            self._programs.parent.mkdir(parents=True, exist_ok=True)
        self._built: dict[Any, list[tuple[Any, Any]]] = {}

    def function(self, func: Any) -> Any:
        """Return the function that launches a kernel: takes its tensors, the output last."""
        named = func.with_attr("global_symbol", _KERNEL)
        alike = self._built.setdefault(structural_hash(named), [])
        for known, function in alike:
            if structural_equal(known, named):
                return function
        kernel = device_kernel(named, self._target)
        build_cached(kernel.module, int(self._device.index), self._programs)
        function = kernel.launcher(self._device)
        alike.append((named, function))
        return function


class ProgramRun:
    """A program on a device. States, as the caches of a decoder, stay on the device: a run that is
    given none goes on with what the last one left."""

    def __init__(self, program: Program, store: KernelStore, device: Any) -> None:
        self._program, self._device = program, device
        self._functions = {name: store.function(k.func) for name, k in program.kernels.items()}
        self._functions |= {n: _cpu_function(n, f) for n, f in program.cpu_functions.items()}
        self._exact = upload(program, device)
        self._halves: dict[str, Any] = {}
        self._last_use = {
            self._owner(name): number
            for number, step in enumerate(program.steps)
            for name in step.arguments
        }
        self._states = HeldStates(program, device)

    def run(self, inputs: Arrays, rounding: HalfTensors = NOTHING) -> list[np.ndarray]:
        """Return the outputs in order for inputs by the graph's names, with `rounding`."""
        graph, cpu = self._program.graph, tvm.cpu()
        params = self._params(rounding.constants)
        kept = {self._owner(name) for name in graph.outputs}
        with device_errors():
            held = self._states.bring(inputs)
            for number, step in enumerate(self._program.steps):
                on_cpu = step.place in (CPU, TO_CPU)
                for made in map(self._owner, step.writes):
                    if made not in held:
                        held[made] = empty(graph.operand(made), cpu if on_cpu else self._device)
                names = [self._owner(name) for name in step.arguments]
                tensors = [params.get(n) or held[n] for n in names]
                if step.kernel:
                    if step.place == CPU:
                        self._device.sync()
                    self._functions[step.kernel](*tensors)
                else:
                    tensors[1].copyfrom(tensors[0].numpy())
                for made in map(self._owner, step.writes):
                    if made in rounding.tensors:
                        held[made].copyfrom(round_to(held[made].numpy(), _HALF))
                for name in names:
                    if self._last_use[name] == number and name not in kept:
                        held.pop(name, None)
            self._device.sync()
            return [held[self._owner(name)].numpy() for name in graph.outputs]

    def _params(self, rounded: Iterable[str]) -> dict[str, Any]:
        wanted = set(rounded)
        chosen = {}
        for name, exact in self._exact.items():
            if _constant_of(self._program.graph, name) not in wanted or exact.dtype != "float32":
                chosen[name] = exact
                continue
            if name not in self._halves:
                half = round_to(np.asarray(self._program.params[name].value), _HALF)
                self._halves[name] = tvm.runtime.tensor(half, self._device)
            chosen[name] = self._halves[name]
        return chosen

    def _owner(self, name: str) -> str:
        return self._program.graph.owner(name)


class HeldStates:
    """The inputs of a program on the device; its states as the last run left them."""

    def __init__(self, program: Program, device: Any) -> None:
        self._graph, self._device = program.graph, device
        self._held: dict[str, Any] = {}

    def bring(self, inputs: Arrays) -> dict[str, Any]:
        """Return the inputs by name, with the states that are held, zeros at first."""
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


def upload(program: Program, device: Any) -> dict[str, Any]:
    """Return the packed constants on the device, by name."""
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


def _cpu_function(name: str, func: Any) -> Any:
    target = tvm.target.Target("llvm")
    module = tvm.IRModule({name: lower_for_cpu(func, target)})
    return tirx.build(module, target=target)[name]
