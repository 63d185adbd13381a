"""MediaPipe's operators on landmarks: a matrix that turns and scales a part of an image, and points
moved by such a matrix.

Source: mediapipe/util/tflite/operations of google-ai-edge/mediapipe, versions 1 and 2.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.node import Node, Result

_Turn = tuple[relax.Expr, relax.Expr]
"""The cosine and the sine of an angle."""


def _number(value: float) -> relax.Expr:
    return make_constant(np.float32(value))


def _most(x: relax.Expr) -> relax.Expr:
    return relax.op.max(x, [0], True)


def _least(x: relax.Expr) -> relax.Expr:
    return relax.op.min(x, [0], True)


def transform_landmarks(node: Node) -> Result:
    """Points (x, y) or (x, y, z) by the first two rows of a matrix; z stays."""
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


def landmarks_to_matrix(node: Node) -> Result:
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


def _turn(node: Node, line: _Turn, *, is_first: bool) -> _Turn:
    """Cosine and sine of the turn that lays a line as it is wanted.

    Version 1 has its angle by the tangent alone, so that it looks to the right; a line of no length
    has none in version 2.
    """
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


def _matrix_of_second(node: Node, turn: _Turn, size: list[relax.Expr], centre: _Turn) -> Result:
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


def _matrix_of_first(node: Node, turn: _Turn, size: list[relax.Expr], centre: _Turn) -> Result:
    """From pixels of the result to -1..1, scaled, turned back and moved, to pixels of the image."""
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
