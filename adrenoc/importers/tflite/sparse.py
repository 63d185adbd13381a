"""Sparse constants of TFLite files, written out dense.

Each axis, in the order in which the file walks them, is dense or a list of segments and indices
(compressed sparse rows); blocks are further axes at the end.

Source: SparsityParameters of the TFLite schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_DENSE = 0


def dense_of(sparsity: Any, stored: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the dense array of a sparse tensor.

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
    for position in _walk([_axis(axis) for axis in axes], 0, 0, []):
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


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """What a walk needs of an axis: its extent where it is dense, else its rows and indices."""

    extent: int = 0
    segments: Sequence[int] = ()
    indices: Sequence[int] = ()


def _axis(table: Any) -> _Axis:
    if table.Format() == _DENSE:
        return _Axis(extent=int(table.DenseSize()))
    return _Axis(segments=_numbers(table, "ArraySegments"), indices=_numbers(table, "ArrayIndices"))


def _walk(axes: list[_Axis], level: int, parent: int, position: list[int]) -> Iterator[list[int]]:
    if level == len(axes):
        yield position
        return
    axis = axes[level]
    if not axis.segments:
        for step in range(axis.extent):
            yield from _walk(axes, level + 1, parent * axis.extent + step, [*position, step])
        return
    for place in range(axis.segments[parent], axis.segments[parent + 1]):
        yield from _walk(axes, level + 1, place, [*position, axis.indices[place]])


def _numbers(axis: Any, name: str) -> list[int]:
    """Return a vector of 32, 16 or 8 bit integers: a union."""
    import tflite

    kinds = {v: k for k, v in vars(tflite.SparseIndexVector).items() if isinstance(v, int)}
    table = getattr(axis, name)()
    reader = getattr(tflite, kinds[getattr(axis, f"{name}Type")()])()
    reader.Init(table.Bytes, table.Pos)
    return [int(v) for v in reader.ValuesAsNumpy()]
