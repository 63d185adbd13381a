"""MediaPipe's custom operators, as its own runtime computes them on a CPU.

Those on landmarks are a matrix that turns and scales a part of an image, and points moved by one.
Options of some are a record of C in the file.

Source: mediapipe/util/tflite/operations of google-ai-edge/mediapipe, versions 1 and 2;
tensorflow/lite/core/c/builtin_op_data.h (TfLitePoolParams, TfLiteTransposeConvParams).
"""

import struct
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.spatial import Window
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Result, TfliteNode
from adrenoc.importers.tflite.reduce import window_taps

_Turn = tuple[relax.Expr, relax.Expr]
"""The cosine and the sine of an angle."""


def _number(value: float) -> relax.Expr:
    return make_constant(np.float32(value))


def _most(x: relax.Expr) -> relax.Expr:
    return relax.op.max(x, [0], True)


def _least(x: relax.Expr) -> relax.Expr:
    return relax.op.min(x, [0], True)


def transform_landmarks(node: TfliteNode) -> Result:
    """Transform points (x, y) or (x, y, z) by the first two rows of a matrix; z stays."""
    shape = node.shape()
    is_first = node.operator.version == 1
    size = int(node.option("dimensions", 3)) if is_first else shape[-1]
    scale = float(node.option("scale", 1.0)) if is_first else 1.0
    if size not in (2, 3) or shape[-1] % size or scale == 0:
        raise RefusedError(f"{size} dimensions of {shape[-1]} numbers, scaled by {scale}")
    points = relax.op.reshape(node.real(0), [int(np.prod(shape)) // size, size])
    matrix = relax.op.reshape(node.real(1), [16])

    def take(source: relax.Expr, axis: int, at: int) -> relax.Expr:
        return relax.op.strided_slice(source, [axis], [at], [at + 1])

    x, y = take(points, 1, 0), take(points, 1, 1)
    turned = []
    for row in range(2):
        factors = [take(matrix, 0, 4 * row + column) for column in (0, 1, 3)]
        turned.append(x * factors[0] + y * factors[1] + factors[2] * _number(scale))
    if size == 3:
        turned.append(take(points, 1, 2))
    return relax.op.reshape(relax.op.concat(turned, axis=1), shape)


def landmarks_to_matrix(node: TfliteNode) -> Result:
    """Return the 4x4 matrix from pixels of a result to those of an image, about some landmarks."""
    count = int(np.prod(node.shape())) // 3
    points = relax.op.reshape(node.real(0), [count, 3])
    is_first = node.operator.version == 1

    def pick(indices: list[int]) -> list[relax.Expr]:
        if not indices or not all(0 <= index < count for index in indices):
            raise RefusedError(f"it names the landmarks {indices}; there are {count}")
        places = make_constant(np.array(indices, np.int64))
        rows = relax.op.take(points, places, axis=0, mode="clip")
        columns = (relax.op.strided_slice(rows, [1], [a], [a + 1]) for a in (0, 1))
        return [node.emit(relax.op.reshape(column, [len(indices)])) for column in columns]

    left, right = (pick([int(node.option(f"{s}_rotation_idx", -1))]) for s in ("left", "right"))
    cosine, sine = _turn(node, (right[0] - left[0], right[1] - left[1]), is_first=is_first)
    x, y = pick([int(i) for i in node.option("subset" if is_first else "subset_idxs", [])])
    turned = x * cosine - y * sine, x * sine + y * cosine
    size = [_most(t) - _least(t) for t in turned]
    across, down = ((_most(t) + _least(t)) * _number(0.5) for t in turned)
    # Back by the same turn.
    centre = across * cosine + down * sine, down * cosine - across * sine
    build = _matrix_of_first if is_first else _matrix_of_second
    return build(node, (cosine, sine), size, centre)


def _turn(node: TfliteNode, line: _Turn, *, is_first: bool) -> _Turn:
    """Return cosine and sine of the turn that lays a line as it is wanted.

    Version 1 has its angle by the tangent alone, so that it looks to the right; a line of no length
    has none in version 2."""
    dx, dy = line
    zero, one = _number(0), _number(1)
    length = relax.op.sqrt(dx * dx + dy * dy)
    cosine, sine, target = dx / length, dy / length, 0.0
    if is_first:
        sign = relax.op.where(dx < zero, _number(-1), one)
        cosine, sine = cosine * sign, sine * sign
    else:
        none = relax.op.equal(length, zero)
        cosine = relax.op.where(none, one, cosine)
        sine = relax.op.where(none, zero, sine)
        target = float(node.option("target_rotation_radians", 0.0))
    along, beside = _number(np.cos(target)), _number(np.sin(target))
    return cosine * along + sine * beside, cosine * beside - sine * along


def _matrix_of_second(
    node: TfliteNode, turn: _Turn, size: list[relax.Expr], centre: _Turn
) -> Result:
    """Shift to the centre, turn back, scale, and shift from the middle of the result."""
    height, width = (float(node.option(f"output_{side}")) for side in ("height", "width"))
    cosine, sine = turn
    across = size[0] * _number(float(node.option("scale_x", 1.0)) / width)
    down = size[1] * _number(float(node.option("scale_y", 1.0)) / height)
    half = _number(width / 2), _number(height / 2)
    a, b = cosine * across, sine * down
    c, d = sine * across * _number(-1), cosine * down
    x = centre[0] - a * half[0] - b * half[1]
    y = centre[1] - c * half[0] - d * half[1]
    return _lay((a, b, x), (c, d, y))


def _matrix_of_first(
    node: TfliteNode, turn: _Turn, size: list[relax.Expr], centre: _Turn
) -> Result:
    """Go from pixels of the result to -1..1, scaled, turned and moved, to the image's pixels."""
    spread = float(node.option("landmarks_range"))
    grown = _number(float(node.option("bbox_size_multiplier", 1.0)) / spread)
    (in_height, in_width), (out_height, out_width) = (
        [float(v) for v in node.option(f"{side}_hw")] for side in ("input", "output")
    )
    cosine, sine = turn
    scale = size[0] * grown, size[1] * grown
    shift = [part * _number(2.0 / spread) - _number(1) for part in centre]
    half = _number((in_width - 1) / 2), _number((in_height - 1) / 2)
    across, down = _number(2.0 / (out_width - 1)), _number(2.0 / (out_height - 1))
    rows = []
    for turned, moved, extent in (
        ((cosine * scale[0], sine * scale[1]), shift[0], half[0]),
        ((sine * scale[0] * _number(-1), cosine * scale[1]), shift[1], half[1]),
    ):
        a, b = turned[0] * extent, turned[1] * extent
        constant = moved * extent + extent - a - b
        rows.append((a * across, b * down, constant))
    return _lay(*rows)


def _lay(*rows: tuple[relax.Expr, relax.Expr, relax.Expr]) -> Result:
    """Return the matrix [1, 4, 4] whose first two rows turn and scale x and y, and shift them."""
    zero, one = (make_constant(np.array([value], np.float32)) for value in (0, 1))
    (a, b, x), (c, d, y) = rows
    parts = [a, b, zero, x, c, d, zero, y, zero, zero, one, zero, zero, zero, zero, one]
    return relax.op.reshape(relax.op.concat(parts, axis=0), [1, 4, 4])


_SAME, _VALID = 1, 2


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """A window; `is_same` pads so that every pixel begins one."""

    is_same: bool
    strides: tuple[int, int]
    window: tuple[int, int]
    activation: int


def pool_options(node: TfliteNode) -> PoolOptions:
    """Read TfLitePoolParams: padding, strides, window, activation."""
    padding, across, down, width, height, activation = _ints(node, 6)
    return PoolOptions(
        is_same=_is_same(padding),
        strides=_check_sizes(down, across),
        window=_check_sizes(height, width),
        activation=activation,
    )


def _ints(node: TfliteNode, count: int) -> tuple[int, ...]:
    stored = node.operator.stored
    if len(stored) < 4 * count:
        raise RefusedError(f"its options are {len(stored)} bytes, expected {4 * count} or more")
    return struct.unpack_from(f"<{count}i", stored)


def _is_same(padding: int) -> bool:
    if padding not in (_SAME, _VALID):
        raise RefusedError(f"its padding is {padding}, expected {_SAME} (same) or {_VALID} (valid)")
    return padding == _SAME


def _check_sizes(rows: int, columns: int) -> tuple[int, int]:
    if min(rows, columns) < 1:
        raise RefusedError(f"it has a window or strides of {rows}x{columns}, expected 1 or more")
    return rows, columns


_MOST_WINDOW = 64
_ABOVE_PLACE = 0.1
"""What the runtime adds to a place in a window, so that cutting it to an integer gives it back."""
_LOWEST = float(np.finfo(np.float32).min)


def _transpose_conv_bias(node: TfliteNode) -> Result:
    """Return a transposed convolution with a bias; what it pads hangs on the strides alone."""
    padding, across, down = _ints(node, 3)
    is_same, strides = _is_same(padding), _check_sizes(down, across)
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


def _max_pool_with_places(node: TfliteNode) -> list[Result]:
    """Return the largest of each window, and its place there; of equal ones the first."""
    options = pool_options(node)
    if options.window[0] * options.window[1] > _MOST_WINDOW:
        raise RefusedError(f"a window of {options.window}, expected {_MOST_WINDOW} pixels")
    sliding = Window(
        extents=node.shape()[1:3],
        kernel=options.window,
        strides=options.strides,
        dilations=(1, 1),
    )
    pads = sliding.pads("SAME_UPPER" if options.is_same else "VALID")
    width = [0, 0, pads[0], pads[2], pads[1], pads[3], 0, 0]
    x = relax.op.nn.pad(node.real(), width, pad_value=_LOWEST) if any(pads) else node.real()
    padded = [e + width[2 * axis] + width[2 * axis + 1] for axis, e in enumerate(node.shape())]
    window, strides = ((1, *of, 1) for of in (options.window, options.strides))
    best = place = None
    for number, part in enumerate(window_taps(x, padded, window, strides, (1, 1, 1, 1))):
        here = make_constant(np.float32(number + _ABOVE_PLACE))
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


def _max_unpool(node: TfliteNode) -> Result:
    """Put each number at its place in a window of zeros."""
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


def _transform_tensor(node: TfliteNode) -> Result:
    """Read each pixel of the result from where a matrix leads; zero where that is outside. In
    version 2 a pixel's number is that of its middle."""
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
