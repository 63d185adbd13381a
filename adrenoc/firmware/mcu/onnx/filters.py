"""Convolutions, products with matrices, pools and softmax of quantised ONNX models, as operators of
integers; softmax computes in float32, as onnxruntime's kernel for bytes does."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.network import split_groups, spread_axis
from adrenoc.firmware.mcu.onnx.context import (
    MEAN,
    TRANSPOSED,
    WEIGHTS_AXIS,
    OnnxContext,
    Translation,
    float_rule,
    options,
)

_MIDDLE = 128


def _weights(made: OnnxContext, node: onnx.NodeProto, index: int) -> np.ndarray:
    """Return weights of bytes with a sign, and a zero point of zero."""
    weights = made.constant(node, index)
    zeros = made.constant(node, index + 2).reshape(-1).astype(np.int64)
    if weights.dtype == np.uint8 and (zeros == _MIDDLE).all():
        return (weights.astype(np.int16) - _MIDDLE).astype(np.int8)
    if weights.dtype != np.int8 or zeros.any():
        raise RefusedError("weights with a zero point")
    return weights


def _rule(made: OnnxContext, node: onnx.NodeProto, result: int, last: int) -> op.Requantise:
    """Return factors of a product: scales at 1 and at 4, over that of the result."""
    scales = made.constant(node, 4).reshape(-1).astype(np.float32)
    reals = made.quanta(node, 1)[0] * scales / made.quanta(node, last)[0]
    return float_rule(reals, made.tensors[result].zero)


def _spread(rule: op.Requantise, channels: int) -> op.Requantise:
    if rule.reals.size not in (1, channels):
        raise RefusedError(f"{rule.reals.size} scales for {channels} channels")
    return replace(rule, reals=np.broadcast_to(rule.reals, channels).copy())


def _window(node: onnx.NodeProto, kernel: Sequence[int], shape: tuple[int, ...]) -> op.Window:
    given: dict[str, Any] = options(node)
    auto = given.get("auto_pad", b"NOTSET")
    pads = [int(p) for p in given.get("pads", (0, 0, 0, 0))]
    strides = [int(s) for s in given.get("strides", (1, 1))]
    dilations = [int(d) for d in given.get("dilations", (1, 1))]
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        for axis in (0, 1):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            have = shape[2 + axis]
            whole = max(0, (-(-have // strides[axis]) - 1) * strides[axis] + reach - have)
            pads[axis] = whole // 2 if auto == b"SAME_UPPER" else whole - whole // 2
    return op.Window(
        kernel=(kernel[0], kernel[1]),
        strides=(strides[0], strides[1]),
        dilations=(dilations[0], dilations[1]),
        top=pads[0],
        left=pads[1],
    )


def _filter_parts(
    made: OnnxContext, source: int, result: int, rule: op.Requantise, bias: np.ndarray | None = None
) -> dict[str, Any]:
    """Return what a filter has beside its weights and its window."""
    return {
        "source": source,
        "result": result,
        "bias": (np.zeros(rule.reals.size) if bias is None else bias).astype(np.int64),
        "zero_in": made.tensors[source].zero,
        "requantise": rule,
    }


def _convolution(made: OnnxContext, node: onnx.NodeProto) -> None:
    weights = _weights(made, node, 3)
    shape = made.shape(node.input[0])
    if weights.ndim != 4 or shape[0] != 1:
        raise RefusedError(f"an input of {list(shape)}, expected a batch of one image")
    channels, depth, *kernel = weights.shape
    groups = int(options(node).get("group", 1))
    source, result = made.data(node, 0), made.result(node, 6)
    rule = _spread(_rule(made, node, result, 6), channels)
    bias = made.constant(node, 8) if made.given(node, 8) else None
    parts = _filter_parts(made, source, result, rule, bias)
    parts["window"] = _window(node, kernel, shape)
    if groups == shape[1] and depth == 1 and groups > 1:
        made.operators.append(
            op.Depthwise(weights=weights[:, 0].transpose(1, 2, 0).copy(), **parts)
        )
        return
    whole = op.Convolution(weights=weights.transpose(0, 2, 3, 1).copy(), **parts)
    if groups == 1:
        made.operators.append(whole)
        return
    tensors = made.tensors[source], made.tensors[result]
    made.operators += split_groups(whole, *tensors, made.add_tensor)


def _translate_transposed(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Translate a transposed convolution between conversions: inputs as of QLinearConv."""
    weights, given = _weights(made, node, 3), options(node)
    shape = made.shape(node.input[0])
    plain = given.get("auto_pad", b"NOTSET") == b"NOTSET" and not given.get("output_shape")
    dilated = any(int(d) != 1 for d in given.get("dilations", (1, 1)))
    if weights.ndim != 4 or shape[0] != 1 or int(given.get("group", 1)) != 1:
        raise RefusedError(f"an input of {list(shape)}, expected one image in one group")
    if dilated or not plain:
        raise RefusedError("a transposed convolution by dilations, or by its output's shape")
    _, channels, kh, kw = weights.shape
    strides = [int(s) for s in given.get("strides", (1, 1))]
    pads = [int(p) for p in given.get("pads", (0, 0))]
    source, result = made.data(node, 0), made.result(node, 6)
    rule = _rule(made, node, result, 6)
    if rule.reals.size > 1 and int(given.get(WEIGHTS_AXIS, 1)) != 1:
        raise RefusedError("scales of weights along the channels that are read")
    bias = made.constant(node, 8) if made.given(node, 8) else None
    extents = made.tensors[source].shape[1:3], made.tensors[result].shape[1:3]
    axes = [
        spread_axis(have, want, taps, stride, pad)
        for have, want, taps, stride, pad in zip(*extents, (kh, kw), strides, pads[:2], strict=True)
    ]
    read = made.spread(source, (axes[0][1], axes[1][1]))
    made.labels.append(node.op_type)
    parts = _filter_parts(made, read, result, _spread(rule, channels), bias)
    turned = np.ascontiguousarray(weights.transpose(1, 2, 3, 0)[:, ::-1, ::-1])
    window = op.Window(kernel=(kh, kw), top=axes[0][0], left=axes[1][0])
    made.operators.append(op.Convolution(weights=turned, window=window, **parts))


def _product(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Translate QGemm, and QLinearMatMul with a constant matrix."""
    given = options(node)
    weights = _weights(made, node, 3)
    if weights.ndim != 2 or int(given.get("transA", 0)):
        raise RefusedError("a product that is not rows by a matrix")
    rows = weights if int(given.get("transB", 0)) else weights.T
    channels, depth = rows.shape
    bias, last = None, 6
    if node.op_type == "QGemm":
        if float(given.get("alpha", 1.0)) != 1.0 or len(node.input) < 9:
            raise RefusedError("a product whose result is not of bytes, or scaled")
        last = 7
        if node.input[6]:
            bias = np.broadcast_to(made.constant(node, 6).reshape(-1), channels)
    source = made.channels_first(made.data(node, 0))
    if made.tensors[source].shape[-1] != depth:
        raise RefusedError(f"rows of {made.tensors[source].shape[-1]} numbers by {depth}")
    result = made.result(node, last)
    rule = _spread(_rule(made, node, result, last), channels)
    if len(made.tensors[result].shape) == 4:
        raise RefusedError("a product of four axes")
    made.operators.append(
        op.Convolution(
            weights=np.ascontiguousarray(rows).reshape(channels, 1, 1, depth),
            window=op.Window(kernel=(1, 1)),
            **_filter_parts(made, source, result, rule, bias),
        )
    )


def _mean(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Translate a mean over all of an image, between conversions."""
    shape, given = made.shape(node.input[0]), options(node)
    listed = made.constant(node, 5) if len(node.input) > 5 else given.get("axes", ())
    axes = sorted({int(a) % len(shape) for a in np.asarray(listed).reshape(-1)})
    if len(shape) != 4 or axes != [2, 3]:
        raise RefusedError(f"axes {axes} of {list(shape)}, expected those of an image")
    _global_average(made, node)


def _global_average(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Translate to a depthwise window of ones over all of the image."""
    if int(options(node).get("channels_last", 0)):
        raise RefusedError("channels at the end")
    n, channels, height, width = made.shape(node.input[0])
    if n != 1:
        raise RefusedError(f"a batch of {n}")
    real = made.quanta(node, 1)[0] / (made.quanta(node, 3)[0] * np.float32(height * width))
    source, result = made.data(node, 0), made.result(node, 3)
    rule = float_rule(np.full(channels, real), made.tensors[result].zero)
    made.operators.append(
        op.Depthwise(
            weights=np.ones((height, width, channels), np.int8),
            window=op.Window(kernel=(height, width)),
            **_filter_parts(made, source, result, rule),
        )
    )


def _pool_window(made: OnnxContext, node: onnx.NodeProto, *, other: bool) -> op.Window:
    """Return the window of a pool; `other`: it has outputs or options that no kernel has."""
    given = options(node)
    kernel = [int(k) for k in given["kernel_shape"]]
    shape = made.shape(node.input[0])
    dilated = any(int(d) != 1 for d in given.get("dilations", (1, 1)))
    if len(kernel) != 2 or shape[0] != 1 or dilated or other:
        raise RefusedError("a pool of another kind than windows of one image")
    return _window(node, kernel, shape)


def _average_pool(made: OnnxContext, node: onnx.NodeProto) -> None:
    given = options(node)
    other = bool(int(given.get("ceil_mode", 0)) or int(given.get("channels_last", 0)))
    window = _pool_window(made, node, other=other)
    whole = bool(int(given.get("count_include_pad", 0)))
    made.operators.append(op.FloatPool(window=window, whole=whole, **made.float_image(node)))


def _max_pool(made: OnnxContext, node: onnx.NodeProto) -> None:
    window = _pool_window(made, node, other=len(node.output) > 1)
    source = made.data(node, 0)
    result = made.like(node.output[0], source)
    pool = op.Pool(source=source, result=result, kind="max", window=window, low=-128, high=127)
    made.operators.append(pool)


FILTERS: dict[str, Translation] = {
    "MaxPool": _max_pool,
    "QGemm": _product,
    "QLinearAveragePool": _average_pool,
    "QLinearConv": _convolution,
    TRANSPOSED: _translate_transposed,
    MEAN: _mean,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearMatMul": _product,
}


_LEFT_BITS = 5.0
"""Of the exponent, which that kernel leaves free above a sum."""
_PER_AXIS_OPSET = 13
_MOST_FLOAT = np.finfo(np.float32).max


def _exponentials(scale: np.float32, depth: int) -> np.ndarray:
    """Return e to the power of -255 ... 0 quanta, all enlarged as far as a sum of them allows."""
    room = math.log(float(_MOST_FLOAT / np.float32(depth)))
    enlarged = max(0.0, room - _LEFT_BITS) / float(scale)
    powers = (np.arange(256, dtype=np.float64) - 255 + enlarged) * float(scale)
    return np.exp(powers).astype(np.float32)


def _softmax(made: OnnxContext, node: onnx.NodeProto) -> None:
    given = options(node)
    shape = made.shape(node.input[0])
    per_axis = int(given.get("opset", _PER_AXIS_OPSET)) >= _PER_AXIS_OPSET
    axis = int(given.get("axis", -1 if per_axis else 1)) % len(shape)
    # Channels lie last here.
    if axis != (1 if len(shape) == 4 and per_axis else len(shape) - 1):
        raise RefusedError(f"a softmax over axis {axis} of {list(shape)}")
    source, result = made.data(node, 0), made.result(node, 3)
    made.operators.append(
        op.FloatSoftmax(
            source=source,
            result=result,
            exponentials=_exponentials(made.quanta(node, 1)[0], shape[axis]),
            scale=np.floor(np.float32(1) / made.quanta(node, 3)[0]),
            zero=made.tensors[result].zero,
        )
    )


SOFTMAX: dict[str, Translation] = {"QLinearSoftmax": _softmax}
