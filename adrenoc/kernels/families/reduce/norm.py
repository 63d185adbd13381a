"""Layer, group, instance and root-mean-square norms: one kernel, two passes over the data.

One thread, or a team, makes one set of elements that share their statistics.  The first pass sums
the elements and their squares, less the set's first element: so the variance does not come out
of the difference of two large numbers.  The second pass stores.
"""

from __future__ import annotations

import math
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
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Extents, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.machine import CostModel
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
    """What shares its statistics: all elements along `roles`, in one of `groups` equal parts.

    The axis of `group_role` is the one that the groups divide; where that is C, a group must be
    whole blocks of four channels.  Without `centred` the mean is taken as zero, as the
    root-mean-square norm does.
    """

    roles: str
    epsilon: float
    groups: int = 1
    group_role: str = "C"
    centred: bool = True


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A packed factor or offset (`weights.pack_blocked`) and the roles along which it differs.

    `blocks` is how many blocks of four channels each of its batches holds.
    """

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
