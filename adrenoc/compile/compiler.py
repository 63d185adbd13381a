"""Compile a model for a target: run the pipeline and gather what a bundle needs."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.decision import DecisionLog
from adrenoc.base.host.memory import collect_rarely
from adrenoc.base.reporter import Reporter
from adrenoc.bundle.bundle import LaunchInfo
from adrenoc.bundle.manifest import (
    KernelInfo,
    MemoryPlan,
    ParamSpec,
    RegionInfo,
    StageTime,
    Statistics,
    TensorSpec,
)
from adrenoc.clml.partition import Partition
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.importers.imported import Imported
from adrenoc.ir.graph import Graph
from adrenoc.ir.layout import Memory
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Packing, Program
from adrenoc.kernels.codegen.build import kernel_sources
from adrenoc.passes.lower.lower import all_params
from adrenoc.passes.lower.measure_work import list_launches
from adrenoc.target.gpu import Roofline
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled model in memory.  `library` is TVM's VM executable; its `main` takes the inputs,
    then the params in order.  `params` maps `p0`, `p1`, ... to packed constants, described by
    `param_specs`; `packings` has how those were packed that were not computed with."""

    library: Any
    params: dict[str, np.ndarray]
    param_specs: tuple[ParamSpec, ...]
    packings: dict[str, Packing]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[str, ...]
    kernels: tuple[KernelInfo, ...]
    memory: MemoryPlan
    decisions: DecisionLog
    stages: tuple[StageTime, ...]
    statistics: Statistics
    regions: tuple[RegionInfo, ...]
    launches: tuple[LaunchInfo, ...]


def compile_model(
    model: Path,
    *,
    target: Target,
    options: CompileOptions,
    reporter: Reporter,
    sha256: str = "",
    dump_dir: Path | None = None,
) -> Compiled:
    """Compile a model file; with `sha256` only if what is read has that digest."""
    start = State(model=model, target=target, options=options, sha256=sha256)
    with collect_rarely():
        state, stages = run_stages(start, reporter=reporter, dump_dir=dump_dir)
    if state.imported is None or state.program is None or state.storage is None:
        raise ValueError("the pipeline ended early")
    params = all_params(state.program)
    return Compiled(
        library=state.executable,
        params={f"p{i}": p.value for i, p in enumerate(params)},
        param_specs=tuple(
            ParamSpec(
                name=f"p{i}",
                shape=tuple(p.value.shape),
                dtype=str(p.value.dtype),
                scope=p.spec.scope,
            )
            for i, p in enumerate(params)
        ),
        packings={f"p{i}": p.packing for i, p in enumerate(params) if p.packing is not None},
        inputs=_input_specs(state.imported, state.program.graph),
        outputs=state.imported.outputs,
        states=tuple(past for past, _ in state.imported.states),
        kernels=_kernels(state.program, kernel_sources(state.executable)),
        memory=state.storage.plan,
        decisions=state.log,
        stages=stages,
        statistics=statistics_of(state.program),
        regions=region_infos(state.clml, state.program),
        launches=list_launches(
            state.program,
            half=options.compute_dtype == "float16",
            roofline=Roofline.from_performance(target.performance),
            node_of=state.imported.node_of,
        ),
    )


def _input_specs(imported: Imported, graph: Graph) -> tuple[TensorSpec, ...]:
    """Return the inputs; states are of the dtype in which they lie in memory."""
    pasts = set(graph.states.values())
    return tuple(
        replace(spec, dtype=graph.operand(name).dtype) if name in pasts else spec
        for spec, name in zip(imported.inputs, graph.inputs, strict=True)
    )


def region_infos(found: Partition | None, program: Program) -> tuple[RegionInfo, ...]:
    """Return what a bundle says of the regions that OpenCL ML computes, with their own kernels."""
    if found is None:
        return ()
    return tuple(
        RegionInfo(
            symbol=region.symbol,
            version=region.version,
            dtype=region.dtype,
            operators=tuple("+".join(operator.covers) for operator in region.operators),
            inputs=region.inputs,
            outputs=region.outputs,
            kernels=tuple(
                step.kernel for step in program.regions[region.symbol].steps if step.place == "gpu"
            ),
            copies=verdict.copies,
            texture_us=round(verdict.texture_us),
            clml_us=round(verdict.clml_us),
            copies_us=round(verdict.copies_us),
        )
        for region, verdict in zip(found.regions, found.verdicts, strict=True)
    )


def _kernels(program: Program, sources: dict[str, str]) -> tuple[KernelInfo, ...]:
    parts = (program, *program.regions.values())
    calls = Counter(step.kernel for part in parts for step in part.steps)
    return tuple(
        KernelInfo(
            name=kernel.name,
            family=kernel.family,
            calls=calls[kernel.name],
            scopes=kernel.scopes,
            work_group=kernel.launch.work_group,
            grid=kernel.launch.grid,
            digest=kernel.choice.digest if kernel.choice is not None else "",
            tuned=kernel.choice is not None and kernel.choice.tuned,
            source=sources[kernel.name],
        )
        for kernel in program.kernels.values()
    )


def statistics_of(program: Program) -> Statistics:
    """Return where operators and tensors are, and how many kernels only move data.  An operator
    counts for the memory that it writes.  A layout kernel converts between the user's row-major
    memory and blocks, or between two layouts; a copy kernel moves elements (concat, slice,
    reshape); pads are copies that only add zeros.  Device copies cross between GPU and CPU."""
    graph = program.graph
    on_gpu = (node for node in graph.nodes if node.has_kernel)
    nodes = Counter(_place(graph, node.output) for node in on_gpu)
    tensors = Counter(
        _place(graph, name) for name, tensor in graph.tensors.items() if tensor.value is None
    )
    kinds = Counter(kind_of(node.operators) for node in graph.nodes if node.is_map)
    return Statistics(
        nodes_texture=nodes["texture"],
        nodes_buffer=nodes["buffer"],
        nodes_cpu=sum(node.is_on_cpu for node in graph.nodes),
        nodes_clml=sum(node.is_region for node in graph.nodes),
        tensors_texture=tensors["texture"],
        tensors_buffer=tensors["buffer"],
        pad_kernels=kinds["pad"],
        copy_kernels=kinds["copy"],
        layout_kernels=kinds["layout"],
        device_copies=sum(node.is_device_copy for node in graph.nodes),
    )


_MOVES = {"reshape", "permute_dims", "strided_slice", "concat", "expand_dims", "squeeze"}


def kind_of(operators: tuple[str, ...]) -> str:
    """Return what a map of these operators does: `compute`, `copy`, `layout` or `pad`."""
    if set(operators) <= {"layout"}:
        return "layout"
    if operators == ("nn.pad",):
        return "pad"
    return "copy" if set(operators) <= _MOVES | {"layout"} else "compute"


def _place(graph: Graph, name: str) -> str:
    """Memory of a tensor; the graph's own inputs and outputs are in buffers by nature."""
    memory = graph.placements[name].memory
    return memory.value if memory in (Memory.TEXTURE, Memory.CPU) else "buffer"
