"""MediaPipe's operators on landmarks: a matrix that turns and scales a part of an image, and points
moved by such a matrix.

Source: mediapipe/util/tflite/operations of google-ai-edge/mediapipe, versions 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.node import Emitter, Node, Result


@dataclass(frozen=True)
class _Number:
    """A tensor of one number, or of one for each landmark, with arithmetic."""

    emit: Emitter
    expr: relax.Expr

    def _with(self, change: object, other: _Number | float) -> _Number:
        right = other.expr if isinstance(other, _Number) else make_constant(np.float32(other))
        return _Number(self.emit, self.emit(change(self.expr, right)))  # type: ignore[operator]

    def __add__(self, other: _Number | float) -> _Number:
        return self._with(relax.op.add, other)

    def __sub__(self, other: _Number | float) -> _Number:
        return self._with(relax.op.subtract, other)

    def __mul__(self, other: _Number | float) -> _Number:
        return self._with(relax.op.multiply, other)

    def __truediv__(self, other: _Number | float) -> _Number:
        return self._with(relax.op.divide, other)

    def most(self) -> _Number:
        return _Number(self.emit, self.emit(relax.op.max(self.expr, [0], True)))

    def least(self) -> _Number:
        return _Number(self.emit, self.emit(relax.op.min(self.expr, [0], True)))


_Turn = tuple[_Number, _Number]


def transform_landmarks(node: Node) -> Result:
    """Points (x, y) or (x, y, z) by the first two rows of a matrix; z stays."""
    emit, shape = node.emit, node.shape()
    is_first = node.operator.version == 1
    size = int(node.option("dimensions", 3)) if is_first else shape[-1]
    scale = float(node.option("scale", 1.0)) if is_first else 1.0
    if size not in (2, 3) or shape[-1] % size or scale == 0:
        raise NotImplementedError(f"{size} dimensions of {shape[-1]} numbers, scaled by {scale}")
    count = int(np.prod(shape)) // size
    points = emit(relax.op.reshape(node.real(0), [count, size]))
    matrix = emit(relax.op.reshape(node.real(1), [16]))

    def take(source: relax.Expr, axis: int, at: int) -> _Number:
        return _Number(emit, emit(relax.op.strided_slice(source, [axis], [at], [at + 1])))

    x, y = take(points, 1, 0), take(points, 1, 1)
    turned = []
    for row in range(2):
        factors = [take(matrix, 0, 4 * row + column) for column in (0, 1, 3)]
        turned.append((x * factors[0] + y * factors[1] + factors[2] * scale).expr)
    if size == 3:
        turned.append(take(points, 1, 2).expr)
    return relax.op.reshape(emit(relax.op.concat(turned, axis=1)), shape)


def landmarks_to_matrix(node: Node) -> Result:
    """Return the 4x4 matrix from pixels of a result to those of an image, about some landmarks."""
    emit, count = node.emit, int(np.prod(node.shape())) // 3
    points = emit(relax.op.reshape(node.real(0), [count, 3]))
    is_first = node.operator.version == 1

    def pick(indices: list[int]) -> tuple[_Number, _Number]:
        if not indices or not all(0 <= index < count for index in indices):
            raise ValueError(f"it names the landmarks {indices}; there are {count}")
        rows = emit(
            relax.op.take(points, make_constant(np.array(indices, np.int64)), axis=0, mode="clip")
        )
        columns = (emit(relax.op.strided_slice(rows, [1], [a], [a + 1])) for a in (0, 1))
        x, y = (_Number(emit, emit(relax.op.reshape(c, [len(indices)]))) for c in columns)
        return x, y

    left, right = (pick([int(node.option(f"{s}_rotation_idx", -1))]) for s in ("left", "right"))
    cosine, sine = _turn(node, (right[0] - left[0], right[1] - left[1]), is_first=is_first)
    x, y = pick([int(i) for i in node.option("subset" if is_first else "subset_idxs", [])])
    turned = x * cosine - y * sine, x * sine + y * cosine
    size = [t.most() - t.least() for t in turned]
    across, down = ((t.most() + t.least()) * 0.5 for t in turned)
    # Back by the same turn.
    centre = across * cosine + down * sine, down * cosine - across * sine
    build = _matrix_of_first if is_first else _matrix_of_second
    return build(node, (cosine, sine), size, centre)


def _turn(node: Node, line: _Turn, *, is_first: bool) -> _Turn:
    """Cosine and sine of the turn that lays a line as it is wanted.

    Version 1 has its angle by the tangent alone, so that it looks to the right; a line of no length
    has none in version 2.
    """
    emit, (dx, dy) = node.emit, line
    zero, one = (make_constant(np.float32(v)) for v in (0, 1))
    length = _Number(emit, emit(relax.op.sqrt((dx * dx + dy * dy).expr)))
    cosine, sine, target = dx / length, dy / length, 0.0
    if is_first:
        looks_left = emit(relax.op.less(dx.expr, zero))
        back = make_constant(np.float32(-1))
        sign = _Number(emit, emit(relax.op.where(looks_left, back, one)))
        cosine, sine = cosine * sign, sine * sign
    else:
        none = emit(relax.op.equal(length.expr, zero))
        cosine = _Number(emit, emit(relax.op.where(none, one, cosine.expr)))
        sine = _Number(emit, emit(relax.op.where(none, zero, sine.expr)))
        target = float(node.option("target_rotation_radians", 0.0))
    along, beside = float(np.cos(target)), float(np.sin(target))
    return cosine * along + sine * beside, cosine * beside - sine * along


def _matrix_of_second(node: Node, turn: _Turn, size: list[_Number], centre: _Turn) -> Result:
    """Shift to the centre, turn back, scale, and shift from the middle of the result."""
    height, width = (float(node.option(f"output_{side}")) for side in ("height", "width"))
    cosine, sine = turn
    across = size[0] * (float(node.option("scale_x", 1.0)) / width)
    down = size[1] * (float(node.option("scale_y", 1.0)) / height)
    a, b = cosine * across, sine * down
    c, d = sine * across * -1.0, cosine * down
    x = centre[0] - a * (width / 2) - b * (height / 2)
    y = centre[1] - c * (width / 2) - d * (height / 2)
    return _lay(node, [a, b, 0.0, x, c, d, 0.0, y, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])


def _matrix_of_first(node: Node, turn: _Turn, size: list[_Number], centre: _Turn) -> Result:
    """From pixels of the result to -1..1, scaled, turned back and moved, to pixels of the image."""
    spread = float(node.option("landmarks_range"))
    grown = float(node.option("bbox_size_multiplier", 1.0)) / spread
    (in_height, in_width), (out_height, out_width) = (
        [float(v) for v in node.option(f"{side}_hw")] for side in ("input", "output")
    )
    cosine, sine = turn
    scale = size[0] * grown, size[1] * grown
    shift = [part * (2.0 / spread) - 1.0 for part in centre]
    half = (in_width - 1) / 2, (in_height - 1) / 2
    rows = []
    for turned, moved, extent in (
        ((cosine * scale[0], sine * scale[1]), shift[0], half[0]),
        ((sine * scale[0] * -1.0, cosine * scale[1]), shift[1], half[1]),
    ):
        a, b = turned[0] * extent, turned[1] * extent
        constant = moved * extent + extent - a - b
        rows.append((a * (2.0 / (out_width - 1)), b * (2.0 / (out_height - 1)), constant))
    (a, b, x), (c, d, y) = rows
    return _lay(node, [a, b, 0.0, x, c, d, 0.0, y, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])


def _lay(node: Node, numbers: list[_Number | float]) -> Result:
    """Return the matrix [1, 4, 4] of sixteen numbers, row by row."""
    parts = [
        n.expr if isinstance(n, _Number) else make_constant(np.array([n], np.float32))
        for n in numbers
    ]
    return relax.op.reshape(node.emit(relax.op.concat(parts, axis=0)), [1, 4, 4])
