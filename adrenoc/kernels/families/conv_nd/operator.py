"""Convolutions of one and two dimensions, and transposed ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.conv_tile import conv_clocks
from adrenoc.kernels.families.conv_nd.conv1d_rule import conv1d_rule, conv1d_transpose_rule
from adrenoc.kernels.families.conv_nd.conv2d_rule import conv2d_rule
from adrenoc.kernels.families.conv_nd.conv_channels import channel_weights, terms_of_convolution
from adrenoc.kernels.families.conv_nd.conv_typical import typical_convolution
from adrenoc.kernels.families.conv_transpose.conv2d_transpose_rule import conv2d_transpose_rule
from adrenoc.kernels.families.shared.batch import follow_letters
from adrenoc.kernels.families.shared.channel_sums import ChannelSums
from adrenoc.kernels.families.shared.context import Rule
from adrenoc.kernels.families.shared.conv_geometry import conv_geometry, is_depthwise
from adrenoc.kernels.families.shared.conv_work import ConvWork, conv_work
from adrenoc.kernels.families.shared.counts import (
    count_per_input_position,
    count_per_output_position,
)
from adrenoc.kernels.families.shared.lettered import letters_refused, makes_letters, wants_letters
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Counts,
    Fusion,
    Kind,
    Numbers,
    Operator,
    Refuses,
    no_operations,
)

MOST_EMPTY_PLACES = 4096
"""The places of a transposed convolution's weights, zeros between taps included, that are always
allowed: strides of 32 in both axes pass, with any kernel."""
_LETTERS = "data_layout"


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    weight = tensors[node.inputs[1]]
    if weight.value is None:
        return f"its weights {weight.name} are computed, expected a constant"
    return letters_refused(node, _LETTERS)


def _refuses_transposed(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
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
    return _refuses(node, tensors)


def _channel_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork | None:
    if is_depthwise(graph, node):
        return None
    return conv_work(graph, node, conv_geometry(graph, node), options)


_FUSIONS = (
    Fusion.PROLOGUE,
    Fusion.IMAGE,
    Fusion.SHUFFLE,
    Fusion.PAIR,
    Fusion.WINOGRAD,
    Fusion.EXCITE,
)
_CHANNEL_SUMS = ChannelSums(convolutions=1, work=_channel_work, clocks=conv_clocks, in_float=True)


def _convolution(
    name: str,
    rule: Rule,
    refuses: Refuses,
    multiply_adds: Counts,
    fusions: Iterable[Fusion] = (),
    channel_sums: ChannelSums | None = None,
) -> Operator:
    return Operator(
        name=name,
        kind=Kind.CONVOLUTION,
        numbers=Numbers.WEIGHTED,
        rule=rule,
        relax=f"relax.nn.{name}",
        refuses=refuses,
        wants_layout=wants_letters(_LETTERS),
        makes_layout=makes_letters(_LETTERS),
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=True,
        needs_channel_only=False,
        follows_batch=follow_letters(_LETTERS),
        multiply_adds=multiply_adds,
        terms=terms_of_convolution,
        operations=no_operations,
        typical=typical_convolution,
        fusions=frozenset(fusions),
        channel_weights=channel_weights,
        channel_sums=channel_sums,
    )


OPERATORS = (
    _convolution("conv1d", conv1d_rule, _refuses, count_per_output_position),
    _convolution(
        "conv2d", conv2d_rule, _refuses, count_per_output_position, _FUSIONS, _CHANNEL_SUMS
    ),
    _convolution(
        "conv1d_transpose", conv1d_transpose_rule, _refuses_transposed, count_per_input_position
    ),
    _convolution(
        "conv2d_transpose", conv2d_transpose_rule, _refuses_transposed, count_per_input_position
    ),
)
