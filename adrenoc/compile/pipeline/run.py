"""Run the stages, one after the other, and check at the end of phases what is to hold there.

`check_ir` (preset `debug`, and in tests) checks each phase; `verify` checks all of it after the
last phase of every compilation.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from adrenoc.base.errors import DefectError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.host.memory import memory_errors
from adrenoc.base.host.time_trace import section
from adrenoc.base.reporter import Reporter
from adrenoc.bundle.manifest import StageTime
from adrenoc.compile.pipeline.stage import Phase, State, check_order, graph_of, program_of
from adrenoc.compile.pipeline.stages import STAGES
from adrenoc.importers.relax.values import static_shape
from adrenoc.ir.graph import CONCAT, NO_KERNEL, Graph
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.passes.verify.check_graph import check_graph


def run_stages(
    state: State, *, reporter: Reporter, dump_dir: Path | None = None, stop_after: str | None = None
) -> tuple[State, tuple[StageTime, ...]]:
    """Run the pipeline, up to and with `stop_after`.

    Raises:
        HostMemoryError: there is no memory left for one.
        AdrenocError: what a stage says of the model.
    """
    assert stop_after is None or stop_after in [stage.name for stage in STAGES]
    check_order(STAGES)
    if dump_dir is not None:
        try:
            dump_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise output_error(dump_dir, error) from error
    wanted = [stage for stage in STAGES if stage.when(state.options)]
    last_of = {stage.phase: stage for stage in wanted}
    times: list[StageTime] = []
    ended: list[StageTime] = []
    for stage in wanted:
        state.log.stage = stage.name
        reporter.working(stage.name, len(times), len(wanted))
        started = time.perf_counter()
        with (
            memory_errors(f"the stage {stage.name} of {state.model}"),
            section(stage.name, "stage"),
        ):
            state = stage.run(state)
        if state.options.check_ir:
            with section(f"check {stage.name}", "check"):
                stage.check(state)
                if stage is last_of[stage.phase]:
                    check_phase(stage.phase, state)
        took = StageTime(
            name=stage.name, time_ms=(time.perf_counter() - started) * 1000, note=stage.note(state)
        )
        times.append(took)
        ended.append(took)
        reporter.part(took.name, took.time_ms, took.note)
        if dump_dir is not None:
            text = stage.dump(state).encode(errors="backslashreplace")
            write_atomically(dump_dir / f"{STAGES.index(stage):02d}_{stage.name}.txt", text)
        is_end = stage.name == stop_after
        if is_end or stage is last_of[stage.phase]:
            note = next((one.note for one in reversed(ended) if one.note), "")
            reporter.stage(stage.phase.value, sum(one.time_ms for one in ended), note)
            ended = []
        if is_end:
            break
    return state, tuple(times)


_WITHOUT_RECORD = NO_KERNEL | {CONCAT}
"""A concatenation is written in place, or is a map."""


def check_phase(phase: Phase, state: State) -> None:
    """Check what holds at the end of a phase.

    Raises:
        DefectError: naming the phase and what broke its promise.
    """
    try:
        _HOLDS[phase](state)
    except DefectError as error:
        raise DefectError(f"{error.rule}, after the phase {phase.value}") from error


def _relax(state: State) -> None:
    """The module has one function that runs the model, and the extents of its inputs are known."""
    functions = {var.name_hint: function for var, function in state.module.functions.items()}
    if "main" not in functions:
        raise DefectError(f"the Relax module has no main, but {', '.join(sorted(functions))}")
    for param in functions["main"].params:
        if static_shape(param) is None:
            raise DefectError(f"the input {param.name_hint} has extents that are not known")


def _check_fused(state: State) -> None:
    """Each node is of a family or has a body; nothing has a place yet."""
    for graph in _graphs(state):
        check_graph(graph)
        _check_operators(graph)
        if graph.placements:
            raise DefectError(f"{next(iter(graph.placements))} has a place in memory already")


def _precise(state: State) -> None:
    """What stays in float32, is rounded or lies in bytes is a tensor of the graph."""
    for graph in _graphs(state):
        check_graph(graph)
        for name, asked in graph.precisions.items():
            if name not in graph.tensors:
                raise DefectError(f"{name} asks for {asked}, and is no tensor")
            if asked.low is not None and graph.tensors[name].dtype == "bool":
                raise DefectError(f"{name} is to lie in bytes, and is of type bool")


def _check_placed(state: State) -> None:
    """Each tensor has its place, and each image exists on the target."""
    for graph in _graphs(state):
        unplaced = [name for name in graph.tensors if name not in graph.placements]
        if unplaced:
            raise DefectError(f"{unplaced[0]} has no place in memory")
        check_graph(graph, state.target.limits)


def _check_chosen(state: State) -> None:
    """As placed; each node of the GPU is one that a family has a kernel for."""
    _check_placed(state)
    for graph in _graphs(state):
        _check_operators(graph)


def _check_lowered(state: State) -> None:
    """Each node has its step, in the same order."""
    program = program_of(state)
    if len(program.steps) != len(program.graph.nodes):
        raise DefectError(
            f"{len(program.steps)} steps for {len(program.graph.nodes)} nodes of the graph"
        )


def _graphs(state: State) -> tuple[Graph, ...]:
    return (graph_of(state), *state.region_graphs.values())


def _check_operators(graph: Graph) -> None:
    for node in graph.nodes:
        if node.op not in OPERATORS and node.op not in _WITHOUT_RECORD:
            raise DefectError(f"{node.name} is a {node.op}, which no family has a record of")


_HOLDS: Mapping[Phase, Callable[[State], None]] = {
    Phase.IMPORT: _relax,
    Phase.SIMPLIFY: _relax,
    Phase.FUSE: _check_fused,
    Phase.PRECISION: _precise,
    Phase.PLACE: _check_placed,
    Phase.CHOOSE: _check_chosen,
    Phase.LOWER: _check_lowered,
}
