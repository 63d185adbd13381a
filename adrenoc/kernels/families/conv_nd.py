"""Convolutions of one and two dimensions, and transposed ones: their records, and which family's
rule computes each.

One of one dimension is one of two of a single row: there are no kernels of its own.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import Memory
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.conv_rules import conv_clocks, dense_conv
from adrenoc.kernels.families.conv_transpose import conv2d_transpose_rule
from adrenoc.kernels.families.depthwise import blocks_held, depthwise_rule
from adrenoc.kernels.families.matmul.gemv import FLATTENED, gemv_rule, suits_gemv
from adrenoc.kernels.families.shared.context import KernelCall, Rule, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    ConvWork,
    conv_geometry,
    conv_work,
    is_depthwise,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.operator import (
    ChannelSums,
    ChannelWeights,
    Counts,
    Fusion,
    Kind,
    Numbers,
    Operator,
    Refuses,
    TypicalRun,
    count_per_input_position,
    count_per_output_position,
    follow_letters,
    have_one_sign,
    letters_refused,
    makes_letters,
    middle,
    sums_of_terms,
    sums_over_taps,
    wants_letters,
    weights_of,
)


def channel_weights(graph: Graph, node: Node) -> ChannelWeights:
    """Return the weights of a convolution, by the letters of its attributes."""
    weights = graph.tensors[node.inputs[1]]
    return ChannelWeights(
        value=weights.value,
        shape=weights.shape,
        letters=str(node.attrs["kernel_layout"]),
        axis=str(node.attrs["out_layout"] or node.attrs["data_layout"]).index("C"),
        groups=int(node.attrs["groups"]),
        transposed="transpose" in node.op,
    )


def terms_of_convolution(graph: Graph, node: Node) -> int:
    """Return the products that each result adds up; of a transposed one, without strides."""
    weights = channel_weights(graph, node)
    outputs = weights.shape[weights.letters.index("O")]
    return math.prod(weights.shape) // (outputs * (weights.groups if weights.transposed else 1))


def conv2d_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a convolution by constant weights: dense, grouped or depthwise."""
    kernel_layout = str(node.attrs["kernel_layout"])
    geometry = conv_geometry(context.graph, node)
    oihw = partial(transpose_to_oihw, layout=kernel_layout)
    held = blocks_held(geometry.kernel[0] * geometry.kernel[1], context.limits)
    if is_depthwise(context.graph, node) and held:
        work = conv_work(context.graph, node, geometry, context.options)
        return depthwise_rule(context, node, work, oihw)
    vectors = geometry == ConvGeometry(kernel=(1, 1))
    if vectors and suits_gemv(context.graph.operand(node.output).extents):
        return gemv_rule(context, node, oihw)
    if node.prologue is None and covers_input(context.graph, node, geometry):
        context.log.add(node.name, "a product", "its kernel covers its whole input, once")
        roles = context.graph.operand(node.inputs[0]).roles.roles
        rows = partial(_rows_of, layout=kernel_layout, order=[r for r in roles if r in "CHW"])
        flat = replace(node, attrs={**node.attrs, FLATTENED: True})
        return gemv_rule(context, flat, rows)
    return dense_conv(context, node, "conv2d", geometry, oihw)


def covers_input(graph: Graph, node: Node, geometry: ConvGeometry) -> bool:
    """Return whether a convolution makes one pixel of an image, whose taps cover it once."""
    x, out = graph.operand(node.inputs[0]), graph.operand(node.output).extents
    return (
        x.memory in (Memory.TEXTURE, Memory.BLOCKED)
        and geometry.kernel == (x.extents.h, x.extents.w)
        and (geometry.groups, geometry.padding, geometry.dilation) == (1, (0, 0), (1, 1))
        and (x.extents.n, out.h, out.w) == (1, 1, 1)
    )


def _rows_of(weight: np.ndarray, *, layout: str, order: list[str]) -> np.ndarray:
    """Weights as those of a vector, [O, I * H * W, 1, 1], which has the elements of an image whose
    axes lie in this order."""
    planes = transpose_to_oihw(weight, layout)
    letters = [*order, *(letter for letter in "CHW" if letter not in order)]
    axes = [0, *(1 + "CHW".index(letter) for letter in letters)]
    return planes.transpose(axes).reshape(planes.shape[0], -1, 1, 1)


def typical_convolution(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return the sums of a convolution of any rank, transposed ones too, away from borders."""
    layout, by_channel = str(node.attrs["data_layout"]), channel_weights(run.graph, node)
    letters, groups, by_group = by_channel.letters, by_channel.groups, by_channel.split_by_group
    channels = run.graph.tensors[node.inputs[0]].shape[layout.index("C")]
    channel = middle(data, keep=layout.index("C")).reshape(len(data), -1)
    x = np.broadcast_to(channel, (len(data), channels)).reshape(len(data), groups, -1)
    weights = weights_of(run, node)
    taps = tuple(a for a, letter in enumerate(letters) if letter not in "OI")
    phases = math.prod(int(s) for s in node.attrs["strides"]) if by_channel.transposed else 1
    sums, squares = (by_group(found) / phases for found in sums_over_taps(weights, taps))
    made = sums_of_terms(
        np.einsum("pgi,gio->pgo", x, sums),
        np.einsum("pgi,gio->pgo", x * x, squares),
        alike=have_one_sign(weights),
    ).reshape(len(data), -1)
    shape = [1] * len(layout)
    shape[by_channel.axis] = -1
    return made.reshape([len(made), *shape])


def conv1d_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a convolution along W."""
    return conv2d_rule(context, lift_to_2d(node))


def conv1d_transpose_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a transposed convolution along W."""
    return conv2d_transpose_rule(context, lift_to_2d(node))


def lift_to_2d(node: Node) -> Node:
    """Return the node with the attributes of two dimensions."""
    left, right = node.attrs["padding"]
    lifted = {
        "strides": [1, *node.attrs["strides"]],
        "padding": [0, left, 0, right],
        "dilation": [1, *node.attrs["dilation"]],
    }
    return replace(node, attrs={**node.attrs, **lifted})


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
    """Refuse long strides: packed weights have a place for each tap of each phase."""
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


_FUSIONS = (Fusion.PROLOGUE, Fusion.IMAGE, Fusion.PAIR, Fusion.WINOGRAD)
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
        reads_often=True,
        follows_batch=follow_letters(_LETTERS),
        multiply_adds=multiply_adds,
        terms=terms_of_convolution,
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
