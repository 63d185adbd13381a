"""Compile variants of one model in memory and run them on an OpenCL device.

The model is imported and simplified once; what varies is the preset, the tensors that are pinned to
float32, and which tensors are inputs and outputs.  All stages from the pins on run for each preset
as `adrenoc compile` runs them, so that what the compiler keeps in float32 is kept here, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.decision import DecisionLog
from adrenoc.base.reporter import Reporter
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check.accuracy.program_run import (
    Arrays,
    HalfTensors,
    KernelStore,
    ProgramRun,
    stored_in_half,
)
from adrenoc.check.accuracy.result import step_over_range
from adrenoc.check.own_rounding import read_quanta
from adrenoc.compile.pipeline import STAGES, State, program_of, run_stages, storage_of
from adrenoc.compile.pipeline.stage import graph_of, imported_of
from adrenoc.importers.signature import AS_IT_IS, Entry
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.options import DEFAULT_PRESET, CompileOptions, resolve_options
from adrenoc.passes.lower.measure_work import measure_work
from adrenoc.passes.place.assign_places import rename_inputs
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.target.roofline import Roofline
from adrenoc.target.target import Target

_SHARED_STAGE, _FUSED_STAGE, _PLANNED_STAGE = "inline_scalars", "spread_precision", "plan_memory"
_NEEDED = ("keep_states", "assign_layouts", "assign_memory", "lower")
"""Of the stages after fusion those without which nothing runs; the others save time."""


@dataclass(frozen=True, kw_only=True)
class VariantFigures:
    """The figures of one compiled variant, for its cost. `time_us` is the roofline's sum over all
    launches with the gaps between them; None where the target gives no rates."""

    memory_bytes: int
    moved_bytes: int
    time_us: float | None


class AccuracyBench:
    """One model on one device; names of tensors are those of the planning graph."""

    def __init__(
        self,
        model: Path,
        *,
        target: Target,
        shapes: tuple[tuple[str, tuple[int, ...]], ...],
        device: Any,
        reporter: Reporter,
        chosen: CompileOptions | None = None,
        caches: tuple[tuple[str, str], ...] = (),
        recurrent: tuple[tuple[str, str], ...] = (),
        int8_prompts: bool = False,
        keep_float32: bool = True,
        entry: Entry = AS_IT_IS,
    ) -> None:
        """`chosen` are the options of a compilation, for its own preset; `caches` and `recurrent`
        are the states of a decoder, of which this is one entry point; `int8_prompts` rounds the
        tokens of products of many to bytes; `keep_float32` is that of `CompileOptions`; `entry` is
        how the file is entered."""
        self.entry, self.shapes = entry, shapes
        self._said = {
            "shapes": shapes or None,
            "caches": caches or None,
            "recurrent": recurrent or None,
            "int8_prompts": int8_prompts or None,
            "keep_float32": None if keep_float32 else False,
            **self.entry.options(),
        }
        options = resolve_options(target, command_line=self._said).options
        self._chosen = chosen
        state = State(model=model, target=target, options=options)
        self._state, _ = run_stages(state, reporter=reporter, stop_after=_SHARED_STAGE)
        self._device = device
        self._store = KernelStore(target, device)
        self._fused_states: dict[str, State] = {}
        imported = imported_of(self._state)
        self.graph: Graph = graph_of(self._run_fusion(DEFAULT_PRESET))
        self.tensors: Mapping[str, str] = imported.tensors
        self.inputs: tuple[TensorSpec, ...] = imported.inputs
        self.outputs: tuple[TensorSpec, ...] = imported.outputs

    def name_of(self, tensor: str) -> str:
        """Return the model's own name of a tensor of the graph, if it has one."""
        return self.tensors.get(tensor, tensor)

    def find_quantum(self, tensor: str, truth: np.ndarray) -> float:
        """Return one step of a tensor that the model rounds, over its range; 0 of others."""
        step = 1.0 if tensor in self._rounded else self._stated.get(self.name_of(tensor), 0.0)
        return step_over_range(step, truth) if step else 0.0

    @cached_property
    def _rounded(self) -> frozenset[str]:
        """Return the tensors that are rounded to whole numbers, and hold nothing else."""
        whole = Analysis(self.graph).whole
        return frozenset(name for name in whole if self.graph.precision(name).rounded)

    @cached_property
    def _stated(self) -> Mapping[str, float]:
        """Return the quanta that the model states, by its own names."""
        known = read_quanta(self._state.model)
        return {} if known is None else known.tensors

    def rename_inputs(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the model's inputs under the names that the graph has for them."""
        return {
            name: inputs[spec.name]
            for name, spec in zip(self.graph.inputs, self.inputs, strict=True)
        }

    @property
    def layers(self) -> tuple[Node, ...]:
        """Return the nodes that a kernel computes and whose result is a float tensor."""
        return tuple(
            node
            for node in self.graph.nodes
            if node.has_kernel
            and self.graph.tensors[node.output].is_float
            and node.operators != ("layout",)
        )

    def precision(self, preset: str) -> tuple[str, str]:
        """Return the dtypes in which a preset stores and computes."""
        options = self._options(preset)
        return options.storage_dtype, options.compute_dtype

    def fuse(self, preset: str) -> Graph:
        """Fuse the model as a preset does, with what the compiler keeps in float32."""
        return graph_of(self._run_fusion(preset))

    def exact(self, preset: str) -> frozenset[str]:
        """Return the tensors that the compiler itself keeps in float32."""
        return graph_of(self._run_fusion(preset)).float32_names

    def whole(self, preset: str, pins: Iterable[str] = ()) -> ProgramRun:
        """Return the model as it would be compiled."""
        return self._build(self.run_planning(preset, pins))

    def plan(self, preset: str, pins: Iterable[str] = ()) -> VariantFigures:
        """Return the figures of the model as it would be compiled."""
        return _plan_of(self.run_planning(preset, pins))

    def run_planning(self, preset: str, pins: Iterable[str] = ()) -> State:
        """Return the compilation up to its kernels and memory, with these tensors pinned."""
        return _run(self._run_fusion(preset, pins), _FUSED_STAGE, _PLANNED_STAGE)

    def find_halves(self, preset: str, pins: Iterable[str] = ()) -> HalfTensors:
        """Return what the compiled model holds in half precision."""
        return stored_in_half(program_of(self.run_planning(preset, pins)))

    def ideal(self) -> ProgramRun:
        """Return the model in float32 throughout, with rounding where it is asked for.

        In plain buffers and without what saves time, so that every tensor that any plan stores is
        there, and no kernel is shared with the plans that are examined.
        """
        state = self._run_fusion("fp32")
        options = replace(state.options, textures=False, winograd=False)
        nodes = [replace(n, op="map") if n.is_concat else n for n in graph_of(state).nodes]
        state = replace(state, options=options, graph=graph_of(state).replace_nodes(nodes))
        for stage in STAGES:
            if stage.name in _NEEDED:
                state = stage.run(state)
        return self._build(state)

    def expose_layers(self, preset: str) -> tuple[ProgramRun, tuple[str, ...]]:
        """Build the model as a preset does, with every layer an output in order."""
        graph = graph_of(self._run_fusion(preset))
        more = [n.output for n in self.layers if n.output not in graph.output_names]
        names = (*graph.outputs, *more)
        return self._build_graph(replace(graph, outputs=names), preset), names

    def cut(
        self, preset: str, constants: Mapping[str, np.ndarray] | None = None
    ) -> tuple[ProgramRun, tuple[str, ...]]:
        """Build every layer alone: what a layer makes is an output, what it reads is an input.

        The inputs are those of the model and `input_of_cut` of each layer's tensor; `constants`
        replace those of their names.
        """
        whole = graph_of(self._run_fusion(preset))
        made = {node.output for node in self.layers}
        read = {n for n in made if whole.consumers[n]}
        names = {n: input_of_cut(n) for n in whole.tensors if n in read}
        tensors = [
            Tensor(name=fed, shape=whole.tensors[n].shape, dtype=whole.tensors[n].dtype)
            for n, fed in names.items()
        ]
        tensors += [replace(whole.tensors[n], value=v) for n, v in (constants or {}).items()]
        nodes = [
            node if not node.has_kernel else rename_inputs(node, names) for node in whole.nodes
        ]
        graph = replace(
            whole,
            inputs=(*whole.inputs, *names.values()),
            outputs=tuple(node.output for node in self.layers),
            precisions={
                name: replace(asked, low=None)  # bytes are for what a kernel of this graph makes
                for n, asked in whole.precisions.items()
                for name in (n, names.get(n, n))
            },
        )
        return self._build_graph(graph.replace_nodes(nodes, tensors), preset), graph.outputs

    def magnitudes(self, layers: Iterable[Node]) -> tuple[ProgramRun, tuple[str, ...]]:
        """Return what products add up to by their size: the same sums over |x| and |w|.

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
            nodes.append(rename_inputs(alone, {n: input_of_cut(n) for n in alone.inputs}))
        outputs = tuple(node.output for node in nodes)
        made = {t.name: t for t in tensors.values()} | {n: self.graph.tensors[n] for n in outputs}
        inputs = tuple(t.name for t in tensors.values() if t.value is None)
        graph = Graph(tensors=made, nodes=tuple(nodes), inputs=inputs, outputs=outputs)
        return self._build_graph(graph, "fp32"), outputs

    def _options(self, preset: str, pins: Iterable[str] = ()) -> CompileOptions:
        own = imported_of(self._state).tensors
        names = tuple(sorted({own.get(name, name) for name in pins}))
        if self._chosen is not None and self._chosen.preset == preset:
            return replace(self._chosen, float32_tensors=names)
        chosen = {**self._said, "float32_tensors": names or None}
        return resolve_options(self._state.target, preset=preset, command_line=chosen).options

    def _run_fusion(self, preset: str, pins: Iterable[str] = ()) -> State:
        """After the stages that decide what a kernel computes and what stays in float32."""
        pins = tuple(pins)
        if not pins and preset in self._fused_states:
            return replace(self._fused_states[preset], log=DecisionLog())
        options = self._options(preset, pins)
        state = _run(
            replace(self._state, options=options, log=DecisionLog()), _SHARED_STAGE, _FUSED_STAGE
        )
        if not pins:
            self._fused_states[preset] = state
        return state

    def _build_graph(self, graph: Graph, preset: str) -> ProgramRun:
        """Return a graph of our own making, planned as the preset says."""
        state = replace(self._run_fusion(preset), graph=graph)
        return self._build(_run(state, _FUSED_STAGE, _PLANNED_STAGE))

    def _build(self, state: State) -> ProgramRun:
        return ProgramRun(program_of(state), self._store, self._device)


def input_of_cut(tensor: str) -> str:
    """Return the name of the input of a cut graph that stands for a layer's tensor."""
    return f"{tensor}_given"


def _run(state: State, after: str, until: str) -> State:
    """Return the state after the stages between two."""
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index(after) + 1 : names.index(until) + 1]:
        if stage.when(state.options):
            state = stage.run(state)
    return state


def _plan_of(state: State) -> VariantFigures:
    """Return the figures of what has its kernels and memory."""
    works = measure_work(program_of(state), half=state.options.compute_dtype == "float16")
    roofline = Roofline.from_performance(state.target.performance)
    floors = [roofline.estimate(step.work).time_us for step in works]
    known = [us for us in floors if us is not None]
    gaps_us = len(floors) * (roofline.launch_us or 0.0)
    return VariantFigures(
        memory_bytes=storage_of(state).plan.peak_bytes,
        moved_bytes=sum(s.work.bytes_read + s.work.bytes_written for s in works),
        time_us=sum(known) + gaps_us if len(known) == len(floors) else None,
    )
