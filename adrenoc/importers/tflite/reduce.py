"""Operators over windows and axes: pools, reductions, norms, softmax.

Source: TFLite operator reference; the kernels of LiteRT for what it leaves open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.fold import check_grown
from adrenoc.importers.relax.values import dtype_of, make_constant
from adrenoc.importers.tflite.conv import pads_of
from adrenoc.importers.tflite.elementwise import Convert, divide_towards_zero
from adrenoc.importers.tflite.node import Node, Result
from adrenoc.importers.tflite.quant import Quanta

_TIE = 2.0**-10
"""Pushes a mean that lies between two integers away from zero; others are further from a tie."""


def _window(node: Node) -> dict[str, Any]:
    kernel = [int(node.option("FilterHeight", 1)), int(node.option("FilterWidth", 1))]
    strides = node.steps("Stride{}")
    pads = pads_of(node, node.shape()[1:3], kernel, strides, [1, 1])
    return {"pool_size": kernel, "strides": strides, "padding": pads, "layout": "NHWC"}


def _max_pool(node: Node) -> Result:
    return node.activate(node.move(relax.op.nn.max_pool2d(node.data(), **_window(node))))


def _average_pool(node: Node) -> Result:
    """The mean of a window's elements inside of the data; of quanta, ties away from zero."""
    if not (node.info().is_quantised or node.dtype().startswith("float")):
        raise RefusedError(f"it takes real numbers, and its input holds {node.dtype()}")
    pooled = relax.op.nn.avg_pool2d(node.data(), **_window(node), count_include_pad=False)
    info = node.info()
    if not info.is_quantised:
        return node.activate(pooled)
    whole = _nearest(node.emit(pooled), info.zero)
    return node.activate(node.move(whole))


def _nearest(mean: relax.Expr, zero: int) -> relax.Expr:
    """A mean of quanta as an integer: LiteRT rounds what is stored, ties away from zero."""
    border = make_constant(np.float32(-zero))
    positive = mean >= border
    up, down = make_constant(np.float32(_TIE)), make_constant(np.float32(-_TIE))
    return relax.op.round(mean + relax.op.where(positive, up, down))


def _l2_pool(node: Node) -> Result:
    square = node.real() * node.real()
    pooled = relax.op.nn.avg_pool2d(square, **_window(node), count_include_pad=False)
    return node.activate(relax.op.sqrt(node.emit(pooled)))


def _axes(node: Node) -> list[int]:
    rank = len(node.shape())
    return sorted({a % rank for a in node.ints(1)}) if rank else []


def _reduce(op: Callable[..., relax.Expr]) -> Convert:
    def convert(node: Node) -> Result:
        axes, keep = _axes(node), bool(node.option("KeepDims", False))
        if not axes:
            return node.move(node.data())
        return op(node.real(), axes, keep)

    return convert


def _mean(node: Node) -> Result:
    axes, keep = _axes(node), bool(node.option("KeepDims", False))
    if node.info().is_quantised:
        total = relax.op.mean(node.data(), axes, keep)
        return Quanta(expr=total, scale=node.info().scales)
    if node.dtype().startswith("float"):
        return relax.op.mean(node.data(), axes, keep)
    count = int(np.prod([node.shape()[a] for a in axes]))
    total = node.emit(relax.op.sum(node.data(), axes, keep))  # whose dtype is asked for
    return divide_towards_zero(total, node.like(count))


def _sum(node: Node) -> Result:
    axes, keep = _axes(node), bool(node.option("KeepDims", False))
    if node.info().is_quantised:
        total = relax.op.sum(node.data(), axes, keep)
        return Quanta(expr=total, scale=node.info().scales)
    return relax.op.sum(node.data(), axes, keep)


def _extreme(op: Callable[..., relax.Expr]) -> Convert:
    def convert(node: Node) -> Result:
        return node.move(op(node.data(), _axes(node), bool(node.option("KeepDims", False))))

    return convert


def _logical(op: Callable[..., relax.Expr]) -> Convert:
    """All and any, as the least and the greatest of zeros and ones."""

    def convert(node: Node) -> Result:
        numbers = node.data().astype("int32")
        found = op(numbers, _axes(node), bool(node.option("KeepDims", False)))
        return found.astype("bool")

    return convert


def _arg(op: Callable[..., relax.Expr]) -> Convert:
    """The place of the first of equals."""

    def convert(node: Node) -> Result:
        axis = int(node.scalar(1)) % len(node.shape())
        data = node.data()
        if node.dtype() == "bool":  # TVM knows no least of two truth values
            data = data.astype("int32")
        found = op(data, axis, False)
        return found.astype(node.results[0].dtype)

    return convert


def _cumsum(node: Node) -> Result:
    axis = int(node.scalar(1)) % len(node.shape())
    x = node.real()
    backwards = bool(node.option("Reverse", False))
    if backwards:
        x = node.emit(relax.op.flip(x, axis))
    total = relax.op.cumsum(x, axis, dtype_of(x), bool(node.option("Exclusive", False)))
    return relax.op.flip(node.emit(total), axis) if backwards else total


def _softmax(node: Node) -> Result:
    x, beta = node.real(), float(node.option("Beta", 1.0))
    if beta != 1.0:
        x = x * make_constant(np.float32(beta))
    return relax.op.nn.softmax(x, axis=-1)


def _l2_normalisation(node: Node) -> Result:
    """Over the last axis."""
    x = node.real()
    total = relax.op.sum(x * x, [-1], True)
    inverse = relax.op.rsqrt(relax.op.maximum(total, make_constant(np.float32(1e-12))))
    return node.activate(x * inverse)


def _local_response(node: Node) -> Result:
    """Over `radius` channels on each side: a product with a band of ones sums the squares."""
    x, channels = node.real(), node.shape()[-1]
    radius = int(node.option("Radius"))
    square = x * x
    check_grown(channels * channels)
    places = np.arange(channels)
    band = (np.abs(places[:, None] - places[None, :]) <= radius).astype(np.float32)
    total = node.emit(relax.op.matmul(square, make_constant(band)))
    scaled = total * make_constant(np.float32(node.option("Alpha", 1.0)))
    base = node.emit(scaled) + make_constant(np.float32(node.option("Bias", 1.0)))
    return x * base ** make_constant(np.float32(-float(node.option("Beta", 1.0))))


REDUCE_OPS: dict[str, Convert] = {
    "ARG_MAX": _arg(relax.op.argmax),
    "ARG_MIN": _arg(relax.op.argmin),
    "AVERAGE_POOL_2D": _average_pool,
    "CUMSUM": _cumsum,
    "L2_NORMALIZATION": _l2_normalisation,
    "L2_POOL_2D": _l2_pool,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": lambda node: relax.op.nn.log_softmax(node.real(), axis=-1),
    "MAX_POOL_2D": _max_pool,
    "MEAN": _mean,
    "REDUCE_ALL": _logical(relax.op.min),
    "REDUCE_ANY": _logical(relax.op.max),
    "REDUCE_MAX": _extreme(relax.op.max),
    "REDUCE_MIN": _extreme(relax.op.min),
    "REDUCE_PROD": _reduce(relax.op.prod),
    "SOFTMAX": _softmax,
    "SUM": _sum,
}
