"""Rules for norms: layer, group, instance and root mean square."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Extents
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.families.reduce.norm import Affine, NormGeometry, norm, sets_of
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.row_tile import (
    RowWork,
    candidates,
    estimate_clocks,
    pick_row_tile,
)
from adrenoc.kernels.weights import pack_blocked


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
    """One kernel for a norm; gamma and beta are packed as the data lies."""
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
