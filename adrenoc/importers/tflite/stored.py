"""Stored bytes of a constant: within the tables of the file or behind them, and as an array.

Sparse constants are written out dense.  Each axis, in the order in which the file walks them, is
dense or a list of segments and indices (compressed sparse rows); blocks are further axes at the
end.  A scale for each block of a row is a tensor of its own.

Source: TFLite schema version 3, SparsityParameters and BlockwiseQuantization; LiteRT's kernels.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np

_NIBBLE = 4


def read_behind(buffer: Any, content: bytes) -> np.ndarray:
    """Return the bytes that a buffer names behind all tables, as files of 2 GB have them; none as a
    rule. Raises ValueError where they lie outside of the file."""
    begin, size = int(buffer.Offset()), int(buffer.Size())
    if begin <= 1:  # 1 is what a writer puts there before it knows
        return np.zeros(0, np.uint8)
    if begin + size > len(content):
        raise ValueError(f"a buffer ends at byte {begin + size} of {len(content)}")
    return np.frombuffer(content, np.uint8, size, begin)


def number_names(names: Iterable[str]) -> list[str]:
    """Tell tensors of one name apart, as a file may have them: `t`, `t__1`, `t__2`."""
    seen: Counter[str] = Counter()
    found = []
    for index, given in enumerate(names):
        name = given or f"tensor_{index}"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}__{seen[name] - 1}")
    return found


def decode_stored(stored: np.ndarray, dtype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return the stored bytes as an array; of two 4-bit numbers in a byte the lower is first."""
    count = math.prod(shape)
    if dtype == "int4":
        pairs = np.stack([stored & 15, stored >> _NIBBLE], -1).reshape(-1)[:count]
        return ((pairs.astype(np.int8) ^ 8) - 8).reshape(shape)
    wanted = count * np.dtype(dtype).itemsize
    if stored.nbytes != wanted:
        raise ValueError(f"'{name}' stores {stored.nbytes} bytes, expected {wanted}")
    return stored.view(dtype).reshape(shape)


_BUILTIN_CODE = 10
"""Where the vtable of an operator's code has its newer number, from 127 on and below it."""


def builtin_code(code: Any) -> int:
    """Return the newer number as stored: the package gives the older one below 127."""
    return _read_int32(code._tab, _BUILTIN_CODE)


def _read_int32(table: Any, slot: int) -> int:
    """Return a field that the package knows by another name or not at all; 0 where it is not."""
    at = table.Offset(slot)
    return int(table.Get(flatbuffers.number_types.Int32Flags, at + table.Pos)) if at else 0


_DENSE = 0


def dense_of(sparsity: Any, stored: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the dense array of a sparse tensor. Raises ValueError where the indices do not fit the
    shape or the number of stored values."""
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


_BLOCKWISE = 2
"""As the schema numbers what a quantisation may be beside scales and zero points."""
_SCALES, _ZEROS, _BLOCK = 4, 6, 8
"""Places of the table's fields, which the package for TFLite's schema does not know yet."""


@dataclass(frozen=True, kw_only=True)
class BlockQuantisation:
    """Tensors that hold scales and zero points (0 or less: none), and how long a block is."""

    scales: int
    zeros: int
    block: int


def read_blocks(quantisation: Any) -> BlockQuantisation | None:
    """Return what a tensor's quantisation says of blocks."""
    if quantisation is None or quantisation.DetailsType() != _BLOCKWISE:
        return None
    table = quantisation.Details()
    if table is None:
        return None
    scales, zeros, block = (_read_int32(table, slot) for slot in (_SCALES, _ZEROS, _BLOCK))
    return BlockQuantisation(scales=scales, zeros=zeros, block=block)


def read_scales(
    name: str, shape: Sequence[int], blocks: BlockQuantisation, values: Sequence[np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales of a tensor's blocks, [rows, blocks of a row], and their zero points.

    `values` are what the graph's tensors hold. Raises ValueError where they fit no blocks of its
    rows."""
    if not 0 <= blocks.scales < len(values) or not -1 <= blocks.zeros < len(values):
        raise ValueError(f"'{name}' names tensors for its scales that do not exist")
    scales = values[blocks.scales]
    wide = blocks.block > 0 and len(shape) > 1 and not shape[-1] % blocks.block
    count = int(np.prod(shape)) // blocks.block if wide else 0
    if scales is None or scales.size != count or scales.dtype.kind != "f":
        raise ValueError(
            f"'{name}' has blocks of {blocks.block} in rows of {list(shape[-1:])}, which its "
            "scales do not fit"
        )
    zeros = values[blocks.zeros] if blocks.zeros > 0 else None
    whole = np.zeros(1, np.int64) if zeros is None else zeros.astype(np.int64).reshape(-1)
    return scales.astype(np.float32).reshape(-1, shape[-1] // blocks.block), whole


def serialise(model: Any) -> bytes:
    """Return the file of a model that was read into LiteRT's objects."""
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
