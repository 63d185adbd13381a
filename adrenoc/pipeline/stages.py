"""The one table of stages: what runs, in which order, on what, and what each promises.

A stage's name is also its dump file, its `--stop-after` value and its line in the timings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adrenoc.passes.fuse.fuse_attention import fuse_attention
from adrenoc.passes.fuse.fuse_depthwise import fuse_depthwise
from adrenoc.passes.fuse.fuse_prologues import fuse_prologues
from adrenoc.passes.fuse.fuse_shuffles import fuse_shuffles
from adrenoc.passes.fuse.keep_concats import fuse_around_concats
from adrenoc.passes.fuse.read_flattened import read_flattened
from adrenoc.passes.fuse.read_images import read_images
from adrenoc.passes.place.elide_copies import elide_copies
from adrenoc.passes.place.explain_moves import explain_moves
from adrenoc.passes.place.join_blocks import join_blocks
from adrenoc.passes.place.place_stores import place_stores
from adrenoc.passes.place.store_outputs import store_outputs
from adrenoc.passes.precision.keep_choices import keep_choices
from adrenoc.passes.precision.keep_constants import keep_constants
from adrenoc.passes.precision.keep_coordinates import keep_coordinates
from adrenoc.passes.precision.keep_differences import keep_differences
from adrenoc.passes.precision.keep_grown import keep_grown
from adrenoc.passes.precision.keep_range import keep_range
from adrenoc.passes.precision.keep_sizes import keep_sizes
from adrenoc.passes.precision.widen_sums import widen_sums
from adrenoc.passes.read.inline_scalars import inline_scalars
from adrenoc.passes.verify.check_graph import check_graph
from adrenoc.passes.verify.check_launches import check_kernels
from adrenoc.pipeline.dumps import (
    count_kernels,
    count_nodes,
    dump_exact,
    dump_graph,
    dump_kernels,
    dump_layouts,
    dump_module,
    dump_program,
    dump_storage,
    peak,
)
from adrenoc.pipeline.stage import Stage
from adrenoc.pipeline.state import State, graph_of, program_of, regions_of
from adrenoc.pipeline.steps import (
    LoggedPass,
    assign_layouts_step,
    assign_memory_step,
    bridge_devices_step,
    build_step,
    emit_relax_step,
    fold_pads_step,
    import_step,
    keep_integers_step,
    keep_layers_step,
    lower_step,
    on_graph,
    order_channels_step,
    partition_clml_step,
    pin_precision_step,
    plan_memory_step,
    read_graph_step,
    simplify_step,
    split_winograd_step,
    spread_precision_step,
    where_faster,
    with_log,
    within_limits,
)
from adrenoc.pipeline.verify import verify_step


def _facts(*names: str) -> frozenset[str]:
    return frozenset(names)


def _planned(
    name: str, run: Callable[[State], State], *, needs: frozenset[str], gives: frozenset[str]
) -> Stage:
    """A stage on the planning graph."""
    return Stage(
        name=name,
        run=run,
        needs=needs,
        gives=gives,
        dump=dump_graph,
        note=count_nodes,
        check=lambda state: check_graph(graph_of(state)),
    )


def _placed(
    name: str, run: Callable[[State], State], *, needs: frozenset[str], gives: frozenset[str]
) -> Stage:
    """A stage on the planning graph whose tensors have their places in memory."""
    return replace(
        _planned(name, run, needs=needs, gives=gives),
        check=lambda state: check_graph(graph_of(state), state.target.limits),
    )


def _kept(name: str, change: LoggedPass, *, needs: frozenset[str], gives: frozenset[str]) -> Stage:
    """A stage that keeps tensors out of half storage."""
    return Stage(
        name=name,
        run=with_log(change),
        needs=needs,
        gives=gives,
        dump=dump_exact,
        when=lambda options: options.storage_dtype != "float32",
    )


STAGES: tuple[Stage, ...] = (
    Stage(
        name="import",
        run=import_step,
        needs=_facts(),
        gives=_facts("relax"),
        dump=dump_module,
    ),
    Stage(
        name="simplify",
        run=simplify_step,
        needs=_facts("relax"),
        gives=_facts("constants folded"),
        dump=dump_module,
    ),
    Stage(
        name="partition_clml",
        run=partition_clml_step,
        needs=_facts("relax", "constants folded"),
        gives=_facts("clml partitioned"),
        dump=dump_module,
        note=lambda s: f"{len(regions_of(s))} regions",
        # Layer checks compare tensors that a region would hide.
        when=lambda options: options.clml != "off" and not options.keep_layers,
    ),
    Stage(
        name="fold_pads",
        run=fold_pads_step,
        needs=_facts("relax", "constants folded"),
        gives=_facts("pads folded"),
        dump=dump_module,
        # CLML has an operator for a pad with its convolution.
        when=lambda options: options.clml == "off",
    ),
    Stage(
        name="order_channels",
        run=order_channels_step,
        needs=_facts("relax", "constants folded"),
        gives=_facts("channels ordered"),
        dump=dump_module,
        # CLML has operators for concatenations, slices and shuffles.
        when=lambda options: options.clml == "off",
    ),
    _planned(
        "read_graph",
        read_graph_step,
        needs=_facts("relax", "constants folded"),
        gives=_facts("graph"),
    ),
    Stage(
        name="inline_scalars",
        run=on_graph(inline_scalars),
        needs=_facts("graph"),
        gives=_facts("scalars inlined"),
        dump=dump_graph,
        check=lambda s: check_graph(graph_of(s)),
    ),
    Stage(
        name="pin_precision",
        run=pin_precision_step,
        needs=_facts("graph"),
        gives=_facts("precision pinned"),
        dump=dump_exact,
        when=lambda options: bool(options.float32_tensors),
    ),
    Stage(
        name="fuse_attention",
        run=within_limits(fuse_attention),
        needs=_facts("graph", "scalars inlined"),
        gives=_facts("attention found"),
        dump=dump_graph,
        check=lambda s: check_graph(graph_of(s)),
    ),
    _planned(
        "fuse",
        with_log(fuse_around_concats, in_regions=True),
        needs=_facts("graph", "attention found"),
        gives=_facts("fused"),
    ),
    Stage(
        name="keep_integers",
        run=keep_integers_step,
        needs=_facts("fused"),
        gives=_facts("integers kept"),
        dump=dump_exact,
        note=lambda s: f"{len(graph_of(s).rounded)} tensors of integers",
    ),
    _kept(
        "keep_coordinates",
        keep_coordinates,
        needs=_facts("fused"),
        gives=_facts("coordinates kept"),
    ),
    _kept(
        "keep_choices",
        keep_choices,
        needs=_facts("fused"),
        gives=_facts("choices kept"),
    ),
    _kept(
        "keep_differences",
        keep_differences,
        needs=_facts("fused"),
        gives=_facts("differences kept"),
    ),
    _kept(
        "keep_range",
        keep_range,
        needs=_facts("fused"),
        gives=_facts("range kept"),
    ),
    _kept(
        "keep_constants",
        keep_constants,
        needs=_facts("fused", "integers kept"),
        gives=_facts("constants kept"),
    ),
    _kept(
        "keep_sizes",
        keep_sizes,
        needs=_facts("fused", "integers kept"),
        gives=_facts("sizes kept"),
    ),
    _kept(
        "keep_grown",
        keep_grown,
        needs=_facts("fused", "integers kept", "sizes kept"),
        gives=_facts("growth kept"),
    ),
    _planned(
        "bridge_devices",
        bridge_devices_step,
        needs=_facts("fused"),
        gives=_facts("devices bridged"),
    ),
    Stage(
        name="keep_layers",
        run=keep_layers_step,
        needs=_facts("fused"),
        gives=_facts("layers kept"),
        dump=dump_graph,
        when=lambda options: options.keep_layers,
    ),
    Stage(
        name="spread_precision",
        run=spread_precision_step,
        needs=_facts("fused"),
        gives=_facts("precision spread"),
        dump=dump_exact,
        note=lambda s: f"{len(graph_of(s).exact)} tensors in float32",
        when=lambda options: bool(options.float32_tensors),
    ),
    Stage(
        name="assign_layouts",
        run=assign_layouts_step,
        needs=_facts("fused", "devices bridged"),
        gives=_facts("layouts"),
        dump=dump_layouts,
    ),
    _placed(
        "assign_memory",
        assign_memory_step,
        needs=_facts("layouts"),
        gives=_facts("placed"),
    ),
    _placed(
        "elide_copies",
        on_graph(elide_copies),
        needs=_facts("placed"),
        gives=_facts("copies elided"),
    ),
    _placed(
        "join_blocks",
        within_limits(join_blocks),
        needs=_facts("placed", "copies elided"),
        gives=_facts("blocks joined"),
    ),
    _placed(
        "store_outputs",
        with_log(store_outputs, in_regions=True),
        needs=_facts("placed", "blocks joined"),
        gives=_facts("outputs stored"),
    ),
    _placed(
        "read_flattened",
        with_log(read_flattened, in_regions=True),
        needs=_facts("placed", "blocks joined"),
        gives=_facts("vectors read"),
    ),
    _placed(
        "read_images",
        where_faster(read_images),
        needs=_facts("placed", "blocks joined"),
        gives=_facts("images read"),
    ),
    _placed(
        "fuse_shuffles",
        where_faster(fuse_shuffles, in_regions=True),
        needs=_facts("placed", "images read"),
        gives=_facts("shuffles fused"),
    ),
    _placed(
        "fuse_prologues",
        where_faster(fuse_prologues, in_regions=True),
        needs=_facts("placed", "images read"),
        gives=_facts("prologues fused"),
    ),
    _placed(
        "fuse_depthwise",
        where_faster(fuse_depthwise),
        needs=_facts("placed", "prologues fused"),
        gives=_facts("pairs joined"),
    ),
    _placed(
        "split_winograd",
        split_winograd_step,
        needs=_facts("placed", "prologues fused"),
        gives=_facts("convolutions chosen"),
    ),
    Stage(
        name="widen_sums",
        run=where_faster(widen_sums),
        needs=_facts("placed", "convolutions chosen"),
        gives=_facts("arithmetic chosen"),
        dump=dump_graph,
        note=lambda s: f"{len(graph_of(s).wide)} sums in float",
        when=lambda options: options.compute_dtype == "float16",
    ),
    _placed(
        "place_stores",
        within_limits(place_stores),
        needs=_facts("placed", "convolutions chosen"),
        gives=_facts("moves placed"),
    ),
    Stage(
        name="explain_moves",
        run=with_log(explain_moves),
        needs=_facts("placed", "moves placed"),
        gives=_facts("moves explained"),
        dump=dump_graph,
    ),
    Stage(
        name="lower",
        run=lower_step,
        needs=_facts("placed", "convolutions chosen"),
        gives=_facts("kernels"),
        dump=dump_program,
        note=count_kernels,
        check=lambda s: check_kernels(program_of(s), s.target.limits),
    ),
    Stage(
        name="plan_memory",
        run=plan_memory_step,
        needs=_facts("kernels"),
        gives=_facts("storage"),
        dump=dump_storage,
        note=peak,
    ),
    Stage(
        name="emit_relax",
        run=emit_relax_step,
        needs=_facts("kernels", "storage"),
        gives=_facts("driver"),
        dump=dump_module,
    ),
    Stage(
        name="build",
        run=build_step,
        needs=_facts("driver"),
        gives=_facts("executable"),
        dump=dump_kernels,
    ),
    Stage(
        name="verify",
        run=verify_step,
        needs=_facts("executable"),
        gives=_facts("verified"),
        dump=dump_program,
        note=count_kernels,
    ),
)


def stage_names() -> tuple[str, ...]:
    """The stages in order, as `--stop-after` takes them."""
    return tuple(stage.name for stage in STAGES)
