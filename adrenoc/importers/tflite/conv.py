"""Convolutions and products: data times constant weights, in quanta where both are integers.

Weights in integers with data in float ("dynamic range") are read as the real numbers that they
stand for.  LiteRT rounds the data to 8 bits there, row by row, to multiply integers: what comes
out here is closer to the model that was trained.

Source: TFLite operator reference.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.spatial import same_pads
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import QuantisedResult, Result, TfliteNode

_SAME = 0


def pads_of(
    node: TfliteNode,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Return the pads that SAME or VALID mean: all beginnings, then all ends."""
    padding = "SAME_UPPER" if node.option("Padding") == _SAME else "VALID"
    return same_pads(
        padding, None, extents=extents, kernel=kernel, strides=strides, dilations=dilations
    )


def _operands(node: TfliteNode, x: int, weight: int) -> tuple[relax.Expr, relax.Expr, Any]:
    """Return data and weights in one form, and the scale of their product (None: real numbers)."""
    data, weights = node.value(x), node.value(weight)
    if data.info.is_quantised and weights.info.is_quantised:
        # In floats, as LiteRT does: the last digit of a factor moves what lies half way.
        scale = np.float32(data.info.scale) * weights.info.scales
        if data.info.dtype == "int16":  # by its own kernels, and not by XNNPACK's
            scale = np.float64(data.info.scale) * weights.info.scales
        return data.expr, weights.expr, scale
    if weights.info.is_quantised and not data.info.is_quantised:
        key = (
            "weights from 8 bits as floats",
            "the data is float: their product is computed in float, which is more exact than "
            "rounding the data to 8 bits as LiteRT does",
        )
        node.emit.decisions.setdefault(key, []).append(node.results[0].name)
    return node.real(x), node.real(weight), None


def _finish(node: TfliteNode, total: relax.Expr, scale: Any, bias_index: int) -> Result:
    """Add bias and activation; `scale` is that of the product, for all or by channel."""
    total = node.emit(total)
    if node.has(bias_index):
        bias = node.value(bias_index).expr
        if scale is not None:
            value = constant_value(bias)
            if value is None:
                raise RefusedError("a computed bias of quantised data, expected a constant")
            bias = make_constant(value.astype(np.float32))
        elif not dtype_of(bias).startswith("float"):
            raise RefusedError(f"a bias of {dtype_of(bias)}, expected float as the data")
        else:
            bias = node.real(bias_index)
        total = total + bias
    if scale is None:
        return node.activate(total)
    return node.activate(_quanta(node, total, scale, bias_index))


def _quanta(node: TfliteNode, total: relax.Expr, scale: Any, bias_index: int) -> QuantisedResult:
    """Return sums of products; LiteRT adds up those of words in 64 bits, but where a bias has 32.
    Its fully connected layers scale such sums by all 31 bits of a multiplier."""
    words = node.results[0].dtype == "int16" and node.operator.kind != "FULLY_CONNECTED"
    short = node.has(bias_index) and node.info(bias_index).dtype == "int32"
    return QuantisedResult(expr=total, scale=scale, by_fifteen_bits=words and not short)


def _convolution(node: TfliteNode, axes: list[int], groups: int) -> Result:
    """Return a convolution whose filter's `axes` are those of HWIO. That of a depthwise one is [1,
    h, w, c * m]: m results in a row for each of c channels."""
    x, weight, scale = _operands(node, 0, 1)
    strides, dilations = node.steps("Stride{}"), node.steps("Dilation{}Factor")
    pads = pads_of(node, node.shape()[1:3], node.shape(1)[1:3], strides, dilations)
    total = relax.op.nn.conv2d(
        x,
        relax.op.permute_dims(weight, axes),
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=groups,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return _finish(node, total, scale, 2)


def compute_transposed_pads(
    node: TfliteNode,
    result: Sequence[int],
    source: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] = (1, 1, 1),
) -> tuple[list[int], list[int], list[int]]:
    """Return pads before and after, and what is added at the end, for each spatial axis."""
    begin, end, extra = [], [], []
    for axis, extent in enumerate(result):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        full = (source[axis] - 1) * strides[axis] + span
        before = 0
        if node.option("Padding") == _SAME:
            outputs = -(-extent // strides[axis])
            total = max((outputs - 1) * strides[axis] + span - extent, 0)
            before = total // 2
        after = full - before - extent
        begin.append(before)
        end.append(max(after, 0))
        extra.append(max(-after, 0))
    return begin, end, extra


def _transpose_conv(node: TfliteNode) -> Result:
    x, weight, scale = _operands(node, 2, 1)
    _out, *kernel, _ = node.shape(1)
    strides = node.steps("Stride{}")
    result = node.ints(0)
    begin, end, extra = compute_transposed_pads(
        node, result[1:3], node.shape(2)[1:3], kernel, strides
    )
    missing = [max(0, e - s + 1) for e, s in zip(extra, strides, strict=True)]
    total = relax.op.nn.conv2d_transpose(
        x,
        relax.op.permute_dims(weight, [3, 0, 1, 2]),  # OHWI to IOHW
        strides=strides,
        padding=[*begin, *end],
        output_padding=[e - m for e, m in zip(extra, missing, strict=True)],
        data_layout="NHWC",
        kernel_layout="IOHW",
    )
    if any(missing):
        total = relax.op.nn.pad(node.emit(total), [0, 0, 0, missing[0], 0, missing[1], 0, 0])
    return _finish(node, total, scale, 3)


def _conv3d(node: TfliteNode) -> Result:
    x, weight, scale = _operands(node, 0, 1)
    strides, dilations = node.steps("Stride{}", "DHW"), node.steps("Dilation{}Factor", "DHW")
    *kernel, per_group, _ = node.shape(1)
    shape = node.shape()
    pads = pads_of(node, shape[1:4], kernel, strides, dilations)
    total = relax.op.nn.conv3d(
        relax.op.permute_dims(x, [0, 4, 1, 2, 3]),
        relax.op.permute_dims(weight, [4, 3, 0, 1, 2]),
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=shape[4] // per_group,
    )
    total = relax.op.permute_dims(node.emit(total), [0, 2, 3, 4, 1])
    return _finish(node, total, scale, 2)


def _conv3d_transpose(node: TfliteNode) -> Result:
    x, weight, scale = _operands(node, 2, 1)
    strides, dilations = node.steps("Stride{}", "DHW"), node.steps("Dilation{}Factor", "DHW")
    *kernel, _, _ = node.shape(1)
    begin, end, extra = compute_transposed_pads(
        node, node.ints(0)[1:4], node.shape(2)[1:4], kernel, strides, dilations
    )
    if any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise RefusedError("an output larger than its windows reach")
    total = relax.op.nn.conv3d_transpose(
        relax.op.permute_dims(x, [0, 4, 1, 2, 3]),
        relax.op.permute_dims(weight, [4, 3, 0, 1, 2]),  # DHWOI to IODHW
        strides=strides,
        padding=[*begin, *end],
        output_padding=extra,
        dilation=dilations,
    )
    total = relax.op.permute_dims(node.emit(total), [0, 2, 3, 4, 1])
    return _finish(node, total, scale, 3)


def _fully_connected(node: TfliteNode) -> Result:
    """Return rows of the data, however they are arranged, times the weights [units, depth]."""
    x, weight, scale = _operands(node, 0, 1)
    units, depth = node.shape(1)
    shape = node.shape()
    keep = bool(node.option("KeepNumDims", False))
    rows = int(np.prod(shape)) // depth
    if not keep or shape[-1] != depth:
        x = relax.op.reshape(x, [rows, depth])
    total = relax.op.matmul(x, relax.op.permute_dims(weight, [1, 0]))
    result = _finish(node, total, scale, 2)
    wanted = [*shape[:-1], units] if keep else [rows, units]
    if not keep and tuple(node.results[0].shape) == (rows, units):
        return result
    return _reshape(node, result, wanted)


def _reshape(node: TfliteNode, result: Result, shape: Sequence[int]) -> Result:
    if isinstance(result, QuantisedResult):
        expr = relax.op.reshape(node.emit(result.expr), list(shape))
        return replace(result, expr=expr)
    return relax.op.reshape(node.emit(result), list(shape))


def _batch_matmul(node: TfliteNode) -> Result:
    a, b, scale = _operands(node, 0, 1)
    for index, option in ((0, "AdjX"), (1, "AdjY")):
        if node.option(option, False):
            rank = len(node.shape(index))
            axes = [*range(rank - 2), rank - 1, rank - 2]
            turned = relax.op.permute_dims((a, b)[index], axes)
            a, b = (turned, b) if index == 0 else (a, turned)
    total = node.emit(relax.op.matmul(a, b))
    return total if scale is None else _quanta(node, total, scale, 2)


CONV_OPS: dict[str, Convert] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": lambda node: _convolution(node, [1, 2, 3, 0], node.shape()[3] // node.shape(1)[3]),
    "CONV_3D": _conv3d,
    "CONV_3D_TRANSPOSE": _conv3d_transpose,
    "DEPTHWISE_CONV_2D": lambda node: _convolution(node, [1, 2, 0, 3], node.shape()[3]),
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transpose_conv,
}
