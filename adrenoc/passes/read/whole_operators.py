"""The operators that stay whole, and the cases of them that do not.

A whole operator keeps its attributes and has a schedule rule.  A case that no rule covers is
refused with a reason; it is then lowered to a plain loop nest like any other operator, which is
slower and just as right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adrenoc.families.pool.pool_rule import pool_geometry
from adrenoc.ir.graph import Node, Tensor
from adrenoc.ir.layout import LANES, default_layout

MOST_EMPTY_PLACES = 4096
"""Of a transposed convolution's weights: strides of 32 in both axes pass, with any kernel."""

Refuses = Callable[[Node, Mapping[str, Tensor]], "str | None"]
"""Gives the reason why no rule covers a node, None where one does."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The op of the planning graph, and what its rule does not cover."""

    op: str
    refuses: Refuses


def refusal(node: Node, whole: Whole, tensors: Mapping[str, Tensor]) -> str | None:
    """Why a node must be a loop nest; None where it can stay whole."""
    for position, name in enumerate((*node.inputs, node.output)):
        tensor = tensors[name]
        if not tensor.is_float:
            return f"{name} is {tensor.dtype}, expected float"
        packed = tensor.value is not None and position > 0  # as its reader wants it
        if not packed and default_layout(tensor.shape) is None:
            return f"{name} of shape {tensor.shape} has too many extents above one"
    return whole.refuses(node, tensors)


def _never(_node: Node, _tensors: Mapping[str, Tensor]) -> None:
    return None


def _convolution(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    weight = tensors[node.inputs[1]]
    if weight.value is None:
        return f"its weights {weight.name} are computed, expected a constant"
    return _letters(node, "data_layout", node.attrs["data_layout"])


def _transposed(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    """Its packed weights have a place for each tap of each phase, most empty for long strides."""
    shape, layout = tensors[node.inputs[1]].shape, str(node.attrs["kernel_layout"])
    kernel = [e for e, letter in zip(shape, layout, strict=True) if letter in "DHW"]
    strides, dilation = node.attrs["strides"], node.attrs["dilation"]
    spans = [
        max(int(s), (k - 1) * int(d) + 1)
        for k, s, d in zip(kernel, strides[-len(kernel) :], dilation[-len(kernel) :], strict=True)
    ]
    places, taps = math.prod(spans), math.prod(kernel)
    if places > max(MOST_EMPTY_PLACES, 4 * taps):
        return f"{taps} taps lie in {places} places, expected up to {MOST_EMPTY_PLACES}"
    return _convolution(node, tensors)


def _letters(node: Node, key: str, layout: Any) -> str | None:
    allowed = ("NCHW", "NHWC", "NCW", "NWC")
    out = str(node.attrs["out_layout"] or layout)
    if str(layout) not in allowed or out not in allowed:
        return f"{key} {layout} to {out}, expected one of {', '.join(allowed)}"
    return None


def _matmul(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
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


def _pool(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    layout = str(node.attrs["layout"])
    reason = _letters(node, "layout", layout)
    if reason is not None:
        return reason
    geometry = pool_geometry(node.attrs)
    if node.attrs["ceil_mode"] and geometry.count_padding:
        return "ceil_mode with count_include_pad: the taps that count differ by border"
    source, result = tensors[node.inputs[0]].shape, tensors[node.output].shape
    for letter, window in (("H", geometry.rows), ("W", geometry.columns)):
        axis = layout.find(letter)
        if axis >= 0 and not window.never_empty(result[axis], source[axis]):
            return f"a window along {letter} lies outside of the data"
    return None


def _adaptive_pool(node: Node, _tensors: Mapping[str, Tensor]) -> str | None:
    return _letters(node, "layout", node.attrs["layout"])


def _norm(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    for name in node.inputs[1:]:
        if tensors[name].value is None:
            return f"its factor or offset {name} is computed, expected a constant"
    return None


def _group_norm(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    shape = tensors[node.inputs[0]].shape
    channel = int(node.attrs["channel_axis"]) % len(shape)
    groups = int(node.attrs["num_groups"])
    per_group = shape[channel] // groups
    if groups not in (1, shape[channel]) and per_group % LANES:
        return f"{per_group} channels a group, expected a multiple of {LANES}"
    return _norm(node, tensors)


WHOLE: dict[str, Whole] = {
    "relax.nn.conv1d": Whole(op="conv1d", refuses=_convolution),
    "relax.nn.conv1d_transpose": Whole(op="conv1d_transpose", refuses=_transposed),
    "relax.nn.conv2d": Whole(op="conv2d", refuses=_convolution),
    "relax.nn.conv2d_transpose": Whole(op="conv2d_transpose", refuses=_transposed),
    "relax.matmul": Whole(op="matmul", refuses=_matmul),
    "relax.nn.avg_pool1d": Whole(op="avg_pool1d", refuses=_pool),
    "relax.nn.avg_pool2d": Whole(op="avg_pool2d", refuses=_pool),
    "relax.nn.max_pool1d": Whole(op="max_pool1d", refuses=_pool),
    "relax.nn.max_pool2d": Whole(op="max_pool2d", refuses=_pool),
    "relax.nn.adaptive_avg_pool2d": Whole(op="adaptive_avg_pool2d", refuses=_adaptive_pool),
    "relax.max": Whole(op="max", refuses=_never),
    "relax.mean": Whole(op="mean", refuses=_never),
    "relax.min": Whole(op="min", refuses=_never),
    "relax.prod": Whole(op="prod", refuses=_never),
    "relax.sum": Whole(op="sum", refuses=_never),
    "relax.nn.softmax": Whole(op="softmax", refuses=_never),
    "relax.nn.log_softmax": Whole(op="log_softmax", refuses=_never),
    "relax.nn.group_norm": Whole(op="group_norm", refuses=_group_norm),
    "relax.nn.instance_norm": Whole(op="instance_norm", refuses=_norm),
    "relax.nn.layer_norm": Whole(op="layer_norm", refuses=_norm),
    "relax.nn.rms_norm": Whole(op="rms_norm", refuses=_norm),
}
"""Relax operator -> how it stays whole."""
