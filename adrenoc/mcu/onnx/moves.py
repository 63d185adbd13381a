"""Pads and enlargements of quantised ONNX models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from adrenoc.importers.onnx.resize_whole import nearest_places
from adrenoc.mcu.fixed_point import INT8
from adrenoc.mcu.onnx.context import Importing, Translation, options
from adrenoc.mcu.operators import Move

_TO_LAST = (0, 2, 3, 1)


def _moved(made: Importing, node: onnx.NodeProto, indices: Sequence[np.ndarray], fill: int) -> None:
    """A move, of the index on each axis of the file (-1: outside)."""
    source = made.data(node, 0)
    shape = made.tensors[source].shape
    ordered = [indices[a] for a in _TO_LAST] if len(indices) == 4 else list(indices)
    if len(ordered) > 4:
        raise NotImplementedError(f"{len(ordered)} axes")
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
        raise NotImplementedError("a pad that cuts off")
    indices = [np.arange(d) for d in shape]
    for axis, (before, after) in zip(axes, pads.T, strict=True):
        indices[axis] = _padded(shape[axis], int(before), int(after), mode)
    _moved(made, node, indices, _fill(made, node))


def _fill(made: Importing, node: onnx.NodeProto) -> int:
    """What a constant pad writes: a byte of the file, or a real number in the tensor's quanta."""
    tensor = made.tensors[made.data(node, 0)]
    given = made.number(node, 2) if len(node.input) > 2 and node.input[2] else np.int8(0)
    if np.issubdtype(given.dtype, np.floating):
        quanta = np.rint(np.float32(given) / np.float32(tensor.scale)) + tensor.zero
        return int(np.clip(quanta, *INT8))
    return int(given) - made.offset(node.output[0])


def _padded(extent: int, before: int, after: int, mode: str) -> np.ndarray:
    """What each index of a padded axis reads."""
    index = np.arange(-before, extent + after)
    if mode == "constant":
        return np.where((index < 0) | (index >= extent), -1, index)
    if mode == "edge":
        return index.clip(0, extent - 1)
    if mode == "reflect" and max(before, after) < extent:
        return (extent - 1) - np.abs((extent - 1) - np.abs(index))
    raise NotImplementedError(f"a pad by '{mode}' of {before} and {after} beside {extent}")


def _resize(made: Importing, node: onnx.NodeProto) -> None:
    """To the nearest element, as onnxruntime finds it."""
    given = options(node)
    if given.get("mode", b"nearest") != b"nearest":
        raise NotImplementedError("a resize between elements: quantise it as TFLite does")
    if "axes" in given or int(given.get("antialias", 0)):
        raise NotImplementedError("a resize of some axes, or with antialias")
    if given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise NotImplementedError("a resize that keeps the ratio of the sides")
    coordinates = given.get("coordinate_transformation_mode", b"half_pixel").decode()
    rounding = given.get("nearest_mode", b"round_prefer_floor").decode()
    shape, wanted = made.shape(node.input[0]), made.shape(node.output[0])
    scales: list[float | None] = [None] * len(shape)
    if len(node.input) > 2 and node.input[2]:
        found = made.constant(node, 2).reshape(-1)
        scales = [float(s) for s in found] if found.size else scales
    indices = []
    for have, want, scale in zip(shape, wanted, scales, strict=True):
        places = nearest_places(have, want, scale, coordinates, rounding)
        if places is None:
            raise NotImplementedError(f"places by '{coordinates}', rounded by '{rounding}'")
        indices.append(places.astype(np.int64))
    _moved(made, node, indices, 0)


MOVES: dict[str, Translation] = {"Pad": _pad, "Resize": _resize}
