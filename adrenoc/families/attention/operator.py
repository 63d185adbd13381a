"""Attention: made by `fuse_attention` of scores, softmax and the mix of values."""

from __future__ import annotations

import math

from adrenoc.families.attention.attention_rule import attention_rule
from adrenoc.families.shared.operator import Kind, Numbers, Operator, refuses_nothing
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Layout, channel_at, default_layout

SOFTMAX_OPERATIONS = 5
"""An element: largest, subtract, exp, sum, divide."""


def _wants_layout(node: Node, position: int, shape: tuple[int, ...]) -> Layout | None:
    # An epilogue's operands come after those of the operator, and have no say.
    channel = dict(enumerate(node.attrs["channels"])).get(position)
    return None if channel is None else channel_at(channel, len(shape))


def _makes_layout(node: Node, shape: tuple[int, ...], _source: Layout | None) -> Layout | None:
    channel = node.attrs.get("out_channel", len(shape) - 1)
    return channel_at(channel, len(shape)) if shape else default_layout(shape)


def _multiply_adds(_graph: Graph, node: Node) -> int:
    (*heads, rows, depth), (*_, keys, _), (*_, channels) = (node.attrs[name] for name in "qkv")
    return math.prod(heads) * rows * keys * (depth + channels)


def _operations(_graph: Graph, node: Node) -> int:
    """Those of the softmax: a score for each query and key."""
    return SOFTMAX_OPERATIONS * math.prod(node.attrs["q"][:-1]) * int(node.attrs["v"][-2])


OPERATORS = (
    Operator(
        name="attention",
        kind=Kind.ATTENTION,
        numbers=Numbers.WEIGHTED,
        rule=attention_rule,
        relax="",
        refuses=refuses_nothing,
        wants_layout=_wants_layout,
        makes_layout=_makes_layout,
        keeps_axes=False,
        reads_often=True,
        needs_channel_only=True,
        follows_batch=None,
        multiply_adds=_multiply_adds,
        operations=_operations,
    ),
)
