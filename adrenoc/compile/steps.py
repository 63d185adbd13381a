"""One row of the pipeline, what it does to what it hands to the next, and that rows are in order.

The order is data: a stage belongs to a phase, phases follow each other, and within a phase each
pair whose order matters says so, with the reason, at one of the two.

`State` is what one compilation knows so far.  A stage's dump and its note in the timings are texts
of that.

The last stage of every compilation checks all of it, so that nothing is written that breaks a rule:
by one function, whatever the target, the preset and the options: what a software device would
refuse, a phone might compute wrongly and say nothing.  The checks follow the program from the
planning graph to the text of its kernels, and each looks at what the stage before it made, not at
what it meant:

    graph      every tensor made once, before it is read; no image read by what writes it
    launches   each gives its kernel what the node reads and writes, of the declared shapes
    storage    what a launch reads is still in its slot, and fits there; images within limits
    module     the virtual machine launches these steps in this memory
    sources    the kernels' texts read and write the images that they are given for it, the
               numbers that the runtime gives them are such as it reads, and all of it is OpenCL C
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.host.extras import find_zig
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.clml.partition import Partition, partition, reckoning
from adrenoc.clml.region import ClmlRegion, attach_regions, load_table
from adrenoc.importers import import_model
from adrenoc.importers.imported import Imported
from adrenoc.ir.graph import AS_OPTIONS, Graph
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Program
from adrenoc.ir.tuning_log import Tuning, choose_trials, find_log, read_log, tuning_of
from adrenoc.kernels.codegen.build import build_executable, kernel_sources, module_texts
from adrenoc.kernels.codegen.opencl_sharing import read_programs
from adrenoc.passes.context import Context, Pass
from adrenoc.passes.fuse.split_winograd import split_winograd
from adrenoc.passes.lower.fit_memory import MIB, check_pieces, fit_memory
from adrenoc.passes.lower.lower import RegionCode, emit_relax, lower
from adrenoc.passes.lower.plan_memory import Storage, layer_grids, plan_memory
from adrenoc.passes.place.copies import expose_layers
from adrenoc.passes.read.read_graph import avoid_decisions, avoided_operators, read_graph
from adrenoc.passes.verify.check_graph import (
    check_constants,
    check_graph,
    check_sources,
    parse_opencl,
)
from adrenoc.passes.verify.check_program import (
    check_kernels,
    check_launches,
    check_module,
    check_storage,
)
from adrenoc.target.gpu import Limits
from adrenoc.target.target import Target

_Part = TypeVar("_Part")


@dataclass(frozen=True, kw_only=True)
class State:
    """What one compilation knows so far; each stage fills in its part."""

    model: Path
    target: Target
    options: CompileOptions
    sha256: str = ""
    """The digest of the model's file, where that is known before it is read."""
    sizes_only: bool = False
    """The plan is looked at, and nothing is built: params are zeros."""
    log: DecisionLog = field(default_factory=DecisionLog)
    imported: Imported | None = None
    module: Any = None
    """Relax: the model before the graph is read, the kernels' driver after `emit_relax`."""
    clml: Partition | None = None
    """The regions that CLML computes, with `options.clml`."""
    graph: Graph | None = None
    region_graphs: Mapping[str, Graph] = field(default_factory=dict)
    """Region of CLML -> the graph of its kernels, for where CLML cannot run it."""
    unsplit: Graph | None = None
    """The graph before convolutions were split by Winograd's algorithm, where any was."""
    program: Program | None = None
    storage: Storage | None = None
    region_storage: Mapping[str, Storage] = field(default_factory=dict)
    executable: Any = None


def regions_of(state: State) -> tuple[ClmlRegion, ...]:
    """Return the regions of CLML, in order."""
    return state.clml.regions if state.clml is not None else ()


def imported_of(state: State) -> Imported:
    """Return the model as it was imported."""
    return _made(state.imported, "nothing has been imported yet")


def graph_of(state: State) -> Graph:
    """Return the planning graph."""
    return _made(state.graph, "no graph has been read yet")


def program_of(state: State) -> Program:
    """Return the kernels of a state that is lowered."""
    return _made(state.program, "the graph has not been lowered yet")


def storage_of(state: State) -> Storage:
    """Return the memory of a state whose memory is planned."""
    return _made(state.storage, "the memory has not been planned yet")


def _made(part: _Part | None, otherwise: str) -> _Part:
    """Return a part of a state that an earlier stage made."""
    if part is None:
        raise ValueError(otherwise)
    return part


class Phase(str, Enum):
    """The parts of a compilation, in order; `pipeline.py` says what holds at the end of each."""

    IMPORT = "import"
    SIMPLIFY = "simplify"
    FUSE = "fuse"
    PRECISION = "precision"
    PLACE = "place"
    CHOOSE = "choose"
    LOWER = "lower"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One row of the pipeline.  `run` maps a state to the next one; it is skipped unless `when`
    holds.  `dump` renders what the stage made, `note` says it in a few words, and `check` raises
    DefectError where the stage broke what has to hold."""

    name: str
    phase: Phase
    run: Callable[[State], State]
    dump: Callable[[State], str]
    after: Mapping[str, str] = field(default_factory=dict)
    """Stages of the same phase that come first, each with the reason."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Later stages whose price this one reckons with, so that neither undoes the other's gain."""
    note: Callable[[State], str] = lambda _: ""
    check: Callable[[State], None] = lambda _: None
    when: Callable[[CompileOptions], bool] = lambda _: True


def check_order(stages: Sequence[Stage]) -> None:
    """Phases follow each other, and each stage comes after those that it names.

    Raises:
        ValueError: naming the first stage that stands in a wrong place, and why it does.
    """
    place = {stage.name: number for number, stage in enumerate(stages)}
    if len(place) != len(stages):
        raise ValueError("two stages have one name")
    phases = list(Phase)
    for before, stage in pairwise(stages):
        if phases.index(before.phase) > phases.index(stage.phase):
            raise ValueError(
                f"stage {stage.name} of the phase {stage.phase.value} stands behind "
                f"{before.name} of the phase {before.phase.value}"
            )
    for stage in stages:
        for other, reason in stage.after.items():
            if place.get(other, len(stages)) > place[stage.name]:
                raise ValueError(f"stage {stage.name} comes after {other}: {reason}")
        for other, reason in stage.asks.items():
            if place.get(other, -1) < place[stage.name]:
                raise ValueError(
                    f"stage {stage.name} comes before {other}, which it asks: {reason}"
                )


def dump_module(state: State) -> str:
    """Relax, as TVM prints it."""
    return str(state.module.script(show_meta=False))


def dump_graph(state: State) -> str:
    """Return the planning graph."""
    return graph_of(state).text()


def dump_precisions(state: State) -> str:
    """Return the tensors that ask for another precision than the options, and what they ask."""
    precisions = sorted(graph_of(state).precisions.items())
    lines = [f"%{name}: {asked}" for name, asked in precisions if asked != AS_OPTIONS]
    return "\n".join(lines or ["all tensors are as the options say"]) + "\n"


def dump_layouts(state: State) -> str:
    """Return each tensor's layout."""
    lines = (f"%{name}: {layout}" for name, layout in graph_of(state).layouts.items())
    return "\n".join(lines) + "\n"


def dump_program(state: State) -> str:
    """Return the launches in order, then the kernels as TIR."""
    program = program_of(state)
    launches = (f"{s.kernel}({', '.join(s.arguments)})" for s in program.steps)
    kernels = (k.func.script() for k in program.kernels.values())
    return "\n".join([*launches, "", *kernels]) + "\n"


def dump_storage(state: State) -> str:
    """Return the slots of the memory plan, then the slot of each tensor."""
    plan = storage_of(state)
    lines = [f"slot {i}: {s}" for i, s in enumerate(plan.plan.slots)]
    lines += [f"%{name} in slot {slot}" for name, slot in plan.slot_of.items()]
    return "\n".join(lines) + "\n"


def dump_kernels(state: State) -> str:
    """Return the kernels as OpenCL C."""
    return "\n".join(kernel_sources(state.executable).values())


def count_nodes(state: State) -> str:
    """Return how many nodes of each kind the planning graph has."""
    return f"{len(graph_of(state).nodes)} nodes"


def count_kernels(state: State) -> str:
    """Launches and distinct kernels."""
    program = program_of(state)
    return f"{len(program.steps)} launches of {len(program.kernels)} kernels"


def count_precisions(state: State, asked: str) -> int:
    """Return how many tensors ask for this, a field of `Precision`."""
    return sum(getattr(p, asked) for p in graph_of(state).precisions.values())


def peak(state: State) -> str:
    """GPU memory at its peak, in words for the timings."""
    plan = storage_of(state).plan
    return f"{plan.slot_bytes / 2**20:.1f} MiB, {plan.peak_bytes / 2**20:.1f} with constants"


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
    """Return the step of passes on the model's graph, and on those of its regions of CLML.  `makes`
    are the words by which a target avoids what they make (`adrenoc/target/gpu.py`)."""

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
    """Split convolutions, and keep the graph before: a limit of memory may ask for it."""
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
    program = fit_memory(
        program_of(state),
        limit_mib,
        lambda graph: program_of(lower_step(replace(state, graph=graph, log=DecisionLog()))),
        state.log,
        state.unsplit,
    )
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
    """Check all of the finished program; the state is what it was."""
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
    """The checks of what can be known before any code is made; `storage` is by region."""
    check_kernels(program, limits)
    for symbol, part in (("", program), *program.regions.items()):
        check_graph(part.graph, limits)
        check_launches(part, limits)
        check_storage(part, storage[symbol], limits)
