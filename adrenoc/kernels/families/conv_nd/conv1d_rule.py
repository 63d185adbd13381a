"""Rules for one-dimensional convolutions: two-dimensional ones of one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.conv_nd.conv2d_rule import conv2d_rule
from adrenoc.kernels.families.conv_transpose.conv2d_transpose_rule import conv2d_transpose_rule
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext


def conv1d_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a convolution along W."""
    return conv2d_rule(context, lift_to_2d(node))


def conv1d_transpose_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a transposed convolution along W."""
    return conv2d_transpose_rule(context, lift_to_2d(node))


def lift_to_2d(node: Node) -> Node:
    """Return the node with the attributes of two dimensions."""
    return replace(node, attrs=_lift_attrs_to_2d(node.attrs))


def _lift_attrs_to_2d(attrs: Mapping[str, Any]) -> dict[str, Any]:
    left, right = attrs["padding"]
    return {
        **attrs,
        "strides": [1, *attrs["strides"]],
        "padding": [0, left, 0, right],
        "dilation": [1, *attrs["dilation"]],
    }
