"""The stages' deeds: each maps a state to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from adrenoc.clml.codegen import with_regions
from adrenoc.clml.cost import reckoning
from adrenoc.clml.partition import partition
from adrenoc.clml.patterns import load_table
from adrenoc.codegen.build import build_executable
from adrenoc.decision import DecisionLog
from adrenoc.errors import ModelFormatError
from adrenoc.families.shared.cost_model import CostModel
from adrenoc.importers import import_model
from adrenoc.ir.graph import Graph
from adrenoc.ir.program import Program
from adrenoc.passes.fuse.split_winograd import split_winograd
from adrenoc.passes.lower.emit_relax import RegionCode, emit_relax
from adrenoc.passes.lower.fit_memory import fit_memory
from adrenoc.passes.lower.lower import lower
from adrenoc.passes.lower.piece_limit import check_pieces
from adrenoc.passes.lower.plan_memory import plan_memory
from adrenoc.passes.place.assign_layouts import Layouts, assign_layouts
from adrenoc.passes.place.assign_memory import assign_memory
from adrenoc.passes.place.bridge_devices import bridge_devices
from adrenoc.passes.place.bridge_regions import bridge_regions
from adrenoc.passes.place.expose_layers import expose_layers
from adrenoc.passes.precision.keep_integers import keep_integers
from adrenoc.passes.precision.pin_precision import pin_precision, spread_precision
from adrenoc.passes.read.forbid_steps import check_forbidden_buffers, check_forbidden_cpu
from adrenoc.passes.read.read_graph import read_graph
from adrenoc.pipeline.state import State, graph_of, imported_of, program_of, regions_of, storage_of
from adrenoc.rewrites.fold_pads import fold_pads
from adrenoc.rewrites.order_channels import order_channels
from adrenoc.rewrites.simplify import simplify
from adrenoc.target.gpu import Limits
from adrenoc.tuning_log import Tuning, find_log, for_gpu, read_log, tuning_of


def import_step(state: State) -> State:
    imported = import_model(state.model, shapes=dict(state.options.shapes))
    if state.sha256 not in ("", imported.model_sha256):
        raise ModelFormatError(
            f"{state.model} changed while it was compiled: its SHA-256 was {state.sha256[:12]}, "
            f"and {imported.model_sha256[:12]} was read",
            hint="run the same command again when the model is whole",
        )
    _record(state.log, imported.decisions)
    return replace(state, imported=imported, module=imported.module)


def simplify_step(state: State) -> State:
    module, decisions = simplify(state.module)
    _record(state.log, decisions)
    return replace(state, module=module)


def keep_integers_step(state: State) -> State:
    dots = state.target.has_dot_products
    graph = keep_integers(graph_of(state), state.options, state.log, dot_products=dots)
    return replace(state, graph=graph)


def pin_precision_step(state: State) -> State:
    names, tensors = state.options.float32_tensors, imported_of(state).tensors
    return replace(state, graph=pin_precision(graph_of(state), names, tensors))


def spread_precision_step(state: State) -> State:
    return replace(state, graph=spread_precision(graph_of(state), state.options, state.log))


def fold_pads_step(state: State) -> State:
    module, decisions = fold_pads(state.module)
    _record(state.log, decisions)
    return replace(state, module=module)


def order_channels_step(state: State) -> State:
    module, decisions = order_channels(state.module)
    _record(state.log, decisions)
    return replace(state, module=module)


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
    return replace(
        state,
        graph=read_graph(state.module, state.log),
        region_graphs={r.symbol: read_graph(state.module, state.log, r.symbol) for r in regions},
    )


def expose_layers_step(state: State) -> State:
    imported = imported_of(state)
    graph, specs = expose_layers(graph_of(state), imported.tensors)
    return replace(
        state,
        graph=graph,
        imported=replace(imported, outputs=(*imported.outputs, *specs)),
    )


def _record(log: DecisionLog, decisions: Iterable[Any]) -> None:
    for decision in decisions:
        log.add(decision.subject, decision.taken, decision.reason)


def on_graph(transform: Callable[[Graph], Graph]) -> Callable[[State], State]:
    """The stage that transforms the graph of the model and those of its regions."""
    return lambda state: replace(
        state,
        graph=transform(graph_of(state)),
        region_graphs={s: transform(graph) for s, graph in state.region_graphs.items()},
    )


LoggedPass = Callable[[Graph, DecisionLog], Graph]
LimitedPass = Callable[[Graph, Limits, DecisionLog], Graph]
CostedPass = Callable[[Graph, CostModel, DecisionLog], Graph]


def with_log(change: LoggedPass, *, in_regions: bool = False) -> Callable[[State], State]:
    """The step of a pass that needs nothing but the graph."""
    return lambda state: _changed(state, lambda graph: change(graph, state.log), in_regions)


def within_limits(change: LimitedPass) -> Callable[[State], State]:
    """The step of a pass that the target's limits bound; in regions too."""

    def run(state: State) -> State:
        limits, log = state.target.limits, state.log
        return on_graph(lambda graph: change(graph, limits, log))(state)

    return run


def where_faster(change: CostedPass, *, in_regions: bool = False) -> Callable[[State], State]:
    """The step of a pass that the cost model of the target decides."""

    def run(state: State) -> State:
        costs = CostModel.of(state.options, state.target)
        return _changed(state, lambda graph: change(graph, costs, state.log), in_regions)

    return run


def _changed(state: State, transform: Callable[[Graph], Graph], in_regions: bool) -> State:
    if in_regions:
        return on_graph(transform)(state)
    return replace(state, graph=transform(graph_of(state)))


def bridge_devices_step(state: State) -> State:
    check_forbidden_cpu(graph_of(state), state.options, state.log)
    return replace(state, graph=bridge_regions(bridge_devices(graph_of(state))))


def assign_layouts_step(state: State) -> State:
    return replace(
        state,
        layouts=assign_layouts(graph_of(state), state.log),
        region_layouts={
            symbol: assign_layouts(graph, state.log)
            for symbol, graph in state.region_graphs.items()
        },
    )


def assign_memory_step(state: State) -> State:
    if state.layouts is None:
        raise ValueError("assign_memory before assign_layouts")

    def placed(graph: Graph, layouts: Layouts) -> Graph:
        limits = state.target.limits
        done = assign_memory(graph, layouts, state.options, limits, state.log)
        check_forbidden_buffers(done, state.options, state.log)
        return done

    return replace(
        state,
        graph=placed(graph_of(state), state.layouts),
        region_graphs={
            symbol: placed(graph, state.region_layouts[symbol])
            for symbol, graph in state.region_graphs.items()
        },
    )


def split_winograd_step(state: State) -> State:
    graph = graph_of(where_faster(split_winograd)(state))
    changed = graph.nodes != graph_of(state).nodes
    return replace(state, graph=graph, unsplit=state.graph if changed else None)


def lower_step(state: State) -> State:
    program = lower(
        graph_of(state),
        state.options,
        state.target,
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
        return program_of(lower_step(replace(state, graph=graph, log=DecisionLog())))

    program = fit_memory(program_of(state), limit_mib, lowered, state.log, state.unsplit)
    return replace(state, program=program, graph=program.graph)


def plan_memory_step(state: State) -> State:
    if state.options.max_memory_mib is not None:
        state = _fit_memory(state, state.options.max_memory_mib)
    program = program_of(state)
    check_pieces(program, state.target.limits)
    return replace(
        state,
        storage=plan_memory(program),
        region_storage={s: plan_memory(part) for s, part in program.regions.items()},
    )


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
    module = with_regions(state.module, regions_of(state))
    return replace(state, executable=build_executable(module, state.target, state.log))
