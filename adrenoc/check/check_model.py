"""Plan a model for a device and say how it would run, without generating code for the device.

Of a decoder this is said of one token: bytes through the memory bus, launches, a floor of time.

Tensors that are not in a texture, or all but, and what would bring or keep them there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from adrenoc.base.errors import MemoryLimitError
from adrenoc.base.reporter import Reporter
from adrenoc.base.tvmapi import bits_of
from adrenoc.bundle.manifest import RegionInfo
from adrenoc.check.verdict import (
    MIB,
    DecoderVerdict,
    HeldConstant,
    HeldTensor,
    MemoryVerdict,
    NearMiss,
    NodeVerdict,
    Policy,
    SlotUse,
    Totals,
    Verdict,
)
from adrenoc.compile.compiler import kind_of, region_infos
from adrenoc.compile.pipeline import State, imported_of, program_of, run_stages, storage_of
from adrenoc.compile.steps import check_plan
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import MAX_BLOCKED_AXES, Layout, Memory, OperandSpec, TexelOrder
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Program
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.analyse.cpu_nodes import remedy
from adrenoc.passes.lower.measure_work import least_bytes, looks_up, measure_work
from adrenoc.passes.lower.plan_memory import (
    Storage,
    allocated_bytes,
    live_intervals,
    most_alive,
    pitched_image_bytes,
    size_bytes,
)
from adrenoc.target.gpu import Estimate, Limits, Roofline
from adrenoc.target.target import Target

_CLOSE = 0.9
"""Share of a limit from which on a tensor counts as close to it."""

_AXIS_OF_ORDER = {
    TexelOrder.PLANES: ("the layers (N x C / 4)", "the height", "the width"),
    TexelOrder.ROWS: ("the batch", "the rows (H x W)", "the blocks of channels (C / 4)"),
}
"""What layers, rows and columns of an image are made of."""


def _find_near_misses(program: Program, limits: Limits) -> tuple[NearMiss, ...]:
    """Return all near misses of a program: tensors in the order of their nodes, then weights."""
    graph = program.graph
    found = []
    for node in graph.nodes:
        if node.is_on_cpu:
            wide = str(graph.tensors[node.output].dtype) == "float64"
            operator, reason = node.operators[0], "float64" if wide else "no plain loop nest"
            seen, fix = f"{operator} on the CPU: {reason}", remedy(operator, reason)
            found.append(NearMiss(subject=node.name, seen=seen, fix=fix))
        elif node.output not in graph.output_names and not node.is_device_copy:
            tensor, spec = graph.tensors[node.output], graph.operand(node.output)
            found += _check_tensor(
                node.name, tensor.shape, tensor.dtype, spec.memory, spec.layout, limits
            )
    tables = _find_tables(program)
    for param in program.params.values():
        if param.spec.memory is Memory.BLOCKED and param.name not in tables:
            roles = param.spec.roles
            found += [
                NearMiss(subject=param.name, seen=f"weights in a buffer: {seen}", fix=fix)
                for seen, fix in _find_excess(roles, param.spec.shape, limits)
            ]
    return tuple(found)


def _find_tables(program: Program) -> set[str]:
    """Constants of which rows are looked up alone: a buffer is as good a place for them."""
    looked: dict[str, bool] = {}
    for node, step in zip(program.graph.nodes, program.steps, strict=True):
        for name in {*step.reads} & {*program.params}:
            looked[name] = looked.get(name, True) and looks_up(program.graph, node, name)
    return {program.params[name].name for name, only in looked.items() if only}


def _check_tensor(
    subject: str,
    shape: tuple[int, ...],
    dtype: str,
    memory: Memory,
    layout: Layout | None,
    limits: Limits,
) -> Iterator[NearMiss]:
    if memory is Memory.TEXTURE and layout is not None:
        for seen, fix in _close(layout, shape, limits):
            yield NearMiss(subject=subject, seen=seen, fix=fix)
    elif memory is Memory.BLOCKED and layout is not None:
        for seen, fix in _find_excess(layout, shape, limits):
            yield NearMiss(subject=subject, seen=f"in a buffer: {seen}", fix=fix)
    elif memory is Memory.PLAIN and dtype.startswith("float") and layout is None:
        wide = sum(extent > 1 for extent in shape)
        yield NearMiss(
            subject=subject,
            seen=f"in a buffer: {wide} dimensions above 1 > {MAX_BLOCKED_AXES} that a texture has",
            fix="merge neighbouring dimensions by a Reshape before it",
        )


def _find_excess(
    layout: Layout, shape: tuple[int, ...], limits: Limits
) -> Iterator[tuple[str, str]]:
    """Yield each extent beyond a limit, and the axis to make smaller, in the better texel order."""
    layouts = [list(_extents(layout.reorder(order), shape, limits)) for order in TexelOrder]
    best = min(layouts, key=lambda sides: max(extent / limit for extent, limit, _ in sides))
    for extent, limit, name in best:
        if extent > limit:
            parts = -(-extent // limit)
            yield (
                f"{name}: {extent} > {limit}, the limit of an image",
                f"split it into {parts} along that dimension, or make it at most {limit}",
            )


def _close(layout: Layout, shape: tuple[int, ...], limits: Limits) -> Iterator[tuple[str, str]]:
    for extent, limit, name in _extents(layout, shape, limits):
        if limit * _CLOSE <= extent <= limit:
            yield (
                f"in a texture, but close: {name}, {extent} of {limit}",
                "a larger input would move it to another layout or to a buffer",
            )


def _extents(
    layout: Layout, shape: tuple[int, ...], limits: Limits
) -> Iterator[tuple[int, int, str]]:
    layers, rows, columns, _ = layout.texture_shape(shape)
    of_layers, of_rows, of_columns = _AXIS_OF_ORDER[layout.order]
    yield layers, limits.image_max_array_layers, of_layers
    yield rows, limits.image2d_max_height_texels, of_rows
    yield columns, limits.image2d_max_width_texels, of_columns


_LAST_STAGE = "plan_memory"
_TAPS = 9
"""Of the convolutions that Winograd's algorithm computes."""


def check_model(
    model: Path, *, target: Target, options: CompileOptions, policy: Policy, reporter: Reporter
) -> Verdict:
    """Plan `model` and hold the plan against `policy`. A plan beyond `policy.max_memory_mib` is
    planned again, as `compile` does it. Raises AdrenocError where the file is damaged, an operator
    or a shape is not supported, ..."""
    state = _plan(model, target, options, reporter)
    limit, refused = policy.max_memory_mib, None
    if limit is not None and storage_of(state).plan.peak_bytes > limit * MIB:
        try:
            state = _plan(model, target, replace(options, max_memory_mib=limit), reporter)
        except MemoryLimitError as error:
            refused = error.message
    verdict = verdict_of(state, policy)
    if refused is None:
        return verdict
    # What planning again came to says more than the first plan.
    kept = (sentence for sentence in verdict.broken if "--limit memory-mib" not in sentence)
    return replace(verdict, broken=(*kept, refused))


def _plan(model: Path, target: Target, options: CompileOptions, reporter: Reporter) -> State:
    start = State(model=model, target=target, options=options, sizes_only=True)
    state, _ = run_stages(start, reporter=reporter, stop_after=_LAST_STAGE)
    storage = {"": storage_of(state), **state.region_storage}
    check_plan(program_of(state), storage, target.limits)
    return state


def verdict_of(state: State, policy: Policy) -> Verdict:
    """Return what a state that is planned up to its memory says."""
    program, storage = program_of(state), storage_of(state)
    roofline = Roofline.from_performance(state.target.performance)
    nodes = _nodes(state, program, roofline)
    totals = _totals(nodes, program, roofline)
    memory = _memory(program, storage, state.target.limits.image_pitch_align_texels)
    is_decoder = bool(state.options.caches or state.options.recurrent)
    decoder = judge_decoder(program.graph, nodes, totals.launches, roofline) if is_decoder else None
    verdict = Verdict(
        model=state.model.name,
        target=state.target.name,
        target_title=state.target.title,
        preset=state.options.preset,
        totals=totals,
        memory=memory,
        near_misses=_find_near_misses(program, state.target.limits),
        unknown_rates=roofline.missing,
        broken=(),
        nodes=nodes,
        decisions=tuple(state.log.to_json()),
        regions=_regions(state, program),
        kept_back=state.clml.kept_back if state.clml is not None else 0,
        decoder=decoder,
    )
    return replace(verdict, broken=policy.broken_by(verdict))


def _regions(state: State, program: Program) -> tuple[RegionInfo, ...]:
    """Return the regions of OpenCL ML, with the names that are shown of what they read and make."""
    shown = _shown_names(program.graph)
    return tuple(
        replace(
            region,
            inputs=tuple(shown.get(name, name) for name in region.inputs),
            outputs=tuple(shown.get(name, name) for name in region.outputs),
        )
        for region in region_infos(state.clml, program)
    )


# Nodes


def _nodes(state: State, program: Program, roofline: Roofline) -> tuple[NodeVerdict, ...]:
    graph, shown = program.graph, _shown_names(program.graph)
    # The last word on each subject.
    said = {one.subject: f"{one.taken}: {one.reason}" for one in state.log}
    works = measure_work(program, half=state.options.compute_dtype == "float16")
    found = []
    for node, step, measured in zip(graph.nodes, program.steps, works, strict=True):
        spec, work = graph.operand(node.output), measured.work
        place = _place(node, spec)
        estimate = Estimate() if place in ("cpu", "clml") else roofline.estimate(work)
        before = (shown[maker.output] for name in node.inputs for maker in graph.makers(name))
        constants = {name for name in step.arguments if name in program.params}
        found.append(
            NodeVerdict(
                tensor=shown[node.output],
                node=" + ".join(filter(None, map(imported_of(state).node_of, node.names))),
                operators=node.operators,
                kind=_kind(node),
                is_output=bool({*node.writes} & {*graph.outputs}),
                place=place,
                reason=_reason(graph, node, spec, said) if place != "texture" else "",
                layout="" if spec.layout is None else str(spec.layout),
                shape=spec.shape,
                dtype=spec.dtype,
                kernel=step.kernel,
                reads=tuple(dict.fromkeys(before)),
                macs=measured.macs,
                flops=work.flops,
                texels=work.texels,
                bytes_read=work.bytes_read,
                bytes_written=work.bytes_written,
                weight_bytes=sum(program.params[name].value.nbytes for name in constants),
                time_us=estimate.time_us,
                bound=estimate.bound,
                alu_us=estimate.alu_us,
                texture_us=estimate.texture_us,
                dram_us=estimate.dram_us,
            )
        )
    return tuple(found)


def _shown_names(graph: Graph) -> dict[str, str]:
    """Tensor of the graph -> the name that is shown; copies say what they are."""
    shown: dict[str, str] = {}
    taken: set[str] = set()
    for node in graph.nodes:
        name = node.name
        if name in taken:
            name = f"{name} ({node.op.replace('_', ' ')})"
        taken.add(name)
        shown[node.output] = name
    return shown


def _kind(node: Node) -> str:
    if node.is_device_copy:
        return "device"
    return kind_of(node.operators) if node.is_map else "compute"


def _place(node: Node, spec: OperandSpec) -> str:
    """`texture`, `buffer`, `clml` or `cpu`; a copy to the CPU is the GPU's work, into a buffer."""
    if node.is_region or node.is_region_memory:
        return "clml"
    if node.is_copy_to_cpu:
        return "buffer"
    return spec.memory.value if spec.memory in (Memory.TEXTURE, Memory.CPU) else "buffer"


def _reason(graph: Graph, node: Node, spec: OperandSpec, said: Mapping[str, str]) -> str:
    if node.is_device_copy:
        return "a copy between GPU and CPU"
    if node.is_region or node.is_region_memory:
        what = "a region of OpenCL ML" if node.is_region else "a further result of a region"
        return said.get(node.attrs.get("symbol", ""), what)
    if node.output in graph.output_names:
        return "an output of the model: row-major, in a buffer"
    known = said.get(node.output, said.get(node.name))
    if known is not None:
        return known
    if not graph.tensors[node.output].is_float:
        return f"its values are {graph.tensors[node.output].dtype}, a texture holds floats"
    return _reason_of_layout(spec)


def _reason_of_layout(spec: OperandSpec) -> str:
    if spec.memory is Memory.BYTES:
        return "whole numbers as bytes, which the GPU multiplies four at a time"
    if spec.layout is None:
        return "it has more than four dimensions above 1"
    return "the options or its readers ask for a buffer"


def _totals(nodes: tuple[NodeVerdict, ...], program: Program, roofline: Roofline) -> Totals:
    launches = sum(step.place == "gpu" for step in program.steps)
    times = [node.time_us for node in nodes if node.time_us is not None]
    return Totals(
        texture_nodes=sum(node.place == "texture" for node in nodes),
        output_nodes=sum(node.is_output and node.place == "buffer" for node in nodes),
        buffer_nodes=sum(node.is_off_texture for node in nodes),
        cpu_nodes=sum(node.place == "cpu" for node in nodes),
        clml_nodes=sum(node.place == "clml" for node in nodes),
        copies=sum(node.is_copy for node in nodes),
        launches=launches,
        kernels=len(program.kernels),
        macs=sum(node.macs for node in nodes),
        flops=sum(node.flops for node in nodes),
        bytes=sum(node.bytes_read + node.bytes_written for node in nodes),
        floor_bytes=least_bytes(program),
        time_us=sum(times) if times else None,
        gaps_us=None if roofline.launch_us is None else launches * roofline.launch_us,
    )


# Memory


def _memory(program: Program, storage: Storage, pitch_texels: int) -> MemoryVerdict:
    graph = program.graph
    intervals = live_intervals(program)
    on_gpu = [i for i in intervals if graph.operand(i.name).memory is not Memory.CPU]
    _, step = most_alive(on_gpu)
    held: list[list[HeldTensor]] = [[] for _ in storage.plan.slots]
    for interval in intervals:
        turn = {"first": interval.first, "last": interval.last, "bytes": interval.bytes}
        slot = held[storage.slot_of[interval.name]]
        slot.append(HeldTensor(tensor=interval.name, **turn))
    where = program.steps[step].arguments[-1] if program.steps else ""
    transformed, plain = _transformed_bytes(program)
    return MemoryVerdict(
        winograd_bytes=transformed,
        plain_bytes=plain,
        plan=storage.plan,
        live_step=step,
        live_tensor=where,
        pitched_bytes=storage.plan.peak_bytes + _pitch_bytes(program, storage, pitch_texels),
        slots=tuple(
            SlotUse(scope=slot.scope, bytes=slot.bytes, tensors=tuple(tensors))
            for slot, tensors in zip(storage.plan.slots, held, strict=True)
        ),
        constants=tuple(
            HeldConstant(name=p.name, scope=p.spec.scope, bytes=allocated_bytes(p.spec))
            for p in program.params.values()
        ),
    )


def _transformed_bytes(program: Program) -> tuple[int, int]:
    """Bytes of weights transformed for Winograd's algorithm, and of the same as they are."""
    planes: dict[str, int] = {}
    for node, step in zip(program.graph.nodes, program.steps, strict=True):
        if "tiling" in node.attrs and not is_kind(node, Kind.TRANSFORM):
            weights = {*step.reads} & {*program.params}
            largest = max(weights, key=lambda name: program.params[name].value.nbytes, default="")
            planes[largest] = node.attrs["tiling"].planes
    held = {name: program.params[name].value.nbytes for name in planes if name}
    plain = sum(count * _TAPS // planes[name] for name, count in held.items())
    return sum(held.values()), plain


def _pitch_bytes(program: Program, storage: Storage, pitch_texels: int) -> int:
    """Return what rows padded to the pitch would take beyond the plan."""
    images = [(s.shape, s.dtype, s.bytes) for s in storage.plan.slots if "texture" in s.scope]
    images += [
        (p.spec.physical, p.spec.dtype, allocated_bytes(p.spec))
        for p in program.params.values()
        if p.spec.memory is Memory.TEXTURE
    ]
    return sum(
        pitched_image_bytes(shape, bits_of(dtype), pitch_texels) - held
        for shape, dtype, held in images
    )


CACHE_AXES = 4
"""Batch, heads, rows, numbers of a head."""
_READ_IN_PART = {"take", "append_rows", "cached_attention"}
"""Operators that read a row or so of their constants: a token's embedding, its angles."""


def judge_decoder(
    graph: Graph, nodes: Sequence[NodeVerdict], launches: int, roofline: Roofline
) -> DecoderVerdict:
    """Return the verdict on a plan of one token of a decoder."""
    pasts = tuple(graph.states.values())
    cache = sum(size_bytes(graph.operand(name)) for name in pasts)
    weights = sum(n.weight_bytes for n in nodes if not _READ_IN_PART & set(n.operators))
    shapes = [graph.tensors[name].shape for name in pasts]
    rows = [shape[2] for shape in shapes if len(shape) == CACHE_AXES]
    rate = roofline.bytes_per_us
    return DecoderVerdict(
        rows=max(rows, default=0),
        weight_bytes=weights,
        cache_bytes=cache,
        launches=launches,
        tokens_per_s=_tokens_per_s(rate, weights),
        full_tokens_per_s=_tokens_per_s(rate, weights + cache),
    )


def _tokens_per_s(rate: float | None, size: int) -> float | None:
    """Return the most tokens a second of `size` bytes each, None where nothing tells."""
    return 1e6 * rate / size if rate is not None and size else None
