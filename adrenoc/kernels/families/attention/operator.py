"""Attention: made by `fuse_attention` of scores, softmax and the mix of values."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import Layout, channel_at
from adrenoc.kernels.families.attention.attention_rule import attention_rule
from adrenoc.kernels.families.shared.counts import SOFTMAX_OPERATIONS
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Kind,
    Numbers,
    Operator,
    channel_of_result,
    refuses_nothing,
)
from adrenoc.kernels.families.shared.typical import TypicalRun, one_of


def _wants_layout(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
    # An epilogue's operands come after those of the operator, and have no say.
    channel = dict(enumerate(node.attrs["channels"])).get(position)
    rank = len(tensors[node.inputs[position]].shape)
    return None if channel is None else channel_at(channel, rank)


def _multiply_adds(_graph: Graph, node: Node) -> int:
    (*heads, rows, depth), (*_, keys, _), (*_, channels) = (node.attrs[name] for name in "qkv")
    return math.prod(heads) * rows * keys * (depth + channels)


def _operations(_graph: Graph, node: Node) -> int:
    """Those of the softmax: a score for each query and key."""
    return SOFTMAX_OPERATIONS * math.prod(node.attrs["q"][:-1]) * int(node.attrs["v"][-2])


def _terms(_graph: Graph, node: Node) -> int:
    """Return the values, one of each key."""
    return int(node.attrs["v"][-2])


def _typical(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return a mean of values: no larger than the largest."""
    sources = tuple(node.parts["v"].sources.values())
    largest = max(float(np.abs(run.numbers(name)).max()) for name in sources)
    shape = run.graph.tensors[node.output].shape
    return one_of(shape) * largest * abs(float(node.attrs["value_scale"]))


OPERATORS = (
    Operator(
        name="attention",
        kind=Kind.ATTENTION,
        numbers=Numbers.WEIGHTED,
        rule=attention_rule,
        relax="",
        refuses=refuses_nothing,
        wants_layout=_wants_layout,
        makes_layout=channel_of_result,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=True,
        needs_channel_only=True,
        follows_batch=None,
        multiply_adds=_multiply_adds,
        terms=_terms,
        operations=_operations,
        typical=_typical,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    ),
)
