"""What rounding alone does to a model: the floor of the error of any plan that stores halves.

The model runs in float32, launch by launch, and between two launches the tensors that a plan
stores in half are rounded to half, as its constants are; nothing else is.  What a plan loses beyond
that is lost by its kernels.

Before -> after (the plan stores `t` in half):
    t = conv2d(x, w); y = relu(t)        t = conv2d(x, half(w)); t = half(t); y = relu(t)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from adrenoc.base.tvmapi import tirx
from adrenoc.check.accuracy.variant import (
    Arrays,
    HeldStates,
    KernelStore,
    device_errors,
    empty,
    upload,
)
from adrenoc.ir.graph import Graph
from adrenoc.ir.node_kinds import CPU, TO_CPU
from adrenoc.ir.program import Program
from adrenoc.passes.analyse.cpu_nodes import lower_for_cpu

_HALF = "float16"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored in half: computed tensors and constants of the planning graph."""

    tensors: frozenset[str]
    constants: frozenset[str]

    @property
    def count(self) -> int:
        """How many tensors and constants are stored in half."""
        return len(self.tensors) + len(self.constants)

    def together(self, other: Stored) -> Stored:
        """What is stored in half in one of the two."""
        return Stored(
            tensors=self.tensors | other.tensors, constants=self.constants | other.constants
        )


NOTHING = Stored(tensors=frozenset(), constants=frozenset())


def stored_in_half(program: Program) -> Stored:
    """The tensors and constants that a program holds in half precision."""
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
    return Stored(tensors=frozenset(tensors), constants=frozenset(constants))


def rounded_to_half(value: np.ndarray) -> np.ndarray:
    """The numbers that halves keep of these; beyond their range infinity."""
    with np.errstate(over="ignore"):
        return value.astype(np.float16).astype(value.dtype)


class IdealRun:
    """A float32 program that rounds what it is told to between its launches."""

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

    @property
    def graph(self) -> Graph:
        """The graph that runs, every tensor of which is written by a launch of its own."""
        return self._program.graph

    def run(self, inputs: Arrays, rounding: Stored) -> list[np.ndarray]:
        """The outputs in order for inputs by the graph's names, with this much rounding."""
        graph, cpu = self.graph, tvm.cpu()
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
                        held[made].copyfrom(rounded_to_half(held[made].numpy()))
                for name in names:
                    if self._last_use[name] == number and name not in kept:
                        held.pop(name, None)
            self._device.sync()
            return [held[self._owner(name)].numpy() for name in graph.outputs]

    def _params(self, rounded: Iterable[str]) -> dict[str, Any]:
        wanted = set(rounded)
        chosen = {}
        for name, exact in self._exact.items():
            if _constant_of(self.graph, name) not in wanted or exact.dtype != "float32":
                chosen[name] = exact
                continue
            if name not in self._halves:
                half = rounded_to_half(np.asarray(self._program.params[name].value))
                self._halves[name] = tvm.runtime.tensor(half, self._device)
            chosen[name] = self._halves[name]
        return chosen

    def _owner(self, name: str) -> str:
        return self.graph.owner(name)


def _constant_of(graph: Graph, param: str) -> str:
    """The constant that a param was packed from: its name begins with the constant's."""
    name = param
    while name not in graph.tensors and "_" in name:
        name = name.rpartition("_")[0]
    return name


def _cpu_function(name: str, func: Any) -> Any:
    target = tvm.target.Target("llvm")
    module = tvm.IRModule({name: lower_for_cpu(func, target)})
    return tirx.build(module, target=target)[name]
