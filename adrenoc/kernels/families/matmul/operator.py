"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import Layout, channels_last, rows_along_w
from adrenoc.kernels.families.matmul.matmul_rule import matmul_rule
from adrenoc.kernels.families.matmul.matmul_typical import typical_product
from adrenoc.kernels.families.shared.batch import Along, Batch
from adrenoc.kernels.families.shared.channel_weights import ChannelWeights
from adrenoc.kernels.families.shared.counts import size_of
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Fusion,
    Kind,
    Numbers,
    Operator,
    channel_of_result,
    no_operations,
)
from adrenoc.kernels.families.shared.row_product import read_form


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    a, b = (tensors[name] for name in node.inputs[:2])
    if len(a.shape) > 4 or len(b.shape) > 4:
        return f"operands of rank {len(a.shape)} and {len(b.shape)}, expected at most 4"
    if b.value is not None and len(b.shape) == 2:
        return None if a.value is None else "both operands are constants"
    if len(a.shape) < 2 or len(b.shape) < 2:
        return "an operand is a vector"
    short, long = sorted((a.shape[:-2], b.shape[:-2]), key=len)
    if len(short) != len(long) and math.prod(short) != 1:
        return f"batches {a.shape[:-2]} and {b.shape[:-2]} of different rank"
    return None


def _wants_layout(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
    left, right = (tensors[name].shape for name in node.inputs[:2])
    if position > 1:
        return None
    if position == 0 and len(right) == len("IO"):
        return rows_along_w(left)
    return channels_last((len(left), len(right))[position])


def _makes_layout(
    node: Node, tensors: Mapping[str, Tensor], source: Layout | None
) -> Layout | None:
    if len(tensors[node.inputs[1]].shape) == len("IO") and "out_channel" not in node.attrs:
        return rows_along_w(tensors[node.output].shape)
    return channel_of_result(node, tensors, source)


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    rank = len(batch.shape(node.output))
    found = set()
    for position, name in enumerate(node.inputs[:2]):
        along = batch.along.get(name)
        if along is None:
            continue
        own = len(batch.shape(name))
        summed = own - 1 if position == 0 or own == 1 else own - 2
        if along.axis == summed:
            return None
        found.add(Along(along.axis + rank - own, along.factor))
    return found.pop() if len(found) == 1 else None


def _multiply_adds(graph: Graph, node: Node) -> int:
    return size_of(graph, node.output) * _terms(graph, node) * len(read_form(node).matrices)


def _terms(graph: Graph, node: Node) -> int:
    # The depth is that of the right operand: the left one can be an image, read as a vector.
    right = graph.tensors[node.inputs[1]].shape
    return right[max(len(right) - 2, 0)]


def _channel_weights(graph: Graph, node: Node) -> ChannelWeights:
    weights = graph.tensors[node.inputs[1]]
    return ChannelWeights(
        value=weights.value,
        shape=weights.shape,
        letters="IO".rjust(len(weights.shape), "N"),
        axis=len(graph.tensors[node.output].shape) - 1,
    )


OPERATORS = (
    Operator(
        name="matmul",
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=matmul_rule,
        relax="relax.matmul",
        refuses=_refuses,
        wants_layout=_wants_layout,
        makes_layout=_makes_layout,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=True,
        needs_channel_only=False,
        follows_batch=_follows_batch,
        multiply_adds=_multiply_adds,
        terms=_terms,
        operations=no_operations,
        typical=typical_product,
        fusions=frozenset((Fusion.ATTENTION, Fusion.FLATTENED)),
        channel_weights=_channel_weights,
        channel_sums=None,
    ),
)
