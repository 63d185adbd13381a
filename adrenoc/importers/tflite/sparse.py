"""Sparse constants of TFLite files, written out dense.

Each axis, in the order in which the file walks them, is dense or a list of segments and indices
(compressed sparse rows); blocks are further axes at the end.

Source: SparsityParameters of the TFLite schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_DENSE = 0


def dense_of(sparsity: Any, stored: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The dense array of a sparse tensor.

    Raises:
        ValueError: the indices do not fit the shape or the number of stored values.
    """
    order = [int(i) for i in sparsity.TraversalOrderAsNumpy()]
    blocks = sparsity.BlockMapAsNumpy()
    block_axes = [] if isinstance(blocks, int) else [int(b) for b in blocks]
    axes = [sparsity.DimMetadata(i) for i in range(sparsity.DimMetadataLength())]
    values = stored.view(dtype)
    rank = len(shape)
    # How many elements a step along each walked axis spans: a block axis cuts its axis in two.
    spans = [1] * rank
    for number, axis in enumerate(block_axes):
        spans[axis] = int(axes[order.index(rank + number)].DenseSize())
    result = np.zeros(shape, dtype)
    count = 0
    for position in _walk(axes, 0, 0, []):
        index = [0] * rank
        for level, step in enumerate(position):
            axis = order[level]
            if axis < rank:
                index[axis] += step * spans[axis]
            else:
                index[block_axes[axis - rank]] += step
        result[tuple(index)] = values[count]
        count += 1
    if count != values.size:
        raise ValueError(f"a sparse tensor stores {values.size} values for {count} places")
    return result


def _walk(axes: list[Any], level: int, parent: int, position: list[int]) -> Iterator[list[int]]:
    if level == len(axes):
        yield position
        return
    axis = axes[level]
    if axis.Format() == _DENSE:
        extent = int(axis.DenseSize())
        for step in range(extent):
            yield from _walk(axes, level + 1, parent * extent + step, [*position, step])
        return
    segments, indices = _numbers(axis, "ArraySegments"), _numbers(axis, "ArrayIndices")
    for place in range(segments[parent], segments[parent + 1]):
        yield from _walk(axes, level + 1, place, [*position, int(indices[place])])


def _numbers(axis: Any, name: str) -> list[int]:
    """A vector of 32, 16 or 8 bit integers: a union."""
    import tflite

    kinds = {v: k for k, v in vars(tflite.SparseIndexVector).items() if isinstance(v, int)}
    table = getattr(axis, name)()
    reader = getattr(tflite, kinds[getattr(axis, f"{name}Type")()])()
    reader.Init(table.Bytes, table.Pos)
    return [int(v) for v in reader.ValuesAsNumpy()]
