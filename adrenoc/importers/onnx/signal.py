"""Fourier transforms, windows over images, and other operators that are sums over known places.

Each is a product with a constant matrix or a TE expression: a plain fold for the kernels.

Source: ONNX operator reference: DFT-20, STFT-17, Col2Im-18, DeformConv-22.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.refused import RefusedError
from adrenoc.importers.imported import check_grown
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.relax.fourier import transform
from adrenoc.importers.relax.values import make_constant

Expr = Any


def _dft(node: OnnxNode) -> relax.Expr:
    shape = node.shape()
    axis = node.ints(2, "axis") if node.opset >= 20 else [int(node.attrs.get("axis", 1))]
    along = (axis[0] if axis else -2) % len(shape)
    length = node.number(1)
    return transform(
        node.emit,
        node.inputs[0],
        shape,
        along,
        length=None if length is None else int(length),
        inverse=bool(node.attrs.get("inverse", 0)),
        onesided=bool(node.attrs.get("onesided", 0)),
    )


def _stft(node: OnnxNode) -> relax.Expr:
    """Exporters leave out the last axis of a real signal, and onnxruntime takes that."""
    signal, shape = node.inputs[0], node.shape()
    if len(shape) == 2:
        shape = (*shape, 1)
        signal = relax.op.reshape(signal, shape)
    step, frame = node.number(1), node.number(3)
    if step is None:
        raise RefusedError("the frame step is missing")
    length = int(frame) if frame is not None else node.shape(2)[0]
    stride = int(step)
    if stride < 1 or not 1 <= length <= shape[1]:
        raise RefusedError(f"frames of {length} steps, each {stride} further, in {shape[1]} steps")
    count = (shape[1] - length) // stride + 1
    check_grown(count * length)
    taken = np.arange(count)[:, None] * stride + np.arange(length)[None, :]
    frames = relax.op.take(
        signal, make_constant(taken.reshape(-1).astype(np.int32)), axis=1, mode="clip"
    )
    framed = (shape[0], count, length, shape[2])
    frames = relax.op.reshape(frames, framed)
    if node.input(2) is not None:
        frames *= relax.op.reshape(node.inputs[2], (1, 1, length, 1))
    onesided = bool(node.attrs.get("onesided", 1))
    return transform(
        node.emit, node.emit(frames), framed, 2, length=None, inverse=False, onesided=onesided
    )


def max_pool_indices(
    node: OnnxNode,
    values: relax.Expr,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> relax.Expr:
    """Return where each maximum of a pool lies in the whole input, as `storage_order` counts."""
    shape = node.shape()
    axes = len(shape) - 2
    by_column = bool(node.attrs.get("storage_order", 0))

    def indices(x: te.Tensor, pooled: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, extent), f"k{a}") for a, extent in enumerate(kernel)]

        def element(n: Expr, c: Expr, *at: Expr) -> Expr:
            where = [at[a] * strides[a] - pads[a] + taps[a].var * dilations[a] for a in range(axes)]
            inside: Expr = tirx.const(True, "bool")
            for a in range(axes):
                inside = tirx.And(inside, tirx.And(where[a] >= 0, where[a] < shape[2 + a]))
            flat = n * shape[1] + c
            for a in range(axes):
                flat = flat * shape[2 + a]
            inner, span = tirx.const(0, "int32"), 1
            for a in range(axes) if by_column else reversed(range(axes)):
                inner, span = inner + where[a] * span, span * shape[2 + a]
            missing = tirx.const(2**31 - 1, "int32")
            value = x(n, c, *where)
            taken = tirx.Or(value == pooled(n, c, *at), tirx.isnan(value))
            hit = tirx.if_then_else(inside, taken, inside)
            return te.min(tirx.Select(hit, (flat + inner).astype("int32"), missing), axis=taps)

        first = te.compute(pooled.shape, element, name="first")
        return te.compute(pooled.shape, lambda *i: first(*i).astype("int64"), name="indices")

    return node.bb.call_te(indices, node.inputs[0], values, primfunc_name_hint="max_pool_indices")


def _deform_conv(node: OnnxNode) -> relax.Expr:
    """TVM lacks offset groups of the mask: sample first, then sum over channels and taps."""
    (batch, channels, height, width), weight = node.shape(), node.shape(1)
    rows, columns = node.shape(2)[2:]
    strides = list(node.attrs.get("strides", [1, 1]))
    dilations = list(node.attrs.get("dilations", [1, 1]))
    pads = list(node.attrs.get("pads", [0, 0, 0, 0]))
    groups, offsets = int(node.attrs.get("group", 1)), int(node.attrs.get("offset_group", 1))
    taps, per_group = weight[2] * weight[3], channels // groups
    has_bias, has_mask = node.input(3) is not None, node.input(4) is not None

    def convolve(x: te.Tensor, w: te.Tensor, offset: te.Tensor, *more: te.Tensor) -> te.Tensor:
        bias, mask = more[0] if has_bias else None, more[-1] if has_mask else None

        def sample(n: Expr, c: Expr, t: Expr, i: Expr, j: Expr) -> Expr:
            tap = tirx.floordiv(c, channels // offsets) * taps + t
            base = (
                i * strides[0] - pads[0] + tirx.floordiv(t, weight[3]) * dilations[0],
                j * strides[1] - pads[1] + tirx.floormod(t, weight[3]) * dilations[1],
            )
            y = base[0].astype("float32") + offset(n, tap * 2, i, j)
            z = base[1].astype("float32") + offset(n, tap * 2 + 1, i, j)
            top, left = tirx.floor(y), tirx.floor(z)
            total: Expr = tirx.const(0.0, "float32")
            for down in (0, 1):
                for right in (0, 1):
                    h = top.astype("int32") + down
                    v = left.astype("int32") + right
                    share = (y - top if down else 1.0 - (y - top)) * (
                        z - left if right else 1.0 - (z - left)
                    )
                    inside = tirx.all(h >= 0, h < height, v >= 0, v < width)
                    value = tirx.if_then_else(inside, x(n, c, h, v), tirx.const(0.0, "float32"))
                    total = total + share * value
            return total if mask is None else total * mask(n, tap, i, j)

        sampled = te.compute((batch, channels, taps, rows, columns), sample, name="sampled")
        c, t = te.reduce_axis((0, per_group), "c"), te.reduce_axis((0, taps), "t")

        def product(n: Expr, o: Expr, i: Expr, j: Expr) -> Expr:
            group = tirx.floordiv(o, weight[0] // groups)
            tap = (tirx.floordiv(t.var, weight[3]), tirx.floormod(t.var, weight[3]))
            value = sampled(n, group * per_group + c.var, t.var, i, j) * w(o, c.var, *tap)
            return te.sum(value, axis=[c, t])

        summed = te.compute((batch, weight[0], rows, columns), product, name="summed")
        if bias is None:
            return summed
        return te.compute(
            summed.shape, lambda n, o, i, j: summed(n, o, i, j) + bias(o), name="with_bias"
        )

    operands = [e for e in node.inputs if e is not None]
    return node.bb.call_te(convolve, *operands, primfunc_name_hint="deform_conv")


def _det(node: OnnxNode) -> relax.Expr:
    shape = node.shape()
    size = shape[-1]
    if size > 3:
        raise RefusedError(f"matrices of {size} x {size} are not supported, expected at most 3 x 3")

    def determinant(x: te.Tensor) -> te.Tensor:
        def minor(at: Sequence[Expr], rows: Sequence[int], columns: Sequence[int]) -> Expr:
            first = [x(*at, rows[0], c) for c in columns]
            if len(rows) == 1:
                return first[0]
            total = None
            for i, value in enumerate(first):
                rest = [c for j, c in enumerate(columns) if j != i]
                term = value * minor(at, rows[1:], rest)
                signed = term if i % 2 == 0 else -term
                total = signed if total is None else total + signed
            return total

        numbers = list(range(size))
        return te.compute(shape[:-2], lambda *at: minor(at, numbers, numbers), name="determinant")

    return node.bb.call_te(determinant, node.inputs[0], primfunc_name_hint="det")


SIGNAL_OPS: dict[str, Callable[[OnnxNode], relax.Expr]] = {
    "DFT": _dft,
    "DeformConv": _deform_conv,
    "Det": _det,
    "STFT": _stft,
}
