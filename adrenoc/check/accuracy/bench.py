"""Compile variants of one model in memory, and run them launch by launch on an OpenCL device.

The model is imported and simplified once; what varies is the preset, the tensors that are pinned to
float32, and which tensors are inputs and outputs. All stages from the pins on run for each preset
as `adrenoc compile` runs them. Variants share most of their kernels, so they come from a store that
builds each distinct one once.

Between two launches tensors can be rounded to half, and constants can be: what rounding alone does
to a model in float32 is the floor of the error of any plan that stores halves, and what a plan
loses beyond that is lost by its kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm_ffi.structural import structural_equal, structural_hash

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import DeviceError
from adrenoc.base.files.outputs import cache_errors
from adrenoc.base.files.read import cache_folder
from adrenoc.base.reporter import Reporter
from adrenoc.base.tvmapi import tirx
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check.accuracy.result import step_over_range
from adrenoc.check.own_rounding import read_quanta
from adrenoc.compile.pipeline import STAGES, State, program_of, run_stages, storage_of
from adrenoc.compile.steps import graph_of, imported_of
from adrenoc.importers.signature import AS_IT_IS, Entry
from adrenoc.ir.graph import CPU, TO_CPU, Graph, Node, Tensor
from adrenoc.ir.half import HALF_MAX
from adrenoc.ir.layout import TEXTURE, OperandSpec
from adrenoc.ir.options import DEFAULT_PRESET, CompileOptions, resolve_options
from adrenoc.ir.program import Program
from adrenoc.kernels.codegen.build import device_kernel
from adrenoc.native.opencl import build_cached
from adrenoc.passes.analyse.cpu_nodes import lower_for_cpu
from adrenoc.passes.lower.measure_work import measure_work
from adrenoc.passes.place.assign_places import rename_inputs
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.target.gpu import Roofline
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
    """Round as storing does, within the range: overflow is the fault of who made it."""
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
        """Upload in the dtype that the program has for it: a state's own, or the model's."""
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
    """Raise what the native runtime raises as a DeviceError."""
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
        state = self.run_planning(preset, pins)
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

    def run_planning(self, preset: str, pins: Iterable[str] = ()) -> State:
        """Return the compilation up to its kernels and memory, with these tensors pinned."""
        return _run(self._run_fusion(preset, pins), _FUSED_STAGE, _PLANNED_STAGE)

    def find_halves(self, preset: str, pins: Iterable[str] = ()) -> HalfTensors:
        """Return what the compiled model holds in half precision."""
        return stored_in_half(program_of(self.run_planning(preset, pins)))

    def ideal(self) -> ProgramRun:
        """Return the model in float32 throughout, with rounding where it is asked for. In plain
        buffers and without what saves time, so that every tensor that any plan stores is there, and
        no kernel is shared with the plans that are examined."""
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
        """Build every layer alone: what a layer makes is an output, what it reads is an input. The
        inputs are those of the model and `input_of_cut` of each layer's tensor; `constants` replace
        those of their names."""
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
        """Return what products add up to by their size: the same sums over |x| and |w|. The inputs
        are `input_of_cut` of the tensors that they read, to be given as sizes; in float32, without
        epilogues."""
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
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index(after) + 1 : names.index(until) + 1]:
        if stage.when(state.options):
            state = stage.run(state)
    return state
