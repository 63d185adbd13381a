"""Reductions, softmax and norms: what goes along whole axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adrenoc.ir.graph import Node, Tensor
from adrenoc.ir.layout import LANES, Layout
from adrenoc.kernels.families.reduce.norm_rule import norm_rule
from adrenoc.kernels.families.reduce.reduce_rule import reduce_rule
from adrenoc.kernels.families.reduce.reduce_typical import (
    typical_norm,
    typical_reduction,
    typical_softmax,
)
from adrenoc.kernels.families.reduce.softmax_rule import softmax_rule
from adrenoc.kernels.families.shared.batch import Along, Batch, FollowsBatch
from adrenoc.kernels.families.shared.context import Rule
from adrenoc.kernels.families.shared.counts import (
    SOFTMAX_OPERATIONS,
    count_per_input_element,
    inputs_per_result,
)
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Counts,
    Kind,
    MakesLayout,
    Numbers,
    Operator,
    Refuses,
    any_layout,
    refuses_nothing,
    same_layout,
)
from adrenoc.kernels.families.shared.typical import Typical

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
        wants_layout=any_layout,
        makes_layout=makes_layout,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=not plain,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=follows_batch,
        multiply_adds=None,
        terms=inputs_per_result if numbers in (Numbers.SUMMED, Numbers.AVERAGED) else None,
        operations=operations,
        typical=typical,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
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
