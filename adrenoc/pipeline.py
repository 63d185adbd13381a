"""The one table of stages: what runs, in which order, on what, and what each promises.

A stage's name is also its dump file, its `--stop-after` value and its line in the timings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adrenoc.build import build_executable, kernel_sources
from adrenoc.clml.codegen import with_regions
from adrenoc.clml.cost import reckoning
from adrenoc.clml.partition import Partition, partition
from adrenoc.clml.patterns import load_table
from adrenoc.clml.region import Region
from adrenoc.decision import DecisionLog
from adrenoc.errors import OptionError
from adrenoc.files import write_atomically
from adrenoc.graph import Graph
from adrenoc.importers import import_model
from adrenoc.importers.imported import Imported
from adrenoc.importers.simplify import simplify
from adrenoc.manifest import StageTime
from adrenoc.options import CompileOptions
from adrenoc.passes.assign_layouts import Layouts, assign_layouts
from adrenoc.passes.assign_memory import assign_memory
from adrenoc.passes.bridge_devices import bridge_devices
from adrenoc.passes.bridge_regions import bridge_regions
from adrenoc.passes.checks import check_graph, check_program
from adrenoc.passes.elide_copies import elide_copies
from adrenoc.passes.emit_relax import RegionCode, emit_relax
from adrenoc.passes.fit_memory import fit_memory
from adrenoc.passes.forbid_steps import check_forbidden_buffers, check_forbidden_cpu
from adrenoc.passes.fuse_attention import fuse_attention
from adrenoc.passes.fuse_prologues import fuse_prologues
from adrenoc.passes.inline_scalars import inline_scalars
from adrenoc.passes.join_blocks import join_blocks
from adrenoc.passes.keep_concats import fuse_around_concats
from adrenoc.passes.keep_integers import keep_integers
from adrenoc.passes.keep_layers import keep_layers
from adrenoc.passes.lower import Program, lower
from adrenoc.passes.pin_precision import pin_precision, spread_precision
from adrenoc.passes.plan_memory import Storage, plan_memory
from adrenoc.passes.read_graph import read_graph
from adrenoc.passes.split_winograd import split_winograd
from adrenoc.passes.widen_sums import widen_sums
from adrenoc.reporter import Reporter
from adrenoc.spelling import did_you_mean
from adrenoc.target import Target
from adrenoc.tuning_log import Tuning, find_log, for_gpu, read_log, tuning_of


@dataclass(frozen=True, kw_only=True)
class State:
    """What one compilation knows so far; each stage fills in its part."""

    model: Path
    target: Target
    options: CompileOptions
    log: DecisionLog = field(default_factory=DecisionLog)
    imported: Imported | None = None
    module: Any = None
    """Relax: the model before the graph is read, the kernels' driver after `emit_relax`."""
    clml: Partition | None = None
    """The regions that CLML computes, with `options.clml`."""
    graph: Graph | None = None
    region_graphs: Mapping[str, Graph] = field(default_factory=dict)
    """Region of CLML -> the graph of its kernels, for where CLML cannot run it."""
    layouts: Layouts | None = None
    region_layouts: Mapping[str, Layouts] = field(default_factory=dict)
    unsplit: Graph | None = None
    """The graph before convolutions were split by Winograd's algorithm, where any was."""
    program: Program | None = None
    storage: Storage | None = None
    region_storage: Mapping[str, Storage] = field(default_factory=dict)
    executable: Any = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One row of the pipeline.

    `run` maps a state to the next one; it is skipped unless `when` holds.  `needs` and `gives`
    are facts, checked before anything runs; `dump` renders what the stage made, and `note` says
    it in a few words.
    """

    name: str
    run: Callable[[State], State]
    needs: frozenset[str]
    gives: frozenset[str]
    dump: Callable[[State], str]
    note: Callable[[State], str] = lambda _: ""
    check: Callable[[State], None] = lambda _: None
    when: Callable[[CompileOptions], bool] = lambda _: True


def _import(state: State) -> State:
    imported = import_model(state.model, shapes=dict(state.options.shapes))
    _record(state.log, imported.decisions)
    return replace(state, imported=imported, module=imported.module)


def _simplify(state: State) -> State:
    module, decisions = simplify(state.module)
    _record(state.log, decisions)
    return replace(state, module=module)


def _keep_integers(state: State) -> State:
    dot_products = state.target.has_extension("cl_khr_integer_dot_product") is True
    graph = keep_integers(_graph(state), state.options, state.log, dot_products=dot_products)
    return replace(state, graph=graph)


def _pin_precision(state: State) -> State:
    names, tensors = state.options.float32_tensors, _imported(state).tensors
    return replace(state, graph=pin_precision(_graph(state), names, tensors))


def _spread_precision(state: State) -> State:
    return replace(state, graph=spread_precision(_graph(state), state.options, state.log))


def _partition_clml(state: State) -> State:
    options, table = state.options, load_table()
    version = options.clml_version or state.target.gpu.clml_version
    if version is None:
        version = table.costs.default_version
        state.log.add("clml", f"CLML version {version}", table.costs.sources["default_version"])
    elif options.clml_version is None:
        source = state.target.source_of("clml_version") or "the target file"
        state.log.add("clml", f"CLML version {version}", source)
    half = options.storage_dtype == "float16"
    state.log.add("clml", *reckoning(table, state.target.performance, half=half))
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


def _read_graph(state: State) -> State:
    regions = state.clml.regions if state.clml is not None else ()
    return replace(
        state,
        graph=read_graph(state.module, state.log),
        region_graphs={r.symbol: read_graph(state.module, state.log, r.symbol) for r in regions},
    )


def _keep_layers(state: State) -> State:
    imported = _imported(state)
    graph, specs = keep_layers(_graph(state), imported.tensors)
    return replace(
        state,
        graph=graph,
        imported=replace(imported, outputs=(*imported.outputs, *specs)),
    )


def _record(log: DecisionLog, decisions: Iterable[Any]) -> None:
    for decision in decisions:
        log.add(decision.subject, decision.taken, decision.reason)


def _on_graph(transform: Callable[[Graph], Graph]) -> Callable[[State], State]:
    """The stage that transforms the graph of the model and those of its regions."""
    return lambda state: replace(
        state,
        graph=transform(_graph(state)),
        region_graphs={s: transform(graph) for s, graph in state.region_graphs.items()},
    )


def _fuse_attention(state: State) -> State:
    limits, log = state.target.limits, state.log
    return _on_graph(lambda graph: fuse_attention(graph, limits, log))(state)


def _fuse(state: State) -> State:
    return _on_graph(lambda graph: fuse_around_concats(graph, state.log))(state)


def _join_blocks(state: State) -> State:
    return _on_graph(lambda graph: join_blocks(graph, state.log))(state)


def _fuse_prologues(state: State) -> State:
    target = state.target
    return _on_graph(
        lambda graph: fuse_prologues(
            graph, state.options, target.limits, target.performance, state.log
        )
    )(state)


def _bridge_devices(state: State) -> State:
    check_forbidden_cpu(_graph(state), state.options, state.log)
    return replace(state, graph=bridge_regions(bridge_devices(_graph(state))))


def _assign_layouts(state: State) -> State:
    return replace(
        state,
        layouts=assign_layouts(_graph(state), state.log),
        region_layouts={
            symbol: assign_layouts(graph, state.log)
            for symbol, graph in state.region_graphs.items()
        },
    )


def _assign_memory(state: State) -> State:
    if state.layouts is None:
        raise ValueError("assign_memory before assign_layouts")

    def placed(graph: Graph, layouts: Layouts) -> Graph:
        limits = state.target.limits
        done = assign_memory(graph, layouts, state.options, limits, state.log)
        check_forbidden_buffers(done, state.options, state.log)
        return done

    return replace(
        state,
        graph=placed(_graph(state), state.layouts),
        region_graphs={
            symbol: placed(graph, state.region_layouts[symbol])
            for symbol, graph in state.region_graphs.items()
        },
    )


def _split_winograd(state: State) -> State:
    target = state.target
    graph = split_winograd(
        _graph(state), state.options, target.limits, target.performance, state.log
    )
    changed = graph.nodes != _graph(state).nodes
    return replace(state, graph=graph, unsplit=state.graph if changed else None)


def _widen_sums(state: State) -> State:
    limits, performance = state.target.limits, state.target.performance
    graph = widen_sums(_graph(state), state.options, limits, performance, state.log)
    return replace(state, graph=graph)


def _lower(state: State) -> State:
    program = lower(
        _graph(state),
        state.options,
        state.target.limits,
        state.target.performance,
        state.log,
        state.region_graphs,
        tuning=_tuning(state),
    )
    return replace(state, program=program)


def _tuning(state: State) -> Tuning:
    """What the tuning log and the target's own file say about schedules."""
    banned = frozenset(g for quirk in state.target.gpu.quirks for g in quirk.banned_work_groups)
    path = state.options.tuning_log
    if path is None:
        return Tuning(banned=banned)
    trials, warning = for_gpu(read_log(find_log(path)), state.target.measured_as, path)
    if warning:
        state.log.add("tuning log", "used with care", warning)
    tuning = tuning_of(trials)
    return replace(tuning, banned=tuning.banned | banned)


def _fit_memory(state: State, limit_mib: int) -> State:
    def lowered(graph: Graph) -> Program:
        return program_of(_lower(replace(state, graph=graph, log=DecisionLog())))

    names = _imported(state).tensors
    program = fit_memory(program_of(state), limit_mib, lowered, state.log, names, state.unsplit)
    return replace(state, program=program, graph=program.graph)


def _plan_memory(state: State) -> State:
    if state.options.max_memory_mib is not None:
        state = _fit_memory(state, state.options.max_memory_mib)
    program = program_of(state)
    return replace(
        state,
        storage=plan_memory(program),
        region_storage={s: plan_memory(part) for s, part in program.regions.items()},
    )


def _emit_relax(state: State) -> State:
    regions = {
        region.symbol: RegionCode(
            storage=state.region_storage[region.symbol], version=region.version
        )
        for region in _regions(state)
    }
    module = emit_relax(program_of(state), storage_of(state), state.target.llvm_triple, regions)
    return replace(state, module=module)


def _build(state: State) -> State:
    module = with_regions(state.module, _regions(state))
    return replace(state, executable=build_executable(module, state.target))


def _regions(state: State) -> tuple[Region, ...]:
    return state.clml.regions if state.clml is not None else ()


def _imported(state: State) -> Imported:
    if state.imported is None:
        raise ValueError("nothing has been imported yet")
    return state.imported


def _graph(state: State) -> Graph:
    if state.graph is None:
        raise ValueError("no graph has been read yet")
    return state.graph


def program_of(state: State) -> Program:
    """The kernels of a state that is lowered."""
    if state.program is None:
        raise ValueError("the graph has not been lowered yet")
    return state.program


def storage_of(state: State) -> Storage:
    """The memory of a state whose memory is planned."""
    if state.storage is None:
        raise ValueError("the memory has not been planned yet")
    return state.storage


def _dump_module(state: State) -> str:
    return str(state.module.script(show_meta=False))


def _dump_graph(state: State) -> str:
    return _graph(state).text()


def _dump_exact(state: State) -> str:
    lines = [f"%{name}: float32" for name in sorted(_graph(state).exact)]
    return "\n".join(lines or ["no tensor is pinned to float32"]) + "\n"


def _dump_layouts(state: State) -> str:
    lines = (f"%{name}: {layout}" for name, layout in (state.layouts or {}).items())
    return "\n".join(lines) + "\n"


def _dump_program(state: State) -> str:
    program = program_of(state)
    launches = (f"{s.kernel}({', '.join(s.arguments)})" for s in program.steps)
    kernels = (k.func.script() for k in program.kernels.values())
    return "\n".join([*launches, "", *kernels]) + "\n"


def _dump_storage(state: State) -> str:
    plan = storage_of(state)
    lines = [f"slot {i}: {s}" for i, s in enumerate(plan.plan.slots)]
    lines += [f"%{name} in slot {slot}" for name, slot in plan.slot_of.items()]
    return "\n".join(lines) + "\n"


def _dump_kernels(state: State) -> str:
    return "\n".join(kernel_sources(state.executable).values())


def _count_nodes(state: State) -> str:
    return f"{len(_graph(state).nodes)} nodes"


def _count_kernels(state: State) -> str:
    program = program_of(state)
    return f"{len(program.steps)} launches of {len(program.kernels)} kernels"


def _peak(state: State) -> str:
    plan = storage_of(state).plan
    return f"{plan.slot_bytes / 2**20:.1f} MiB, {plan.peak_bytes / 2**20:.1f} with constants"


def _facts(*names: str) -> frozenset[str]:
    return frozenset(names)


STAGES: tuple[Stage, ...] = (
    Stage(
        name="import",
        run=_import,
        needs=_facts(),
        gives=_facts("relax"),
        dump=_dump_module,
    ),
    Stage(
        name="simplify",
        run=_simplify,
        needs=_facts("relax"),
        gives=_facts("constants folded"),
        dump=_dump_module,
    ),
    Stage(
        name="partition_clml",
        run=_partition_clml,
        needs=_facts("relax", "constants folded"),
        gives=_facts("clml partitioned"),
        dump=_dump_module,
        note=lambda s: f"{len(_regions(s))} regions",
        # Layer checks compare tensors that a region would hide.
        when=lambda options: options.clml != "off" and not options.keep_layers,
    ),
    Stage(
        name="read_graph",
        run=_read_graph,
        needs=_facts("relax", "constants folded"),
        gives=_facts("graph"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s)),
    ),
    Stage(
        name="inline_scalars",
        run=_on_graph(inline_scalars),
        needs=_facts("graph"),
        gives=_facts("scalars inlined"),
        dump=_dump_graph,
        check=lambda s: check_graph(_graph(s)),
    ),
    Stage(
        name="pin_precision",
        run=_pin_precision,
        needs=_facts("graph"),
        gives=_facts("precision pinned"),
        dump=_dump_exact,
        when=lambda options: bool(options.float32_tensors),
    ),
    Stage(
        name="fuse_attention",
        run=_fuse_attention,
        needs=_facts("graph", "scalars inlined"),
        gives=_facts("attention found"),
        dump=_dump_graph,
        check=lambda s: check_graph(_graph(s)),
    ),
    Stage(
        name="fuse",
        run=_fuse,
        needs=_facts("graph", "attention found"),
        gives=_facts("fused"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s)),
    ),
    Stage(
        name="keep_integers",
        run=_keep_integers,
        needs=_facts("fused"),
        gives=_facts("integers kept"),
        dump=_dump_exact,
        note=lambda s: f"{len(_graph(s).rounded)} tensors of integers",
    ),
    Stage(
        name="bridge_devices",
        run=_bridge_devices,
        needs=_facts("fused"),
        gives=_facts("devices bridged"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s)),
    ),
    Stage(
        name="keep_layers",
        run=_keep_layers,
        needs=_facts("fused"),
        gives=_facts("layers kept"),
        dump=_dump_graph,
        when=lambda options: options.keep_layers,
    ),
    Stage(
        name="spread_precision",
        run=_spread_precision,
        needs=_facts("fused"),
        gives=_facts("precision spread"),
        dump=_dump_exact,
        note=lambda s: f"{len(_graph(s).exact)} tensors in float32",
        when=lambda options: bool(options.float32_tensors),
    ),
    Stage(
        name="assign_layouts",
        run=_assign_layouts,
        needs=_facts("fused", "devices bridged"),
        gives=_facts("layouts"),
        dump=_dump_layouts,
    ),
    Stage(
        name="assign_memory",
        run=_assign_memory,
        needs=_facts("layouts"),
        gives=_facts("placed"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s), s.target.limits),
    ),
    Stage(
        name="elide_copies",
        run=_on_graph(elide_copies),
        needs=_facts("placed"),
        gives=_facts("copies elided"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s), s.target.limits),
    ),
    Stage(
        name="join_blocks",
        run=_join_blocks,
        needs=_facts("placed", "copies elided"),
        gives=_facts("blocks joined"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s), s.target.limits),
    ),
    Stage(
        name="fuse_prologues",
        run=_fuse_prologues,
        needs=_facts("placed", "blocks joined"),
        gives=_facts("prologues fused"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s), s.target.limits),
    ),
    Stage(
        name="split_winograd",
        run=_split_winograd,
        needs=_facts("placed", "prologues fused"),
        gives=_facts("convolutions chosen"),
        dump=_dump_graph,
        note=_count_nodes,
        check=lambda s: check_graph(_graph(s), s.target.limits),
    ),
    Stage(
        name="widen_sums",
        run=_widen_sums,
        needs=_facts("placed", "convolutions chosen"),
        gives=_facts("arithmetic chosen"),
        dump=_dump_graph,
        note=lambda s: f"{len(_graph(s).wide)} sums in float",
        when=lambda options: options.compute_dtype == "float16",
    ),
    Stage(
        name="lower",
        run=_lower,
        needs=_facts("placed", "convolutions chosen"),
        gives=_facts("kernels"),
        dump=_dump_program,
        note=_count_kernels,
        check=lambda s: check_program(program_of(s), s.target.limits),
    ),
    Stage(
        name="plan_memory",
        run=_plan_memory,
        needs=_facts("kernels"),
        gives=_facts("storage"),
        dump=_dump_storage,
        note=_peak,
    ),
    Stage(
        name="emit_relax",
        run=_emit_relax,
        needs=_facts("kernels", "storage"),
        gives=_facts("driver"),
        dump=_dump_module,
    ),
    Stage(
        name="build",
        run=_build,
        needs=_facts("driver"),
        gives=_facts("executable"),
        dump=_dump_kernels,
    ),
)


def check_order(stages: Iterable[Stage]) -> None:
    """Each stage must find what it needs, given by an earlier one."""
    known: set[str] = set()
    for stage in stages:
        missing = stage.needs - known
        if missing:
            raise ValueError(f"stage {stage.name} needs {sorted(missing)}, which nothing gave")
        known |= stage.gives


def stage_names() -> tuple[str, ...]:
    """The stages in order, as `--stop-after` takes them."""
    return tuple(stage.name for stage in STAGES)


def run_stages(
    state: State,
    *,
    reporter: Reporter,
    dump_dir: Path | None = None,
    stop_after: str | None = None,
) -> tuple[State, tuple[StageTime, ...]]:
    """Run the pipeline, up to and with `stop_after`.

    Raises:
        OptionError: no stage has that name.
    """
    if stop_after is not None and stop_after not in stage_names():
        raise OptionError(
            f"no stage is called {stop_after!r}{did_you_mean(stop_after, stage_names())}",
            hint=f"the stages are: {', '.join(stage_names())}",
        )
    check_order(STAGES)
    times = []
    for number, stage in enumerate(STAGES):
        if not stage.when(state.options):
            continue
        state.log.stage = stage.name
        started = time.perf_counter()
        state = stage.run(state)
        if state.options.check_ir:
            stage.check(state)
        took = StageTime(
            name=stage.name,
            time_ms=(time.perf_counter() - started) * 1000,
            note=stage.note(state),
        )
        times.append(took)
        reporter.stage(took.name, took.time_ms, took.note)
        if dump_dir is not None:
            dump_dir.mkdir(parents=True, exist_ok=True)
            text = stage.dump(state).encode()
            write_atomically(dump_dir / f"{number:02d}_{stage.name}.txt", text)
        if stage.name == stop_after:
            break
    return state, tuple(times)
