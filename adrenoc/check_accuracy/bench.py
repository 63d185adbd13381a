"""Compile variants of one model in memory and run them on an OpenCL device.

The model is imported, simplified and fused once; what varies is the preset, the tensors that are
pinned to float32, and which tensors are inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.check_accuracy.variant import (
    Arrays,
    KernelStore,
    MachineVariant,
    Plan,
    SteppedVariant,
    Variant,
    can_step,
)
from adrenoc.decision import DecisionLog
from adrenoc.graph import Graph, Node, Tensor
from adrenoc.manifest import TensorSpec
from adrenoc.options import CompileOptions, resolve_options
from adrenoc.passes.assign_memory import with_other_inputs
from adrenoc.passes.cpu_nodes import CPU, TO_CPU, TO_GPU
from adrenoc.passes.measure_work import measure_work
from adrenoc.passes.pin_precision import spread_precision
from adrenoc.passes.region_nodes import ALLOC, CLML
from adrenoc.pipeline import STAGES, State, program_of, run_stages, storage_of
from adrenoc.reporter import Reporter
from adrenoc.roofline import Roofline
from adrenoc.target import Target

_SHARED_STAGE, _PLANNED_STAGE = "bridge_devices", "plan_memory"
_NO_KERNEL = (CPU, TO_CPU, TO_GPU, CLML, ALLOC)
_ELSEWHERE = ("keep_layers", "spread_precision")
"""Stages whose work is done here in its own way."""


class Bench:
    """One model on one device; names of tensors are those of the planning graph."""

    def __init__(
        self,
        model: Path,
        *,
        target: Target,
        shapes: tuple[tuple[str, tuple[int, ...]], ...],
        device: Any,
        reporter: Reporter,
    ) -> None:
        options = resolve_options(target, command_line={"shapes": shapes or None}).options
        state = State(model=model, target=target, options=options)
        self._state, _ = run_stages(state, reporter=reporter, stop_after=_SHARED_STAGE)
        self._device = device
        self._store = KernelStore(target)
        if self._state.graph is None or self._state.imported is None:
            raise ValueError("the pipeline ended early")
        self.graph: Graph = self._state.graph
        self.tensors: Mapping[str, str] = self._state.imported.tensors
        self.inputs: tuple[TensorSpec, ...] = self._state.imported.inputs
        self.outputs: tuple[TensorSpec, ...] = self._state.imported.outputs

    def name_of(self, tensor: str) -> str:
        """The model's own name of a tensor of the graph, if it has one."""
        return self.tensors.get(tensor, tensor)

    def by_graph_name(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """The model's inputs under the names that the graph has for them."""
        return {
            name: inputs[spec.name]
            for name, spec in zip(self.graph.inputs, self.inputs, strict=True)
        }

    @property
    def layers(self) -> tuple[Node, ...]:
        """The nodes that a kernel computes and whose result is a float tensor."""
        return tuple(
            node
            for node in self.graph.nodes
            if node.op not in _NO_KERNEL
            and self.graph.tensors[node.output].is_float
            and node.operators != ("layout",)
        )

    def precision(self, preset: str) -> tuple[str, str]:
        """The dtypes in which a preset stores and computes."""
        options = self._options(preset)
        return options.storage_dtype, options.compute_dtype

    def whole(self, preset: str, pins: Iterable[str] = ()) -> Variant:
        """The model as it would be compiled."""
        return self._compiled(self.graph, preset, pins)

    def timed(self, preset: str, pins: Iterable[str] = ()) -> MachineVariant:
        """The model as it would be compiled, in TVM's virtual machine."""
        state = self._lowered(self.graph, preset, pins)
        return self._in_machine(state)

    def watched(self, preset: str) -> tuple[Variant, tuple[str, ...]]:
        """The same with every layer an output, and the names of the outputs in order."""
        own = self.graph.outputs
        more = [n.output for n in self.layers if n.output not in own]
        return self._compiled(replace(self.graph, outputs=(*own, *more)), preset), (*own, *more)

    def cut(self, preset: str) -> tuple[Variant, tuple[str, ...]]:
        """Every layer alone: what a layer makes is an output, what it reads is an input.

        The inputs are those of the model and `input_of_cut` of each layer's tensor.
        """
        made = {node.output for node in self.layers}
        read = {n for n in made if self.graph.consumers[n]}
        names = {n: input_of_cut(n) for n in self.graph.tensors if n in read}
        tensors = [
            Tensor(name=fed, shape=self.graph.tensors[n].shape, dtype=self.graph.tensors[n].dtype)
            for n, fed in names.items()
        ]
        nodes = [
            node if node.op in _NO_KERNEL else with_other_inputs(node, names)
            for node in self.graph.nodes
        ]
        outputs = tuple(node.output for node in self.layers)
        graph = replace(self.graph, inputs=(*self.graph.inputs, *names.values()), outputs=outputs)
        return self._compiled(graph.with_nodes(nodes, tensors), preset), outputs

    def magnitudes(self, layers: Iterable[Node]) -> tuple[Variant, tuple[str, ...]]:
        """What the products of layers add up to by their size: the same sums over |x| and |w|.

        The inputs are `input_of_cut` of the tensors that they read, to be given as sizes; in
        float32, without epilogues.
        """
        nodes, tensors = [], {}
        for node in layers:
            for name in node.inputs[:2]:
                tensor = self.graph.tensors[name]
                size = None if tensor.value is None else np.abs(tensor.value)
                tensors[name] = replace(tensor, name=input_of_cut(name), value=size)
            alone = replace(
                node, inputs=node.inputs[:2], epilogue=None, prologue=None, fused=(node.op,)
            )
            nodes.append(with_other_inputs(alone, {n: input_of_cut(n) for n in alone.inputs}))
        outputs = tuple(node.output for node in nodes)
        made = {t.name: t for t in tensors.values()} | {n: self.graph.tensors[n] for n in outputs}
        inputs = tuple(t.name for t in tensors.values() if t.value is None)
        graph = Graph(tensors=made, nodes=tuple(nodes), inputs=inputs, outputs=outputs)
        return self._compiled(graph, "fp32"), outputs

    def _options(self, preset: str) -> CompileOptions:
        chosen = {"shapes": self._state.options.shapes or None}
        return resolve_options(self._state.target, preset=preset, command_line=chosen).options

    def _compiled(self, graph: Graph, preset: str, pins: Iterable[str] = ()) -> Variant:
        state = self._lowered(graph, preset, pins)
        program = program_of(state)
        if not can_step(program.steps):
            return self._in_machine(state)
        return SteppedVariant(program, _plan_of(state), self._store, self._device)

    def _lowered(self, graph: Graph, preset: str, pins: Iterable[str]) -> State:
        options, log = self._options(preset), DecisionLog()
        graph = spread_precision(replace(graph, exact=frozenset(pins)), options, log)
        state = replace(self._state, options=options, graph=graph, log=log)
        return _run(state, _SHARED_STAGE, _PLANNED_STAGE)

    def _in_machine(self, state: State) -> MachineVariant:
        state = _run(state, _PLANNED_STAGE, STAGES[-1].name)
        return MachineVariant(state.executable, program_of(state), _plan_of(state), self._device)


def input_of_cut(tensor: str) -> str:
    """The name of the input of a cut graph that stands for a layer's tensor."""
    return f"{tensor}_given"


def _run(state: State, after: str, until: str) -> State:
    """The state after the stages between two."""
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index(after) + 1 : names.index(until) + 1]:
        if stage.name not in _ELSEWHERE and stage.when(state.options):
            state = stage.run(state)
    return state


def _plan_of(state: State) -> Plan:
    works = measure_work(program_of(state), half=state.options.compute_dtype == "float16")
    roofline = Roofline.of(state.target.performance)
    floors = [roofline.estimate(step.work).time_us for step in works]
    known = [us for us in floors if us is not None]
    return Plan(
        memory_bytes=storage_of(state).plan.peak_bytes,
        moved_bytes=sum(s.work.bytes_read + s.work.bytes_written for s in works),
        floor_us=sum(known) if len(known) == len(floors) else None,
    )
