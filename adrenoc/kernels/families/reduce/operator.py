"""Reductions, softmax and norms: what goes along whole axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from adrenoc.ir.graph import PROLOGUE_SHAPE, Node, Tensor
from adrenoc.ir.layout import LANES, Layout
from adrenoc.kernels.families.reduce.norm import norm_rule
from adrenoc.kernels.families.reduce.reduce import reduce_rule, softmax_rule
from adrenoc.kernels.families.shared.context import Rule
from adrenoc.kernels.families.shared.operator import (
    SOFTMAX_OPERATIONS,
    Along,
    Batch,
    Counts,
    FollowsBatch,
    Kind,
    MakesLayout,
    Numbers,
    Operator,
    Refuses,
    count_per_input_element,
    inputs_per_result,
    refuses_nothing,
    same_layout,
)
from adrenoc.kernels.families.shared.typical import NotKnownError, Typical, TypicalRun


def typical_reduction(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return typical results of a reduction, of data that stands for many equal elements.

    A sum counts each element of the data as often as the tensor has such elements."""
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
    """Return typical results of a norm.

    The data has one pixel, so what is normed over other axes as well is taken to come to one; the
    norm's own factors and offsets then apply."""
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


def kept_by_reduction(roles: str, axes: Sequence[int] | None) -> str:
    """Return the letters that are left when a reduction drops `axes` (None: all)."""
    rank = len(roles)
    dropped = range(rank) if axes is None else [a % rank for a in axes]
    return "".join(role for axis, role in enumerate(roles) if axis not in dropped)


def _drop_reduced_axes(
    node: Node, tensors: Mapping[str, Tensor], source: Layout | None
) -> Layout | None:
    if source is not None and len(source.roles) != len(tensors[node.output].shape):
        kept = kept_by_reduction(source.roles, node.attrs["axis"])
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
        terms=inputs_per_result if numbers in (Numbers.SUMMED, Numbers.AVERAGED) else None,
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
