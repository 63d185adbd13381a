"""A compilation as one table of stages: what runs, in which order, on what, what each promises.

A stage's name is also its dump file, and its line in the timings.  Stages run one after the other;
at the end of phases it is checked what is to hold there: `check_ir` (preset `debug`, and in tests)
checks each phase; `verify` checks all of it after the last phase of every compilation.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adrenoc.base.errors import DefectError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.host.memory import memory_errors
from adrenoc.base.host.time_trace import section
from adrenoc.base.reporter import Reporter
from adrenoc.bundle.manifest import StageTime
from adrenoc.compile.steps import (
    Phase,
    Stage,
    State,
    build_step,
    check_order,
    count_kernels,
    count_nodes,
    count_precisions,
    dump_graph,
    dump_kernels,
    dump_layouts,
    dump_module,
    dump_precisions,
    dump_program,
    dump_storage,
    emit_relax_step,
    expose_layers_step,
    graph_of,
    import_step,
    imported_of,
    lower_step,
    partition_clml_step,
    peak,
    plan_memory_step,
    program_of,
    read_graph_step,
    regions_of,
    run_on_graph,
    run_on_module,
    split_winograd_step,
    storage_of,
    verify_step,
)
from adrenoc.importers.relax.values import static_shape
from adrenoc.ir.graph import CONCAT, NO_KERNEL, Graph
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.passes.fuse.fuse_attention import fuse_attention
from adrenoc.passes.fuse.fuse_depthwise import fuse_depthwise
from adrenoc.passes.fuse.fuse_maps import fuse_around_concats
from adrenoc.passes.fuse.fuse_means import fuse_excite, fuse_means
from adrenoc.passes.fuse.fuse_products import fuse_norms, fuse_products, round_tokens
from adrenoc.passes.fuse.fuse_prologues import fuse_prologues, read_images
from adrenoc.passes.fuse.fuse_steps import fuse_parts, fuse_steps
from adrenoc.passes.place.assign_places import assign_layouts, assign_memory
from adrenoc.passes.place.copies import bridge_devices, bridge_regions, elide_copies, keep_states
from adrenoc.passes.place.join_blocks import join_blocks, place_stores
from adrenoc.passes.place.texel_moves import explain_moves
from adrenoc.passes.precision.keep_float32 import keep_float32
from adrenoc.passes.precision.keep_integers import keep_integers
from adrenoc.passes.precision.pin_precision import pin_precision, spread_precision, widen_sums
from adrenoc.passes.read.read_graph import forbid_buffers, forbid_cpu, inline_scalars
from adrenoc.passes.rewrites.fold_scale import fold_pads
from adrenoc.passes.rewrites.order_channels import order_channels
from adrenoc.passes.rewrites.simplify import simplify
from adrenoc.passes.verify.check_graph import check_graph
from adrenoc.passes.verify.check_program import check_kernels

__all__ = ["STAGES", "Stage", "State", "check_order", "imported_of", "program_of", "run_stages"]
__all__ += ["storage_of"]


def graph_stage(name: str, run: Callable[[State], State], **row: Any) -> Stage:
    """Return a stage on the planning graph."""
    return Stage(
        name=name,
        run=run,
        dump=dump_graph,
        note=count_nodes,
        check=lambda state: check_graph(graph_of(state)),
        **row,
    )


def placed_stage(name: str, run: Callable[[State], State], **row: Any) -> Stage:
    """Return a stage on the planning graph whose tensors have their places in memory."""
    return replace(
        graph_stage(name, run, **row),
        check=lambda state: check_graph(graph_of(state), state.target.limits),
    )


STAGES: tuple[Stage, ...] = (
    Stage(name="import", run=import_step, phase=Phase.IMPORT, dump=dump_module),
    Stage(name="simplify", run=run_on_module(simplify), phase=Phase.SIMPLIFY, dump=dump_module),
    Stage(
        name="partition_clml",
        run=partition_clml_step,
        phase=Phase.SIMPLIFY,
        after={"simplify": "its patterns are of folded constants and batch norms"},
        dump=dump_module,
        note=lambda s: f"{len(regions_of(s))} regions",
        # Layer checks compare tensors that a region would hide.
        when=lambda options: options.clml != "off" and not options.expose_layers,
    ),
    Stage(
        name="fold_pads",
        run=run_on_module(fold_pads),
        phase=Phase.SIMPLIFY,
        after={"simplify": "what is padded with has to be a constant"},
        dump=dump_module,
        # CLML has an operator for a pad with its convolution.
        when=lambda options: options.clml == "off",
    ),
    Stage(
        name="order_channels",
        run=run_on_module(order_channels),
        phase=Phase.SIMPLIFY,
        after={
            "simplify": "weights have to be constants to be reordered",
            "fold_pads": "a pad between convolutions hides who reads their channels",
        },
        dump=dump_module,
        # CLML has operators for concatenations, slices and shuffles.
        when=lambda options: options.clml == "off",
    ),
    graph_stage("read_graph", read_graph_step, phase=Phase.FUSE),
    graph_stage(
        "inline_scalars",
        run_on_graph(inline_scalars, in_regions=True),
        phase=Phase.FUSE,
        after={"read_graph": "it changes the bodies of nodes"},
    ),
    Stage(
        name="pin_precision",
        run=run_on_graph(pin_precision),
        phase=Phase.FUSE,
        after={"read_graph": "it marks tensors of the graph"},
        dump=dump_precisions,
        when=lambda options: bool(options.float32_tensors),
    ),
    graph_stage(
        "fuse_attention",
        run_on_graph(fuse_attention, in_regions=True, makes=("operator:attention",)),
        phase=Phase.FUSE,
        after={
            "inline_scalars": "scales and masks are numbers of an expression then",
            "pin_precision": "what is joined with a pinned tensor is pinned",
        },
    ),
    graph_stage(
        "fuse",
        run_on_graph(fuse_around_concats, in_regions=True),
        phase=Phase.FUSE,
        after={
            "inline_scalars": "a scalar would be one more operand of a kernel",
            "pin_precision": "what is joined with a pinned tensor is pinned",
            "fuse_attention": "else maps of the scores are epilogues of their product",
        },
        asks={"assign_layouts": "concatenations stay alone if parts begin at whole blocks"},
    ),
    Stage(
        name="keep_integers",
        run=run_on_graph(keep_integers),
        phase=Phase.PRECISION,
        dump=dump_precisions,
        note=lambda s: f"{count_precisions(s, 'rounded')} tensors of integers",
    ),
    Stage(
        name="keep_float32",
        run=run_on_graph(keep_float32),
        phase=Phase.PRECISION,
        after={"keep_integers": "multiples of a quantum are no larger for a large factor"},
        dump=dump_precisions,
        note=lambda s: f"{count_precisions(s, 'float32')} tensors in float32",
        when=lambda options: options.storage_dtype != "float32" and options.keep_float32,
    ),
    graph_stage(
        "bridge_devices",
        run_on_graph(forbid_cpu, bridge_devices, bridge_regions),
        phase=Phase.PLACE,
    ),
    Stage(
        name="expose_layers",
        run=expose_layers_step,
        phase=Phase.PLACE,
        dump=dump_graph,
        when=lambda options: options.expose_layers,
    ),
    Stage(
        name="spread_precision",
        run=run_on_graph(spread_precision),
        phase=Phase.PLACE,
        after={"bridge_devices": "copies of pinned tensors between devices are pinned"},
        dump=dump_precisions,
        note=lambda s: f"{count_precisions(s, 'float32')} tensors in float32",
        when=lambda options: bool(options.float32_tensors),
    ),
    graph_stage(
        "keep_states",
        run_on_graph(keep_states),
        phase=Phase.PLACE,
        after={"spread_precision": "its copies are stored as what they copy"},
    ),
    Stage(
        name="assign_layouts",
        run=run_on_graph(assign_layouts, in_regions=True),
        phase=Phase.PLACE,
        after={
            "keep_states": "copies of states are tensors with layouts too",
            "bridge_devices": "copies between devices are tensors with layouts too",
        },
        dump=dump_layouts,
    ),
    placed_stage(
        "assign_memory",
        run_on_graph(assign_memory, forbid_buffers, in_regions=True),
        phase=Phase.PLACE,
        after={
            "assign_layouts": "places are of layouts",
            "bridge_devices": "copies have places",
            "expose_layers": "outputs are row-major",
            "spread_precision": "a place has a dtype",
        },
    ),
    placed_stage(
        "elide_copies",
        run_on_graph(elide_copies, in_regions=True),
        phase=Phase.PLACE,
        after={"assign_memory": "a map moves nothing only between equal places"},
    ),
    placed_stage(
        "join_blocks",
        run_on_graph(join_blocks, in_regions=True),
        phase=Phase.PLACE,
        after={
            "assign_memory": "parts are ranges of blocks",
            "elide_copies": "a copy that is none would stand between part and whole",
        },
    ),
    placed_stage(
        "read_images", run_on_graph(read_images, makes=("fusion:image",)), phase=Phase.CHOOSE
    ),
    placed_stage(
        "fuse_prologues",
        run_on_graph(fuse_prologues, in_regions=True, makes=("fusion:prologue",)),
        phase=Phase.CHOOSE,
        after={"read_images": "the copy of an image would be a prologue"},
        asks={"split_winograd": "a convolution with a prologue cannot be split"},
    ),
    placed_stage(
        "fuse_depthwise",
        run_on_graph(fuse_depthwise),
        phase=Phase.CHOOSE,
        after={"fuse_prologues": "what a prologue saves a convolution, a pair cannot"},
        asks={"widen_sums": "whether the sums of a pair stay in float"},
    ),
    placed_stage(
        "fuse_means",
        run_on_graph(fuse_means, makes=("fusion:mean",)),
        phase=Phase.CHOOSE,
        after={"fuse_depthwise": "a pair of convolutions saves more"},
    ),
    placed_stage("fuse_products", run_on_graph(fuse_products), phase=Phase.CHOOSE),
    placed_stage("fuse_norms", run_on_graph(fuse_norms), phase=Phase.CHOOSE),
    placed_stage(
        "round_tokens",
        run_on_graph(round_tokens, makes=("operator:round_tokens", "operator:n_bits_dot")),
        phase=Phase.CHOOSE,
        after={"fuse_products": "a product with a norm or a gate is of few tokens"},
        when=lambda options: options.int8_prompts,
    ),
    placed_stage(
        "fuse_steps",
        run_on_graph(fuse_steps, makes=("operator:step_attention", "operator:join_parts")),
        phase=Phase.CHOOSE,
    ),
    placed_stage(
        "fuse_parts",
        run_on_graph(fuse_parts),
        phase=Phase.CHOOSE,
        after={"fuse_steps": "attention is in parts only then"},
    ),
    placed_stage(
        "fuse_excite",
        run_on_graph(fuse_excite, makes=("operator:excite",)),
        phase=Phase.CHOOSE,
        after={
            "fuse_means": "a mean that costs nothing is not made anew",
            "fuse_products": "a product with a norm or a gate saves their kernels already",
            "fuse_parts": "a product of parts of attention saves their kernel already",
        },
    ),
    placed_stage(
        "split_winograd",
        split_winograd_step,
        phase=Phase.CHOOSE,
        after={
            "fuse_prologues": "a split convolution has no prologue",
            "fuse_depthwise": "a split convolution has no pair",
        },
    ),
    Stage(
        name="widen_sums",
        run=run_on_graph(widen_sums),
        phase=Phase.CHOOSE,
        after={
            "split_winograd": "it reckons with the time of the kernels that are left",
            "fuse_depthwise": "it reckons with the time of the kernels that are left",
        },
        dump=dump_graph,
        note=lambda s: f"{count_precisions(s, 'wide_sums')} sums in float",
        when=lambda options: options.compute_dtype == "float16",
    ),
    placed_stage(
        "place_stores",
        run_on_graph(place_stores, in_regions=True),
        phase=Phase.CHOOSE,
        after={
            "fuse_prologues": "a prologue needs no move",
            "split_winograd": "who writes is known then",
        },
    ),
    Stage(
        name="explain_moves",
        run=run_on_graph(explain_moves),
        phase=Phase.CHOOSE,
        after={"place_stores": "it tells of the moves that are left"},
        dump=dump_graph,
    ),
    Stage(
        name="lower",
        run=lower_step,
        phase=Phase.LOWER,
        dump=dump_program,
        note=count_kernels,
        check=lambda s: check_kernels(program_of(s), s.target.limits),
    ),
    Stage(
        name="plan_memory",
        run=plan_memory_step,
        phase=Phase.LOWER,
        after={"lower": "packed constants are known then"},
        dump=dump_storage,
        note=peak,
    ),
    Stage(
        name="emit_relax",
        run=emit_relax_step,
        phase=Phase.LOWER,
        after={"plan_memory": "the program allocates the slots"},
        dump=dump_module,
    ),
    Stage(
        name="build",
        run=build_step,
        phase=Phase.LOWER,
        after={"emit_relax": "it compiles the program"},
        dump=dump_kernels,
    ),
    Stage(
        name="verify",
        run=verify_step,
        phase=Phase.LOWER,
        after={"build": "kernel texts are part of what it checks"},
        dump=dump_program,
        note=count_kernels,
    ),
)


def run_stages(
    state: State, *, reporter: Reporter, dump_dir: Path | None = None, stop_after: str | None = None
) -> tuple[State, tuple[StageTime, ...]]:
    """Run the pipeline, up to and with `stop_after`."""
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
    """Check what holds at the end of a phase."""
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
    """Check that what stays in float32, is rounded or lies in bytes is a tensor of the graph."""
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
    """Check what is placed; each node of the GPU is one that a family has a kernel for."""
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
