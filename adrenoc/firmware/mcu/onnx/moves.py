"""Pads and enlargements of quantised ONNX models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8
from adrenoc.firmware.mcu.onnx.context import Importing, Translation, options
from adrenoc.firmware.mcu.onnx.float_islands import LINEAR_RESIZE, is_linear_resize
from adrenoc.firmware.mcu.operators import FloatBetween, FloatBilinear, Move
from adrenoc.importers.onnx.resize_whole import MODES, float_places, nearest_places

_TO_LAST = (0, 2, 3, 1)
_HALF = np.float32(0.5)
_MOST_EXTENT = 1 << 14
"""Of an axis whose places are numbers of 16 bits."""


def _add_move(
    made: Importing, node: onnx.NodeProto, indices: Sequence[np.ndarray], fill: int
) -> None:
    """A move, of the index on each axis of the file (-1: outside)."""
    source = made.data(node, 0)
    shape = made.tensors[source].shape
    ordered = [indices[a] for a in _TO_LAST] if len(indices) == 4 else list(indices)
    if len(ordered) > 4:
        raise RefusedError(f"{len(ordered)} axes")
    offsets = [
        np.where(index < 0, -1, index * math.prod(shape[axis + 1 :]))
        for axis, index in enumerate(ordered)
    ]
    a, b, c, d = [np.zeros(1, np.int64)] * (4 - len(offsets)) + offsets
    result = made.like(node.output[0], source)
    made.operators.append(Move(source=source, result=result, offsets=(a, b, c, d), fill=fill))


def _pad(made: Importing, node: onnx.NodeProto) -> None:
    """With one number, or with the border's own or mirrored ones."""
    mode = options(node).get("mode", b"constant").decode()
    shape = made.shape(node.input[0])
    pads = made.constant(node, 1).reshape(2, -1).astype(np.int64)
    axes = list(range(len(shape)))
    if len(node.input) > 3 and node.input[3]:
        axes = [int(a) % len(shape) for a in made.constant(node, 3).reshape(-1)]
    if int(pads.min()) < 0:
        raise RefusedError("a pad that cuts off")
    indices = [np.arange(d) for d in shape]
    for axis, (before, after) in zip(axes, pads.T, strict=True):
        indices[axis] = _index_padded(shape[axis], int(before), int(after), mode)
    _add_move(made, node, indices, _fill(made, node))


def _fill(made: Importing, node: onnx.NodeProto) -> int:
    """Return what a constant pad writes: a byte of the file, or a real number in the tensor's
    quanta."""
    tensor = made.tensors[made.data(node, 0)]
    given = made.number(node, 2) if len(node.input) > 2 and node.input[2] else np.int8(0)
    if np.issubdtype(given.dtype, np.floating):
        quanta = np.rint(np.float32(given) / np.float32(tensor.scale)) + tensor.zero
        return int(np.clip(quanta, *INT8))
    return int(given) - made.offset(node.output[0])


def _index_padded(extent: int, before: int, after: int, mode: str) -> np.ndarray:
    """Return what each index of a padded axis reads."""
    index = np.arange(-before, extent + after)
    if mode == "constant":
        return np.where((index < 0) | (index >= extent), -1, index)
    if mode == "edge":
        return index.clip(0, extent - 1)
    if mode == "reflect" and max(before, after) < extent:
        return (extent - 1) - np.abs((extent - 1) - np.abs(index))
    raise RefusedError(f"a pad by '{mode}' of {before} and {after} beside {extent}")


def _resized_axes(
    made: Importing, node: onnx.NodeProto, scales_index: int
) -> tuple[str, list[tuple[int, int, float | None]]]:
    """Return the coordinates of a resize; what each axis has, is to have, and the scale that is
    given."""
    given = options(node)
    if "axes" in given or int(given.get("antialias", 0)):
        raise RefusedError("a resize of some axes, or with antialias")
    if given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise RefusedError("a resize that keeps the ratio of the sides")
    coordinates = given.get("coordinate_transformation_mode", b"half_pixel").decode()
    shape, wanted = made.shape(node.input[0]), made.shape(node.output[0])
    scales: list[float | None] = [None] * len(shape)
    if len(node.input) > scales_index and node.input[scales_index]:
        found = made.constant(node, scales_index).reshape(-1)
        scales = [float(s) for s in found] if found.size else scales
    return coordinates, list(zip(shape, wanted, scales, strict=True))


def _resize(made: Importing, node: onnx.NodeProto) -> None:
    """To the nearest element, as onnxruntime finds it."""
    given = options(node)
    if is_linear_resize(node):
        raise RefusedError(
            "a linear resize of bytes, which onnxruntime computes in one of two ways, by what "
            "stands beside it; between conversions (QDQ) it can go"
        )
    if given.get("mode", b"nearest") != b"nearest":
        raise RefusedError("a resize by cubes, expected nearest or linear")
    coordinates, axes = _resized_axes(made, node, 2)
    rounding = given.get("nearest_mode", b"round_prefer_floor").decode()
    indices = []
    for have, want, scale in axes:
        places = nearest_places(have, want, scale, coordinates, rounding)
        if places is None:
            raise RefusedError(f"places by '{coordinates}', rounded by '{rounding}'")
        indices.append(places.astype(np.int64))
    _add_move(made, node, indices, 0)


def _linear_resize(made: Importing, node: onnx.NodeProto) -> None:
    """Of the last two of four axes, between conversions."""
    coordinates, axes = _resized_axes(made, node, 6)
    if len(axes) != 4 or any(have != want for have, want, _ in axes[:2]):
        raise RefusedError("a linear resize of other axes than two of an image")
    if coordinates not in MODES:
        raise RefusedError(f"places by '{coordinates}'")
    rows, columns = (_shares(*axis, coordinates) for axis in axes[2:])
    scales = np.float32(made.number(node, 1)), np.float32(made.number(node, 3))
    zero, source = int(made.number(node, 4)), made.data(node, 0)
    made.operators.append(
        FloatBilinear(
            source=source,
            result=made.make(node.output[0], float(scales[1]), zero),
            rows=rows,
            columns=columns,
            scales=scales,
            zeros=(made.tensors[source].zero, zero),
            offset=made.offset(node.output[0]),
        )
    )


def _shares(have: int, want: int, scale: float | None, coordinates: str) -> FloatBetween:
    """Two places of an axis for each result, and their shares, in float32 as onnxruntime has it."""
    most = np.float32(have - 1)
    places = float_places(have, want, scale, coordinates).clip(np.float32(0), most)
    if max(have, want) > _MOST_EXTENT:
        raise RefusedError(f"{have} resized to {want}")
    first = places.astype(np.int64)
    second = np.minimum(first + 1, have - 1)
    of_first = np.where(first == second, _HALF, np.abs(places - second.astype(np.float32)))
    of_second = np.where(first == second, _HALF, np.abs(places - first.astype(np.float32)))
    return FloatBetween(first=first, second=second, of_first=of_first, of_second=of_second)


def _slice(made: Importing, node: onnx.NodeProto) -> None:
    """Every so many elements of some axes."""
    shape = made.shape(node.input[0])
    begins, ends = (made.constant(node, index).reshape(-1) for index in (1, 2))
    axes, steps = np.arange(len(begins)), np.ones(len(begins), np.int64)
    if len(node.input) > 3 and node.input[3]:
        axes = made.constant(node, 3).reshape(-1)
    if len(node.input) > 4 and node.input[4]:
        steps = made.constant(node, 4).reshape(-1)
    indices = [np.arange(d) for d in shape]
    for begin, end, axis, step in zip(begins, ends, axes, steps, strict=True):
        along = slice(int(begin), int(end), int(step))
        # What lies before the first element is the end of a backward walk, as None is in Python.
        if step < 0 and end < -shape[int(axis)]:
            along = slice(int(begin), None, int(step))
        indices[int(axis)] = np.arange(shape[int(axis)])[along]
    _add_move(made, node, indices, 0)


def _split(made: Importing, node: onnx.NodeProto) -> None:
    """Parts of one axis, one after another."""
    shape = made.shape(node.input[0])
    axis = int(options(node).get("axis", 0)) % len(shape)
    begin = 0
    for name in node.output:
        extent = made.shape(name)[axis]
        indices = [np.arange(d) for d in shape]
        indices[axis] = np.arange(begin, begin + extent)
        one = onnx.helper.make_node("Slice", [node.input[0]], [name])
        _add_move(made, one, indices, 0)
        begin += extent


MOVES: dict[str, Translation] = {
    LINEAR_RESIZE: _linear_resize,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
}
