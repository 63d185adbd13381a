"""Norms of ONNX as Relax norms, for which kernels exist.

TVM spells InstanceNormalization out as mean, variance and arithmetic: five kernels, and squares in
half floats, which overflow from 256 on.  Exporters write a group norm as an instance norm between
two reshapes; seen as what it is, it needs neither reshape.

Before -> after:
    Reshape(x, [N, G, -1]) -> InstanceNormalization(s, b)    reshape(group_norm(x, G))
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, static_shape


def _instance_norm(node: Node) -> relax.Expr:
    x, shape = node.inputs[0], node.shape()
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    grouped = _find_ungrouped(node)
    if grouped is None:
        axes = list(range(2, len(shape)))
        return relax.op.nn.instance_norm(
            x, node.inputs[1], node.inputs[2], channel_axis=1, axes=axes, epsilon=epsilon
        )
    whole, scale, offset = grouped
    axes = list(range(2, len(whole.ty.shape)))
    normed = relax.op.nn.group_norm(
        whole,
        make_constant(scale),
        make_constant(offset),
        num_groups=shape[1],
        channel_axis=1,
        axes=axes,
        epsilon=epsilon,
    )
    return relax.op.reshape(node.emit(normed), shape)


def _find_ungrouped(node: Node) -> tuple[relax.Var, np.ndarray, np.ndarray] | None:
    """Return what was reshaped to one row a group, and scale and offset for each of its
    channels."""
    call = node.bb.lookup_binding(node.inputs[0]) if isinstance(node.inputs[0], relax.Var) else None
    if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.reshape":
        return None
    batch, groups = node.shape()[:2]
    shape = static_shape(call.args[0])
    affine = [constant_value(node.inputs[i]) for i in (1, 2)]
    if shape is None or len(shape) < 3 or shape[0] != batch or shape[1] % groups:
        return None
    if affine[0] is None or affine[1] is None:
        return None
    members = shape[1] // groups
    return call.args[0], np.repeat(affine[0], members), np.repeat(affine[1], members)


def _rms_norm(node: Node) -> relax.Expr:
    """TVM puts conversions around it where data is half: a launch each. Kernels sum in float."""
    axes, epsilon = _normed_axes(node), float(node.attrs.get("epsilon", 1e-5))
    gains = _fitting(node, 1, axes)
    if gains is not None:
        return relax.op.nn.rms_norm(node.inputs[0], gains, axes, epsilon)
    ones = _filled(node, axes, 1.0)
    return relax.op.nn.rms_norm(node.inputs[0], ones, axes, epsilon) * node.inputs[1]


def _layer_norm(node: Node) -> relax.Expr:
    """TVM takes the axes from the factor's rank: those of a factor that is spread over what is
    normed are others, whose numbers would be wrong."""
    axes, epsilon = _normed_axes(node), float(node.attrs.get("epsilon", 1e-5))
    none = _filled(node, axes, 0.0)
    gains = _fitting(node, 1, axes)
    offsets = none if node.input(2) is None else _fitting(node, 2, axes)
    if gains is not None and offsets is not None:
        return relax.op.nn.layer_norm(node.inputs[0], gains, offsets, axes, epsilon)
    ones = _filled(node, axes, 1.0)
    normed = relax.op.nn.layer_norm(node.inputs[0], ones, none, axes, epsilon)
    scaled = normed * node.inputs[1]
    return scaled if node.input(2) is None else scaled + node.inputs[2]


def _normed_axes(node: Node) -> list[int]:
    rank = len(node.shape())
    return list(range(int(node.attrs.get("axis", -1)) % rank, rank))


def _fitting(node: Node, index: int, axes: list[int]) -> relax.Expr | None:
    """Return an input with a number for each of those that are normed together; None where it has
    other ones, which are spread over them."""
    wanted = [node.shape()[axis] for axis in axes]
    shape = list(node.shape(index))
    if shape == wanted:
        return node.inputs[index]
    if shape == [1] * (len(shape) - len(wanted)) + wanted:
        return relax.op.reshape(node.inputs[index], wanted)
    return None


def _filled(node: Node, axes: list[int], value: float) -> relax.Expr:
    """One number for each of those that are normed together."""
    shape = [node.shape()[axis] for axis in axes]
    return make_constant(np.full(shape, value, dtype_of(node.inputs[0])))


NORM_OPS: dict[str, Callable[[Node], relax.Expr]] = {
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
}
