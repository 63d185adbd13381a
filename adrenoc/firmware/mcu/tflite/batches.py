"""Batches that converters make of dilated filters over time: rows of one image, and moves.

*Before -> after*: SPACE_TO_BATCH_ND -> CONV_2D of one row each -> BATCH_TO_SPACE_ND becomes a move,
a convolution of one image whose rows are those of the batch, and a move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.network import Tensor
from adrenoc.firmware.mcu.operators import Move, Reshape
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.firmware.mcu.tflite.context import (
    Importing,
    Translation,
    check_same_quanta,
    offsets_of,
)
from adrenoc.importers.tflite.file import Operator


def lay_as_one_image(
    made: Importing,
    operator: Operator,
    kernel_height: int,
    make: Callable[[int, int], NetworkOperator],
) -> NetworkOperator:
    """Return what `make` makes of a source and a result of one image; rows of a batch lie below
    another.

    Raises:
        RefusedError: there are several images, and windows that see more than a row.
    """
    shape = made.info(operator, 0).shape
    source, result = made.data(operator), operator.outputs[0]
    if len(shape) == 4 and shape[0] == 1:
        return make(source, result)
    rows = kernel_height == 1 and int(operator.options.get("StrideH", 1)) == 1
    if len(shape) != 4 or not rows:
        raise RefusedError(f"an input of {list(shape)}, expected a batch of one image")
    ends = []
    for index in (source, result):
        tensor = made.tensors[index]
        n, h, w, c = tensor.shape
        ends.append(made.new_tensor(replace(tensor, shape=(1, n * h, w, c))))
    made.operators.append(Reshape(source=source, result=ends[0]))
    made.operators.append(make(ends[0], ends[1]))
    return Reshape(source=ends[1], result=result)


def _blocks(made: Importing, operator: Operator) -> tuple[list[int], np.ndarray]:
    """Blocks of the axes after the first, and what is put before and after each, or cut off."""
    check_same_quanta(made.info(operator, 0), made.result(operator))
    blocks = made.constant(operator, 1, "int32", "int64").reshape(-1)
    ends = made.constant(operator, 2, "int32", "int64").reshape(-1, 2)
    if len(ends) != len(blocks) or blocks.min() < 1 or ends.min() < 0:
        raise RefusedError(f"blocks of {blocks.tolist()} with {ends.tolist()} at their ends")
    return [int(b) for b in blocks], ends.astype(np.int64)


def _space_to_batch(made: Importing, operator: Operator) -> NetworkOperator:
    """Return a pad where there is one; then each axis gives its place within a block to the
    batch."""
    blocks, ends = _blocks(made, operator)
    source = made.data(operator)
    tensor = made.tensors[source]
    if tensor.shape[0] != 1:
        raise RefusedError(f"an input of {list(tensor.shape)}, expected a batch of one")
    if ends.any():
        source, tensor = _pad(made, source, ends)
    steps = [math.prod(tensor.shape[a + 1 :]) for a in range(len(tensor.shape))]
    places = [np.zeros(1, np.int64)]
    indices = [np.arange(d) * step for d, step in zip(tensor.shape, steps, strict=True)]
    for axis, block in enumerate(blocks, start=1):
        within = np.arange(block) * steps[axis]
        places = [(places[0][:, None] + within).reshape(-1)]
        indices[axis] = indices[axis][::block]
    indices[0] = places[0]
    return _add_move(made, operator, source, indices)


def _pad(made: Importing, source: int, ends: np.ndarray) -> tuple[int, Tensor]:
    tensor = made.tensors[source]
    indices = [np.arange(d) for d in tensor.shape]
    for axis, (before, after) in enumerate(ends, start=1):
        extent = tensor.shape[axis]
        index = np.arange(-before, extent + after)
        indices[axis] = np.where((index < 0) | (index >= extent), -1, index)
    grown = replace(tensor, name=f"{tensor.name} padded", shape=tuple(map(len, indices)))
    made.operators.append(
        Move(
            source=source,
            result=made.new_tensor(grown),
            offsets=offsets_of(tensor.shape, indices),
            fill=tensor.zero,
        )
    )
    return made.operators[-1].result, grown


def _batch_to_space(made: Importing, operator: Operator) -> NetworkOperator:
    """Each index of an axis reads from the batch that has its place within a block."""
    blocks, ends = _blocks(made, operator)
    source = made.data(operator)
    shape = made.tensors[source].shape
    if math.prod(blocks) != shape[0]:
        raise RefusedError(f"a batch of {shape[0]} for blocks of {blocks}")
    steps = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    indices = [np.arange(d) * step for d, step in zip(shape, steps, strict=True)]
    indices[0] = np.zeros(1, np.int64)
    of_batch = shape[0]
    for axis, (block, (before, after)) in enumerate(zip(blocks, ends, strict=True), start=1):
        of_batch //= block
        index = np.arange(before, shape[axis] * block - after)
        indices[axis] = index % block * of_batch * steps[0] + index // block * steps[axis]
    return _add_move(made, operator, source, indices)


def _add_move(
    made: Importing, operator: Operator, source: int, offsets: list[np.ndarray]
) -> NetworkOperator:
    result = made.result(operator)
    if result.shape != tuple(map(len, offsets)):
        raise RefusedError(f"{list(map(len, offsets))} to {list(result.shape)}")
    if len(offsets) > 4:
        raise RefusedError(f"{len(offsets)} axes")
    a, b, c, d = [np.zeros(1, np.int64)] * (4 - len(offsets)) + offsets
    return Move(source=source, result=operator.outputs[0], offsets=(a, b, c, d), fill=0)


BATCHES: dict[str, Translation] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
}
