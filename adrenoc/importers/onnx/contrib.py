"""Operators of onnxruntime's own domain that exporters and optimisers emit, in standard ones.

Before -> after:
    y = com.microsoft.QuickGelu(x)      y = x * Sigmoid(1.702 * x)

Source: onnxruntime's ContribOperators reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from adrenoc.base.refused import RefusedError
from adrenoc.importers.imported import CONVERTER_ERRORS, quote
from adrenoc.importers.onnx.attention import ATTENTION
from adrenoc.importers.onnx.cached import CACHED
from adrenoc.importers.onnx.contrib_quantised import QUANTISED
from adrenoc.importers.onnx.experts import EXPERTS
from adrenoc.importers.onnx.graph import MICROSOFT, OnnxGraph
from adrenoc.importers.onnx.n_bits import N_BITS_REWRITES
from adrenoc.importers.onnx.prepare import is_defined
from adrenoc.importers.onnx.recurrent_layers import RECURRENT
from adrenoc.importers.onnx.writer import UnknownTypeError, Writer

INVERSE = "adrenoc.Inverse"


def _gelu_of(write: Writer, x: str, out: str) -> None:
    """x / 2 * (1 + erf(x / sqrt 2))."""
    inner = write("Erf", write("Mul", x, write.constant(math.sqrt(0.5))))
    grown = write("Add", inner, write.constant(1.0))
    write("Mul", write("Mul", x, write.constant(0.5)), grown, out=out)


def _gelu(write: Writer) -> None:
    _gelu_of(write, write.input(0), write.result)


def _bias_gelu(write: Writer) -> None:
    _gelu_of(write, write("Add", write.input(0), write.input(1)), write.result)


def _quick_gelu(write: Writer) -> None:
    x = write.input(0)
    scaled = write("Mul", x, write.constant(write.number("alpha", 1.702)))
    write("Mul", x, write("Sigmoid", scaled), out=write.result)


def _fast_gelu(write: Writer) -> None:
    x = write.input(0)
    if write.input(1):
        x = write("Add", x, write.input(1))
    write.fast_gelu(x, out=write.result)


def _activate(write: Writer, x: str) -> None:
    params: Sequence[float] = write.attrs.get("activation_params", ())
    write.activate(write.text("activation"), x, params, out=write.result)


def _rewrite_fused_conv(write: Writer) -> None:
    own = {"activation", "activation_params"}
    kept = {k: v for k, v in write.attrs.items() if k not in own}
    result = write("Conv", *[n for n in write.node.input[:3] if n], **kept)
    if write.input(3):
        result = write("Add", result, write.input(3))
    _activate(write, result)


def _rewrite_fused_gemm(write: Writer) -> None:
    kept = {k: v for k, v in write.attrs.items() if not k.startswith("activation")}
    result = write("Gemm", *write.node.input, **kept)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    params = [write.number(name, 0.0) for name in names if name in write.attrs]
    write.activate(write.text("activation"), result, params, out=write.result)


def _rewrite_fused_matmul(write: Writer) -> None:
    operands = []
    for index, side in enumerate("AB"):
        name = write.input(index)
        order = list(range(len(write.shape(name))))
        if write.attrs.get(f"transBatch{side}", 0):
            # The batch dimensions are those from 1 to the last but one: the first moves there.
            order = [*order[1:-1], order[0], order[-1]]
        if write.attrs.get(f"trans{side}", 0):
            order[-2:] = order[:-3:-1]
        moved = order != sorted(order)
        operands.append(write("Transpose", name, perm=order) if moved else name)
    alpha = write.number("alpha", 1.0)
    product = write("MatMul", *operands, out=write.result if alpha == 1.0 else "")
    if alpha != 1.0:
        write("Mul", product, write.constant(alpha), out=write.result)


def _add_skip(write: Writer, bias: int) -> str:
    """Return the sum of data, skip connection and bias, which may be wanted as an output too."""
    x, skip = write.input(0), write.input(1)
    if len(write.shape(skip)) == len(write.shape(x)) - 1:
        skip = write.reshape(skip, 1, *write.shape(skip))
    if any(write.output(index) for index in (1, 2)):
        raise RefusedError("mean and deviation are read, which are for training")
    wanted = write.output(3)
    if not write.input(bias):
        return write("Add", x, skip, out=wanted)
    return write("Add", write("Add", x, skip), write.input(bias), out=wanted)


def _layer_norm(write: Writer, x: str, scale: str, offset: str, out: str) -> None:
    operands = [x, scale] + ([offset] if offset else [])
    epsilon = write.number("epsilon", 1e-12)
    write.like("LayerNormalization", *operands, axis=-1, epsilon=epsilon, out=out)


def _skip_layer_normalization(write: Writer) -> None:
    total = _add_skip(write, 4)
    _layer_norm(write, total, write.input(2), write.input(3), write.result)


def _skip_simplified(write: Writer) -> None:
    total = _add_skip(write, 3)
    epsilon = write.number("epsilon", 1e-12)
    write.like(
        "RMSNormalization", total, write.input(2), axis=-1, epsilon=epsilon, out=write.result
    )


def _rewrite_simplified_norm(write: Writer) -> None:
    if write.output(1):
        raise RefusedError("the deviation is read, which is for training")
    axis, epsilon = int(write.number("axis", -1)), write.number("epsilon", 1e-5)
    write.like(
        "RMSNormalization", *write.node.input[:2], axis=axis, epsilon=epsilon, out=write.result
    )


def _embed_layer_normalization(write: Writer) -> None:
    ids, segments, words, positions, parts, scale, offset, mask = (
        write.input(index) for index in range(8)
    )
    length = write.shape(ids)[1]
    total = write("Gather", words, ids, axis=0)
    if write.input(8):
        place = write("Gather", positions, write.input(8), axis=0)
    else:
        place = write.slice(positions, 0, length, 0)
    total = write("Add", total, place)
    if segments:
        total = write("Add", total, write("Gather", parts, segments, axis=0))
    if write.output(2):
        write("Identity", total, out=write.output(2))
    operands = [total, scale] + ([offset] if offset else [])
    epsilon = write.number("epsilon", 1e-12)
    write("LayerNormalization", *operands, axis=-1, epsilon=epsilon, out=write.result)
    if write.output(1):
        _mask_lengths(write, mask, write.shape(ids)[0])


def _mask_lengths(write: Writer, mask: str, batch: int) -> None:
    """The number of words of each sentence, from a mask of ones and zeros."""
    if not mask:
        write("Identity", write.array(np.zeros(batch, np.int32)), out=write.output(1))
    else:
        write.total(mask, 1, write.output(1))


def _distances(write: Writer) -> None:
    """Of each row of the one matrix to each row of the other, as Gaussian processes read them."""
    a, b = write.input(0), write.input(1)
    (rows, width), (columns, _) = write.shape(a), write.shape(b)
    metric = write.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise RefusedError(f"metric {metric}, expected euclidean or sqeuclidean")
    spread = (write.reshape(a, rows, 1, width), write.reshape(b, 1, columns, width))
    difference = write("Sub", *spread)
    square = write("Mul", difference, difference)
    if metric == "sqeuclidean":
        write.total(square, 2, write.result)
    else:
        write("Sqrt", write.total(square, 2), out=write.result)


def _expand_dims(write: Writer) -> None:
    """Give a tensor one more axis, of one element, before the axis that a constant names."""
    axis = write.value(write.input(1))
    if axis is None:
        raise RefusedError("its axis is no constant")
    shape = list(write.shape(write.input(0)))
    place = int(axis.reshape(-1)[0])
    if not -len(shape) - 1 <= place <= len(shape):
        raise RefusedError(f"axis {place} of a result with {len(shape) + 1} axes")
    shape.insert(place % (len(shape) + 1), 1)
    write.reshape(write.input(0), *shape, out=write.result)


def _inverse(write: Writer) -> None:
    """An operator of our own, which a family computes."""
    x = write.input(0)
    shape = write.shape(x)
    if len(shape) < 2 or shape[-2] != shape[-1]:
        raise RefusedError(f"of {list(shape)}, expected matrices of as many rows as columns")
    write.own(INVERSE, x, shape=shape, out=write.result, like=x)


def _standard(write: Writer) -> None:
    """An operator that the standard has by the same name and form."""
    write(write.node.op_type, *write.node.input, out=write.result, **write.attrs)


REWRITES: dict[str, Callable[[Writer], None]] = {
    **ATTENTION,
    **CACHED,
    **QUANTISED,
    **EXPERTS,
    **RECURRENT,
    **N_BITS_REWRITES,
    "BiasGelu": _bias_gelu,
    "CDist": _distances,
    "DequantizeLinear": _standard,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "ExpandDims": _expand_dims,
    "FastGelu": _fast_gelu,
    "FusedConv": _rewrite_fused_conv,
    "FusedGemm": _rewrite_fused_gemm,
    "FusedMatMul": _rewrite_fused_matmul,
    "GatherND": _standard,
    "Gelu": _gelu,
    "Inverse": _inverse,
    "QuantizeLinear": _standard,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _rewrite_simplified_norm,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified,
    "TransposeMatMul": _rewrite_fused_matmul,
    "Trilu": _standard,
}

_ALL_EXPERTS = "each token reads the weights of all experts, of which most have no share in it"
_NOT_ROUNDED = (
    "its data and states stay floats, where onnxruntime rounds them to bytes at each step: results "
    "differ by that rounding, some thousandths of their range"
)
WHAT_IT_TAKES = {"DynamicQuantizeLSTM": _NOT_ROUNDED, "MoE": _ALL_EXPERTS, "QMoE": _ALL_EXPERTS}
"""Operator -> what is to be known of its standard form: what it costs, how far off it is."""

_IN_STANDARD_DOMAIN = ("CausalConvWithState", "LinearAttention", "SimplifiedLayerNormalization")
"""Operators that onnxruntime registers under the standard domain, which does not have them, and
those that the standard took over from opset 27 on, by the same inputs."""


def rewrite_contrib(graph: OnnxGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return the standard nodes that take the place of a node of onnxruntime's domain.

    None where there are none; `graph.refusals` then says why, if it is for how the node is used.
    """
    ours = node.domain == MICROSOFT or node.op_type in _IN_STANDARD_DOMAIN
    rewrite = REWRITES.get(node.op_type) if ours else None
    if rewrite is None:
        return None
    writer = Writer(node, graph)
    try:
        rewrite(writer)
    except UnknownTypeError as error:
        graph.refusals[writer.result] = str(error)
        graph.untold.add(writer.result)
        return None
    except RefusedError as error:
        if not is_defined(graph, node):
            graph.refusals[writer.result] = str(error)
        return None
    except CONVERTER_ERRORS as error:  # operands of other ranks, sizes that do not fit
        graph.refusals[writer.result] = quote(error)
        return None
    return writer.nodes
