"""Reductions, softmax and norms: what goes along whole axes.

Layer, group, instance and root-mean-square norms are one kernel, of two passes over the data.  One
thread, or a team, makes one set of elements that share their statistics.  The first pass sums
the elements and their squares, less the set's first element: so the variance does not come out
of the difference of two large numbers.  The second pass stores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    larger,
    splat,
    tirx,
)
from adrenoc.ir.graph import PROLOGUE_SHAPE, Graph, Node, Tensor
from adrenoc.ir.layout import LANES, Extents, Layout, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.reduce.reduce import reduce_rule, softmax_rule
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, Rule, RuleContext
from adrenoc.kernels.families.shared.machine import CostModel
from adrenoc.kernels.families.shared.operator import (
    SOFTMAX_OPERATIONS,
    Along,
    Batch,
    Counts,
    FollowsBatch,
    Kind,
    MakesLayout,
    NotKnownError,
    Numbers,
    Operator,
    Refuses,
    Typical,
    TypicalRun,
    count_per_input_element,
    refuses_nothing,
    same_layout,
    size_of,
)
from adrenoc.kernels.families.shared.rows import (
    RowTile,
    RowWork,
    candidates,
    estimate_clocks,
    pick_row_tile,
    row_threads,
)
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.walk import (
    ACCUMULATOR,
    Position,
    RunSums,
    Team,
    TexelCounts,
    TexelRange,
    combine_lanes,
    each_texel,
    only_channels,
    plus,
    region_along,
    visits,
    widen,
)
from adrenoc.kernels.weights import pack_blocked


@dataclass(frozen=True, kw_only=True)
class NormGeometry:
    """What shares its statistics: all elements along `roles`, in one of `groups` equal parts.  The
    axis of `group_role` is the one that the groups divide; where that is C, a group must be whole
    blocks of four channels.  Without `centred` the mean is taken as zero, as the root-mean-square
    norm does."""

    roles: str
    epsilon: float
    groups: int = 1
    group_role: str = "C"
    centred: bool = True


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A packed factor or offset (`weights.pack_blocked`) and the roles along which it differs.
    `blocks` is how many blocks of four channels each of its batches holds."""

    access: Access
    roles: str
    blocks: int

    def texel(self, at: Position) -> Expr:
        """Return four channels in the accumulator's dtype."""
        zero = iconst(0)
        layer = at.block if "C" in self.roles else zero
        if "N" in self.roles:
            layer = at.n * iconst(self.blocks) + layer
        row = at.h if "H" in self.roles else zero
        col = at.w if "W" in self.roles else zero
        value = widen(self.access.texel(layer, zero, row, col))
        return value if "C" in self.roles else splat(lane(value, 0))


def norm(
    builder: KernelBuilder,
    tile: RowTile,
    geometry: NormGeometry,
    x: Access,
    factor: Affine | None,
    offset: Affine | None,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit (x - mean) / sqrt(variance + epsilon) * factor + offset.

    Shapes:
        x: any, with roles
        factor, offset: [N * C/4, H, W, 4], extents of one where they do not differ
        out: as x, with the same roles
    """
    region, team = _set_of_thread(builder, tile, geometry, x)
    shift, scale = _statistics(builder, geometry, x, region, team)

    def write(position: Position, lanes: int) -> None:
        value = (widen(x.texel(*position)) - shift) * scale
        if factor is not None:
            value = value * factor.texel(position)
        if offset is not None:
            value = value + offset.texel(position)
        epilogue.write(*position, value)

    with builder.when(builder.inside):
        each_texel(builder, region, write, team)


def sets_of(geometry: NormGeometry, extents: Extents) -> tuple[int, int, int]:
    """Return how many sets of elements share their statistics, in x, y, z."""
    e, roles = extents, geometry.roles
    blocks = 1 if "C" in roles else e.blocks
    return (
        1 if "W" in roles else e.w,
        1 if "H" in roles else e.h,
        (1 if "N" in roles else e.n) * blocks * geometry.groups,
    )


def _set_of_thread(
    builder: KernelBuilder, tile: RowTile, geometry: NormGeometry, x: Access
) -> tuple[TexelRange, Team]:
    """Return the elements of one thread or team."""
    e, roles, groups = x.extents, geometry.roles, geometry.groups
    blocks = 1 if "C" in roles else e.blocks
    w, h, z, team = row_threads(builder, sets_of(geometry, e), tile)
    which, z = (iconst(0), z) if groups == 1 else (floormod(z, groups), floordiv(z, groups))
    n, block = (z, iconst(0)) if blocks == 1 else (floordiv(z, blocks), floormod(z, blocks))
    region = region_along(e, roles, Position(n, block, h, w))
    if groups == 1:
        return region, team
    divided = "NCHW".index(geometry.group_role)
    start, counts = list(region.start), list(region.counts)
    counts[divided] //= groups
    start[divided] = builder.let(which * iconst(counts[divided]), "first")
    # Groups of whole blocks leave no partly empty block; groups along another axis keep it.
    tail = 0 if geometry.group_role == "C" else region.tail
    return TexelRange(start=Position(*start), counts=TexelCounts(*counts), tail=tail), team


def _statistics(
    builder: KernelBuilder, geometry: NormGeometry, x: Access, region: TexelRange, team: Team
) -> tuple[Expr, Expr]:
    """Return the mean and the reciprocal deviation, in all lanes."""
    mixed = "C" in geometry.roles
    counts = region.counts
    count = counts.n * counts.h * counts.w * (region.channels if mixed else 1)
    total = splat(fconst(count, ACCUMULATOR))
    sums = builder.registers(2, dtype=ACCUMULATOR)
    sums.fill(0.0)
    used = range(2) if geometry.centred else (1,)
    runs = RunSums(builder, sums, range(2), visits(region, team))
    origin = splat(fconst(0.0, ACCUMULATOR))
    if geometry.centred:
        first = builder.let(widen(x.texel(*region.start)), "first")
        origin = builder.let(splat(lane(first, 0)), "origin") if mixed else first

    def add(position: Position, lanes: int) -> None:
        value = builder.let(widen(x.texel(*position)) - origin, "x")
        value = builder.let(only_channels(value, lanes, 0.0), "x") if lanes < LANES else value
        if geometry.centred:
            runs[0] = runs[0] + value
        runs[1] = runs[1] + value * value

    each_texel(builder, region, add, team, runs)
    folded = team.fold(builder, [sums[i] for i in used], [plus] * len(used))
    for i, value in zip(used, folded, strict=True):
        sums[i] = value
    if mixed:
        for i in used:
            sums[i] = splat(combine_lanes(builder.let(sums[i]), plus))
    epsilon = splat(fconst(geometry.epsilon, ACCUMULATOR))
    if not geometry.centred:
        return origin, builder.let(_rsqrt(sums[1] / total + epsilon), "scale")
    mean = builder.let(sums[0] / total, "mean")
    variance = larger(sums[1] / total - mean * mean, splat(fconst(0.0, ACCUMULATOR)))
    scale = builder.let(_rsqrt(variance + epsilon), "scale")
    return builder.let(mean + origin, "shift"), scale


def _rsqrt(value: Expr) -> Expr:
    return splat(fconst(1.0, ACCUMULATOR)) / tirx.sqrt(value)


def is_rms_norm(node: Node) -> bool:
    """Return whether a node divides by the root of a mean square, and takes no mean off."""
    return node.op == "rms_norm"


def is_layer_norm(node: Node) -> bool:
    """Return whether a node takes the mean off and divides by the deviation, along stated axes."""
    return node.op == "layer_norm"


def norm_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of a norm's own kernel, its launch included."""
    spec, machine = graph.operand(node.inputs[0]), costs.machine
    geometry, _ = _geometry_of(node, spec)
    work, element = _work_of(geometry, spec.extents), bytes_of(spec.dtype)
    computed = min(
        estimate_clocks(work, tile, machine, element)
        for tile in candidates(work, costs.limits, machine.cost)
    )
    moved = 2 * math.prod(spec.alone.physical) * element
    return machine.launch_clocks + max(computed, machine.memory_clocks(moved))


def norm_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return one kernel for a norm; gamma and beta are packed as the data lies."""
    kernel = context.kernel(node, node.op)
    x = kernel.input(node.inputs[0])
    geometry, affine_axes = _geometry_of(node, x.spec)
    factor = _affine(kernel, node, 1, "scale", affine_axes, 1.0)
    offset = _affine(kernel, node, 2, "center", affine_axes, 0.0)
    out, epilogue = kernel.output()
    tile = pick_row_tile(context, node, node.op, _work_of(geometry, x.extents))
    norm(kernel.builder, tile, geometry, x, factor, offset, out, epilogue)
    return kernel.call()


def _geometry_of(node: Node, spec: OperandSpec) -> tuple[NormGeometry, list[int]]:
    """Return what shares its statistics, and the axes along which factors and offsets differ."""
    roles, rank = spec.roles.roles, len(spec.shape)
    axes = [a % rank for a in node.attrs["axes"]]
    groups = 1
    shared = axes
    if node.op in ("group_norm", "instance_norm"):
        channel = int(node.attrs["channel_axis"]) % rank
        affine_axes = [channel]
        if node.op == "group_norm":
            groups = int(node.attrs["num_groups"])
            shared = [channel, *axes]
    else:
        affine_axes = axes
    if groups == spec.shape[affine_axes[0]] and node.op == "group_norm":
        groups, shared = 1, axes  # a group of one channel is an instance norm
    geometry = NormGeometry(
        roles="".join(roles[a] for a in shared if roles[a] != "1"),
        epsilon=float(node.attrs["epsilon"]),
        groups=groups,
        group_role=roles[affine_axes[0]],
        centred=node.op != "rms_norm",
    )
    return geometry, affine_axes


def _work_of(geometry: NormGeometry, extents: Extents) -> RowWork:
    by_role = {"N": extents.n, "C": extents.blocks, "H": extents.h, "W": extents.w}
    return RowWork(
        rows=sets_of(geometry, extents),
        length=math.prod(by_role[role] for role in geometry.roles) // geometry.groups,
        passes=2,
        folds=1,
        vectors=2 if geometry.centred else 1,
        along_w="W" in geometry.roles,
    )


def _affine(
    kernel: NodeKernel, node: Node, position: int, switch: str, axes: list[int], neutral: float
) -> Affine | None:
    """Return the packed gamma or beta, None where the norm has none or it changes nothing."""
    stated = 2 if node.op == "rms_norm" else 3
    if position >= stated or not node.attrs.get(switch, True):
        return None
    name = node.inputs[position]
    value = kernel.context.graph.tensors[name].value
    if value is not None and np.all(np.asarray(value) == neutral):
        return None
    x = kernel.accesses[node.inputs[0]].spec
    shape = [x.shape[a] if a in axes else 1 for a in range(len(x.shape))]
    pack = partial(_pack_factor, shape=shape, axes=axes, roles=x.roles.roles)
    kind = "".join(x.roles.roles[a] for a in axes)
    access = kernel.pack_constant(name, f"norm{kind}", pack)
    blocks = kernel.accesses[node.inputs[0]].extents.blocks if "C" in kind else 1
    return Affine(access=access, roles=kind, blocks=blocks)


def _pack_factor(value: np.ndarray, shape: list[int], axes: list[int], roles: str) -> np.ndarray:
    """Return a factor over `axes`, in their stated order, packed as a tensor of these roles."""
    stated = value.reshape([shape[a] for a in axes])
    return pack_blocked(stated.transpose(np.argsort(axes)).reshape(shape), roles, False)


def typical_reduction(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return typical results of a reduction, of data that stands for many equal elements.  A sum
    counts each element of the data as often as the tensor has such elements."""
    shape = run.graph.tensors[node.inputs[0]].shape
    if node.prologue is not None:
        shape = node.attrs.get(PROLOGUE_SHAPE, shape)
    stated = node.attrs["axis"]
    axes = range(len(shape)) if stated is None else [int(a) % len(shape) for a in stated]
    over = tuple(a + 1 for a in axes)
    keep = bool(node.attrs["keepdims"])
    if node.op in ("max", "min", "mean"):
        return np.asarray(getattr(np, node.op)(data, axis=over, keepdims=keep))
    unseen = math.prod(shape[a] for a in axes) / math.prod(data.shape[a] for a in over)
    if node.op == "sum":
        return np.asarray(data.sum(axis=over, keepdims=keep) * unseen)
    return np.asarray(np.prod(data, axis=over, keepdims=keep) ** unseen)


def typical_softmax(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return shares of one, or their logarithms."""
    shape = run.graph.tensors[node.inputs[0]].shape
    axis = int(node.attrs["axis"]) % len(shape)
    powers = np.exp(data - data.max(axis=axis + 1, keepdims=True))
    unseen = shape[axis] / data.shape[axis + 1]
    shares = powers / (powers.sum(axis=axis + 1, keepdims=True) * unseen)
    return np.log(shares) if node.op == "log_softmax" else shares


def typical_norm(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return typical results of a norm.  The data has one pixel, so what is normed over other axes
    as well is taken to come to one; the norm's own factors and offsets then apply."""
    rank = data.ndim - 1
    channel = int(node.attrs.get("channel_axis", -1)) % rank
    axes = [int(a) % rank for a in node.attrs["axes"]]
    if node.op in ("layer_norm", "rms_norm"):
        channel = axes[-1]
    x = data
    if node.op in ("layer_norm", "rms_norm") and len(axes) == 1:
        over = tuple(a + 1 for a in axes)
        if node.op == "layer_norm":
            x = x - x.mean(axis=over, keepdims=True)
        deviation = np.sqrt(np.mean(x * x, axis=over, keepdims=True))
        x = np.where(deviation > 1e-6 * np.abs(data), x / deviation, np.sign(data))
    else:
        x = np.sign(data)
    stated = [name for name in node.inputs[1:] if run.graph.tensors[name].value is not None]
    constants = [_read_channel_vector(run, name, rank, channel) for name in stated]
    if len(constants) != len(node.inputs) - 1 or len(constants) > 2:
        raise NotKnownError
    if node.attrs.get("scale", True) and constants:
        x = x * constants.pop(0)
    return x + constants[0] if constants else x


def _read_channel_vector(run: TypicalRun, name: str, rank: int, channel: int) -> np.ndarray:
    value = run.graph.tensors[name].value
    if value is None or value.ndim != 1:
        raise NotKnownError
    return value.astype(np.float64).reshape(
        [-1 if a == channel + 1 else 1 for a in range(rank + 1)]
    )


NORM_OPERATIONS = 8
"""An element: mean 1, variance 3, normalise 2, scale and shift 2."""
RMS_NORM_OPERATIONS = 4
"""An element: square, sum, normalise, scale."""


def _refuses_norm(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    for name in node.inputs[1:]:
        if tensors[name].value is None:
            return f"its factor or offset {name} is computed, expected a constant"
    return None


def _refuses_group_norm(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    shape = tensors[node.inputs[0]].shape
    channel = int(node.attrs["channel_axis"]) % len(shape)
    groups = int(node.attrs["num_groups"])
    per_group = shape[channel] // groups
    if groups not in (1, shape[channel]) and per_group % LANES:
        return f"{per_group} channels a group, expected a multiple of {LANES}"
    return _refuses_norm(node, tensors)


def _drop_reduced_axes(
    node: Node, tensors: Mapping[str, Tensor], source: Layout | None
) -> Layout | None:
    if source is not None and len(source.roles) != len(tensors[node.output].shape):
        axes = node.attrs["axis"]
        rank = len(source.roles)
        dropped = range(rank) if axes is None else [a % rank for a in axes]
        kept = "".join(role for axis, role in enumerate(source.roles) if axis not in dropped)
        if "C" in kept:
            return Layout(kept)
    return same_layout(node, tensors, source)


def _reduction_follows(batch: Batch, node: Node) -> Along | None:
    along, stated = batch.along[node.inputs[0]], node.attrs["axis"]
    rank = len(batch.shape(node.inputs[0]))
    axes = {int(a) % rank for a in stated} if stated is not None else set(range(rank))
    if along.axis in axes:
        return None
    if node.attrs["keepdims"]:
        return along
    return Along(along.axis - sum(a < along.axis for a in axes), along.factor)


def _softmax_follows(batch: Batch, node: Node) -> Along | None:
    along, rank = batch.along[node.inputs[0]], len(batch.shape(node.inputs[0]))
    return None if int(node.attrs["axis"]) % rank == along.axis else along


def _norm_follows(batch: Batch, node: Node) -> Along | None:
    rank = len(batch.shape(node.inputs[0]))
    axes = {int(a) % rank for a in node.attrs["axes"]}
    if "channel_axis" in node.attrs:
        axes.add(int(node.attrs["channel_axis"]) % rank)
    along = batch.along.get(node.inputs[0])
    return None if along is None or along.axis in axes else along


def _inputs_per_result(graph: Graph, node: Node) -> int:
    return size_of(graph, node.inputs[0]) // max(1, size_of(graph, node.output))


def _make_axes_operator(
    name: str,
    kind: Kind,
    numbers: Numbers,
    rule: Rule,
    follows_batch: FollowsBatch,
    operations: Counts,
    typical: Typical,
    refuses: Refuses = refuses_nothing,
    makes_layout: MakesLayout = same_layout,
) -> Operator:
    plain = kind is Kind.REDUCTION
    return Operator(
        name=name,
        kind=kind,
        numbers=numbers,
        rule=rule,
        relax=f"relax.{name}" if plain else f"relax.nn.{name}",
        refuses=refuses,
        makes_layout=makes_layout,
        keeps_axes=not plain,
        follows_batch=follows_batch,
        terms=_inputs_per_result if numbers in (Numbers.SUMMED, Numbers.AVERAGED) else None,
        operations=operations,
        typical=typical,
    )


def _reduction(name: str, numbers: Numbers) -> Operator:
    return _make_axes_operator(
        name,
        Kind.REDUCTION,
        numbers,
        reduce_rule,
        _reduction_follows,
        count_per_input_element(1),
        typical_reduction,
        makes_layout=_drop_reduced_axes,
    )


def _softmax(name: str, numbers: Numbers) -> Operator:
    count = count_per_input_element(SOFTMAX_OPERATIONS)
    return _make_axes_operator(
        name, Kind.SOFTMAX, numbers, softmax_rule, _softmax_follows, count, typical_softmax
    )


def _norm(
    name: str, operations: int = NORM_OPERATIONS, refuses: Refuses = _refuses_norm
) -> Operator:
    count = count_per_input_element(operations)
    return _make_axes_operator(
        name, Kind.NORM, Numbers.NORMED, norm_rule, _norm_follows, count, typical_norm, refuses
    )


OPERATORS = (
    _reduction("max", Numbers.PICKED),
    _reduction("mean", Numbers.AVERAGED),
    _reduction("min", Numbers.PICKED),
    _reduction("prod", Numbers.MULTIPLIED),
    _reduction("sum", Numbers.SUMMED),
    _softmax("softmax", Numbers.SHARES),
    _softmax("log_softmax", Numbers.LOG_SHARES),
    *map(_norm, ("instance_norm", "layer_norm")),
    _norm("group_norm", refuses=_refuses_group_norm),
    _norm("rms_norm", RMS_NORM_OPERATIONS),
)
