"""MediaPipe's custom operators, as its own runtime computes them on a CPU.

Source: mediapipe/util/tflite/operations of google-ai-edge/mediapipe.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.landmarks import landmarks_to_matrix, transform_landmarks
from adrenoc.importers.tflite.node import Node, Result
from adrenoc.importers.tflite.raw_options import pool_options, transpose_options
from adrenoc.importers.window import same_pads

_MOST_WINDOW = 64
_ABOVE_PLACE = 0.1
"""What the runtime adds to a place in a window, so that cutting it to an integer gives it back."""
_LOWEST = float(np.finfo(np.float32).min)


def _transpose_conv_bias(node: Node) -> Result:
    """Return a transposed convolution with a bias; what it pads hangs on the strides alone."""
    is_same, strides = transpose_options(node)
    outs, height, width, _ = node.shape(1)
    kernel, extents = (height, width), node.shape(0)[1:3]
    cut = [
        max(0, k - (e - 1) % s - 1) if is_same else 0
        for k, e, s in zip(kernel, extents, strides, strict=True)
    ]
    begin = [c // 2 for c in cut]
    total = relax.op.nn.conv2d_transpose(
        node.real(0),
        relax.op.permute_dims(node.real(1), [3, 0, 1, 2]),  # OHWI to IOHW
        strides=list(strides),
        padding=[*begin, *(c - b for c, b in zip(cut, begin, strict=True))],
        data_layout="NHWC",
        kernel_layout="IOHW",
    )
    bias = relax.op.reshape(node.real(2), [outs])
    return node.emit(total) + bias


def _max_pool_with_places(node: Node) -> list[Result]:
    """Return the largest of each window, and its place there; of equal ones the first."""
    options = pool_options(node)
    batch, *extents, channels = node.shape()
    if options.window[0] * options.window[1] > _MOST_WINDOW:
        raise RefusedError(f"a window of {options.window}, expected {_MOST_WINDOW} pixels")
    pads = same_pads(
        "SAME_UPPER" if options.is_same else "VALID",
        None,
        extents=extents,
        kernel=options.window,
        strides=options.strides,
        dilations=(1, 1),
    )
    strides, window = options.strides, options.window
    outs = [
        (e + pads[i] + pads[i + 2] - k) // s + 1
        for i, (e, k, s) in enumerate(zip(extents, window, strides, strict=True))
    ]
    width = [0, 0, pads[0], pads[2], pads[1], pads[3], 0, 0]
    x = relax.op.nn.pad(node.real(), width, pad_value=_LOWEST) if any(pads) else node.real()
    best = place = None
    for y, column in itertools.product(*map(range, options.window)):
        begin = [0, y, column, 0]
        end = [
            batch,
            *(
                b + (o - 1) * s + 1
                for b, o, s in zip((y, column), outs, options.strides, strict=True)
            ),
            channels,
        ]
        part = relax.op.strided_slice(x, [0, 1, 2, 3], begin, end, [1, *strides, 1])
        here = make_constant(np.float32(y * options.window[1] + column + _ABOVE_PLACE))
        if best is None or place is None:
            best = part
            place = relax.op.full_like(part, here)
            continue
        place = node.emit(relax.op.where(part > best, here, place))
        best = node.emit(relax.op.maximum(best, part))
    activated = replace(
        node,
        operator=replace(node.operator, options={"FusedActivationFunction": options.activation}),
    )
    return [activated.activate(best), place]


def _max_unpool(node: Node) -> Result:
    """Each number at its place in a window of zeros."""
    options = pool_options(node)
    if options.strides != options.window:
        raise RefusedError(
            f"windows of {options.window} by strides of {options.strides} overlap or leave gaps"
        )
    batch, rows, columns, channels = node.shape()
    height, width = options.window
    apart = [batch, rows, 1, columns, 1, channels]
    place = relax.op.reshape(relax.op.trunc(node.real(1)), apart)
    grid = np.arange(height * width, dtype=np.float32).reshape(1, 1, height, 1, width, 1)
    here = relax.op.equal(place, make_constant(grid))
    value = relax.op.reshape(node.real(0), apart)
    laid = relax.op.where(here, value, make_constant(np.float32(0)))
    return relax.op.reshape(laid, [batch, rows * height, columns * width, channels])


def _transform_tensor(node: Node) -> Result:
    """Each pixel of the result from where a matrix leads; zero where that is outside.

    In version 2 a pixel's number is that of its middle.
    """
    batch, height, width, channels = node.shape()
    _, rows, columns, _ = node.results[0].shape
    if batch != 1:
        raise RefusedError(f"a batch of {batch}, expected 1")
    mode = node.option("mode", "bilinear")
    if mode != "bilinear":
        raise RefusedError(f"the mode {mode}, expected bilinear")
    middle = 0.5 if node.operator.version > 1 else 0.0

    def build(data: te.Tensor, matrix: te.Tensor) -> te.Tensor:
        def place(row: int, y: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
            turn = [matrix(row * 4 + column) for column in range(4)]
            return turn[0] * (x + middle) + turn[1] * (y + middle) + turn[3] - middle

        def element(n: tirx.Expr, y: tirx.Expr, x: tirx.Expr, c: tirx.Expr) -> tirx.Expr:
            at = y.astype("float32"), x.astype("float32")
            column, row = place(0, *at), place(1, *at)
            inside = tirx.all(column >= 0.0, column <= width - 1.0, row >= 0.0, row <= height - 1.0)
            top, left = (_keep(te.floor(p), e) for p, e in ((row, height), (column, width)))
            bottom, right = _keep(te.floor(row) + 1.0, height), _keep(te.floor(column) + 1.0, width)
            down, across = row - te.floor(row), column - te.floor(column)
            upper = data(n, top, left, c) * (1.0 - across) + data(n, top, right, c) * across
            lower = data(n, bottom, left, c) * (1.0 - across) + data(n, bottom, right, c) * across
            mixed = upper * (1.0 - down) + lower * down
            return tirx.Select(inside, mixed, tirx.const(0.0, "float32"))

        return te.compute((1, rows, columns, channels), element, name="transform_tensor")

    matrix = node.emit(relax.op.reshape(node.real(1), [16]))
    return node.emit.builder.call_te(
        build, node.real(0), matrix, primfunc_name_hint="transform_tensor"
    )


def _keep(place: tirx.Expr, extent: int) -> tirx.Expr:
    """Return the pixel of a place, or the nearest there is."""
    last = tirx.const(extent - 1.0, "float32")
    return te.min(te.max(place, tirx.const(0.0, "float32")), last).astype("int32")


MEDIAPIPE_OPS: dict[str, Convert] = {
    "Convolution2DTransposeBias": _transpose_conv_bias,
    "Landmarks2TransformMatrix": landmarks_to_matrix,
    "MaxPoolingWithArgmax2D": _max_pool_with_places,
    "MaxUnpooling2D": _max_unpool,
    "TransformLandmarks": transform_landmarks,
    "TransformTensor": _transform_tensor,
    "TransformTensorBilinear": _transform_tensor,
}
