"""The stages' deeds: each maps a state to the next one.

The last stage of every compilation: nothing is written that breaks a rule.

One function, whatever the target, the preset and the options: what a software device would refuse,
a phone might compute wrongly and say nothing.  The checks follow the program from the planning
graph to the text of its kernels, and each looks at what the stage before it made, not at what it
meant:

    graph      every tensor made once, before it is read; no image read by what writes it
    launches   each gives its kernel what the node reads and writes, of the declared shapes
    storage    what a launch reads is still in its slot, and fits there; images within limits
    module     the virtual machine launches these steps in this memory
    sources    the kernels' texts read and write the images that they are given for it, the
               numbers that the runtime gives them are such as it reads, and all of it is OpenCL C
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.host.extras import find_zig
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.clml.partition import partition, reckoning
from adrenoc.clml.region import attach_regions, load_table
from adrenoc.compile.pipeline.stage import (
    State,
    graph_of,
    imported_of,
    program_of,
    regions_of,
    storage_of,
)
from adrenoc.importers import import_model
from adrenoc.importers.imported import Imported
from adrenoc.ir.graph import Graph
from adrenoc.ir.program import Program
from adrenoc.ir.tuning_log import Tuning, choose_trials, find_log, read_log, tuning_of
from adrenoc.kernels.codegen.build import build_executable, kernel_sources, module_texts
from adrenoc.kernels.codegen.opencl_sharing import read_programs
from adrenoc.passes.context import Context, Pass
from adrenoc.passes.fuse.split_winograd import split_winograd
from adrenoc.passes.lower.emit_relax import RegionCode, emit_relax
from adrenoc.passes.lower.fit_memory import MIB, check_pieces, fit_memory
from adrenoc.passes.lower.lower import lower
from adrenoc.passes.lower.plan_memory import Storage, layer_grids, plan_memory
from adrenoc.passes.place.outputs import expose_layers
from adrenoc.passes.read.avoided import avoid_decisions, avoided_operators
from adrenoc.passes.read.read_graph import read_graph
from adrenoc.passes.verify.check_graph import check_graph
from adrenoc.passes.verify.check_program import (
    check_kernels,
    check_launches,
    check_module,
    check_storage,
)
from adrenoc.passes.verify.check_sources import (
    check_constants,
    check_sources,
    parse_opencl,
)
from adrenoc.target.gpu import Limits


def import_step(state: State) -> State:
    options = state.options
    imported = import_model(
        state.model,
        shapes=dict(options.shapes),
        states=options.states,
        caches=options.caches,
        recurrent=options.recurrent,
        fixed=options.fixed,
        signature=options.signature,
        digested=not state.sizes_only,
    )
    if state.sha256 not in ("", imported.model_sha256):
        raise ModelFormatError(
            f"{state.model} changed while it was compiled: its SHA-256 was {state.sha256[:12]}, "
            f"and {imported.model_sha256[:12]} was read",
            hint="run the same command again when the model is whole",
        )
    _record(state.log, imported.decisions)
    _record(state.log, avoid_decisions(state.target))
    return replace(state, imported=imported, module=imported.module)


def run_on_module(rewrite: Callable[[Any], tuple[Any, Iterable[Any]]]) -> Callable[[State], State]:
    """Return the step of a rewrite of the Relax module, which hands back what it decided."""

    def run(state: State) -> State:
        module, decisions = rewrite(state.module)
        _record(state.log, decisions)
        return replace(state, module=module)

    return run


def run_on_graph(
    *changes: Pass, in_regions: bool = False, makes: tuple[str, ...] = ()
) -> Callable[[State], State]:
    """Return the step of passes on the model's graph, and on those of its regions of CLML.

    `makes` are the words by which a target avoids what they make (`adrenoc/target/gpu.py`).
    """

    def run(state: State) -> State:
        context = context_of(state)
        if any(map(context.avoids, makes)):
            return state

        def change_all(graph: Graph) -> Graph:
            for change in changes:
                graph = change(graph, context)
            return graph

        state = replace(state, graph=change_all(graph_of(state)))
        if not in_regions:
            return state
        regions = {symbol: change_all(graph) for symbol, graph in state.region_graphs.items()}
        return replace(state, region_graphs=regions)

    return run


def context_of(state: State) -> Context:
    """Return what the passes on the graph may ask."""
    names = {} if state.imported is None else state.imported.tensors
    return Context(options=state.options, target=state.target, log=state.log, names=names)


def partition_clml_step(state: State) -> State:
    options, table = state.options, load_table()
    version = options.clml_version or state.target.gpu.clml_version
    if version is None:
        version = table.costs.default_version
        state.log.add("clml", f"CLML version {version}", table.costs.sources["default_version"])
    elif options.clml_version is None:
        source = state.target.source_of("clml_version") or "the target file"
        state.log.add("clml", f"CLML version {version}", source)
    half = options.storage_dtype == "float16"
    performance = state.target.performance
    launch_source = state.target.source_of("performance.launch_us") or "not known, left out"
    reckoned = reckoning(table, performance, half=half, launch_source=launch_source)
    state.log.add("clml", *reckoned)
    found = partition(
        state.module,
        keep_all=options.clml == "all",
        version=version,
        dtype=options.storage_dtype,
        sum_dtype=options.compute_dtype,
        performance=state.target.performance,
    )
    _record(state.log, found.decisions)
    return replace(state, module=found.module, clml=found)


def read_graph_step(state: State) -> State:
    regions = state.clml.regions if state.clml is not None else ()
    whole = avoided_operators(state.target)
    graph = read_graph(state.module, state.log, avoided=whole)
    return replace(
        state,
        graph=replace(graph, states=_states_of(graph, imported_of(state))),
        region_graphs={
            r.symbol: read_graph(state.module, state.log, r.symbol, avoided=whole) for r in regions
        },
    )


def _states_of(graph: Graph, imported: Imported) -> dict[str, str]:
    """Output -> the input that it is in the next run, by the names of the graph."""
    inputs = dict(zip((spec.name for spec in imported.inputs), graph.inputs, strict=False))
    last = graph.outputs[len(graph.outputs) - len(imported.states) :]
    pairs = zip(last, imported.states, strict=True)
    return {output: inputs[past] for output, (past, _) in pairs}


def expose_layers_step(state: State) -> State:
    """Return the tensors that become outputs of the graph become outputs of the model, too."""
    imported, before = imported_of(state), graph_of(state).outputs
    state = run_on_graph(expose_layers)(state)
    graph = graph_of(state)
    tensors = [graph.tensors[name] for name in graph.outputs[len(before) :]]
    specs = [
        TensorSpec(name=imported.tensors[t.name], shape=t.shape, dtype=t.dtype) for t in tensors
    ]
    return replace(state, imported=replace(imported, outputs=(*imported.outputs, *specs)))


def _record(log: DecisionLog, decisions: Iterable[Any]) -> None:
    for decision in decisions:
        log.add(decision.subject, decision.taken, decision.reason)


def split_winograd_step(state: State) -> State:
    """Return the graph before is kept: a limit of memory may ask for it."""
    split = run_on_graph(split_winograd)(state)
    changed = graph_of(split).nodes != graph_of(state).nodes
    return replace(split, unsplit=state.graph if changed else None)


def lower_step(state: State) -> State:
    program = lower(
        graph_of(state),
        state.options,
        state.target,
        state.log,
        state.region_graphs,
        tuning=_tuning(state),
        sizes_only=state.sizes_only,
    )
    return replace(state, program=program)


def _tuning(state: State) -> Tuning:
    """Return what the tuning log and the target's own file say about schedules."""
    path = state.options.tuning_log
    if path is None:
        return Tuning()
    trials, warning = choose_trials(read_log(find_log(path)), state.target.measured_as, path)
    if warning:
        state.log.add("tuning log", "used with care", warning)
    return tuning_of(trials)


def _fit_memory(state: State, limit_mib: int) -> State:
    def lower_again(graph: Graph) -> Program:
        return program_of(lower_step(replace(state, graph=graph, log=DecisionLog())))

    program = fit_memory(program_of(state), limit_mib, lower_again, state.log, state.unsplit)
    return replace(state, program=program, graph=program.graph)


def plan_memory_step(state: State) -> State:
    storage, decision = plan_storage(state)
    limit = state.options.max_memory_mib
    if limit is not None and storage.plan.peak_bytes > limit * MIB:
        state = _fit_memory(state, limit)
        storage, decision = plan_storage(state)
    if decision is not None:
        state.log.add(decision.subject, decision.taken, decision.reason)
    program = program_of(state)
    check_pieces(program, state.target.limits)
    return replace(
        state,
        storage=storage,
        region_storage={s: plan_memory(part) for s, part in program.regions.items()},
    )


def plan_storage(state: State) -> tuple[Storage, Decision | None]:
    """Return the plan, with textures in one buffer where asked for and smaller; and why."""
    program, limits = program_of(state), state.target.limits
    apart = plan_memory(program)
    if not state.options.pool_textures:
        return apart, None
    pooled = plan_memory(program, pool_within=limits)
    before, after = apart.plan.slot_bytes, pooled.plan.slot_bytes
    told = f"in one buffer: {after / MIB:.2f} MiB instead of {before / MIB:.2f}"
    most = max((slot.bytes for slot in pooled.plan.slots), default=0)
    if after >= before or most > (limits.max_alloc_bytes or most):
        return apart, Decision(subject="memory", taken="textures of their own", reason=told)
    taken = f"{len(pooled.places)} textures made from one buffer"
    return pooled, Decision(subject="memory", taken=taken, reason=told)


def emit_relax_step(state: State) -> State:
    regions = {
        region.symbol: RegionCode(
            storage=state.region_storage[region.symbol], version=region.version
        )
        for region in regions_of(state)
    }
    module = emit_relax(program_of(state), storage_of(state), state.target.llvm_triple, regions)
    return replace(state, module=module)


def build_step(state: State) -> State:
    module = attach_regions(state.module, regions_of(state))
    grids = layer_grids(program_of(state), storage_of(state).places)
    built = build_executable(module, state.target, state.log, layer_grids=grids)
    return replace(state, executable=built)


def verify_step(state: State) -> State:
    """Check all of the finished program; the state is what it was.

    Raises:
        DefectError: naming what breaks which rule.
    """
    program, storage = program_of(state), {"": storage_of(state), **state.region_storage}
    check_plan(program, storage, state.target.limits)
    check_module(state.module, program, storage)
    grids = layer_grids(program, storage_of(state).places)
    check_sources(program, kernel_sources(state.executable), grids)
    texts = module_texts(state.executable.mod)
    check_constants(texts)
    _parse_texts(texts, state.log)
    return state


def _parse_texts(texts: list[str], log: DecisionLog) -> None:
    front_end = find_zig()
    if front_end is None:
        why = "the package ziglang, whose clang does, is not installed (the extra link)"
        log.add("texts of kernels", "not parsed", why)
        return
    for text in texts:
        parse_opencl(front_end, read_programs(text))


def check_plan(program: Program, storage: dict[str, Storage], limits: Limits) -> None:
    """The checks of what can be known before any code is made; `storage` is by region.

    Raises:
        DefectError: naming what breaks which rule.
    """
    check_kernels(program, limits)
    for symbol, part in (("", program), *program.regions.items()):
        check_graph(part.graph, limits)
        check_launches(part, limits)
        check_storage(part, storage[symbol], limits)
