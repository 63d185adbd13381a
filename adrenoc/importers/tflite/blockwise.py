"""Constants with a scale for each block of a row, whose scales are a tensor of their own.

Source: TFLite schema version 3, BlockwiseQuantization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np

_BLOCKWISE = 2
"""As the schema numbers what a quantisation may be beside scales and zero points."""
_SCALES, _ZEROS, _BLOCK = 4, 6, 8
"""Places of the table's fields, which the package for TFLite's schema does not know yet."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Tensors that hold scales and zero points (0 or less: none), and how long a block is."""

    scales: int
    zeros: int
    block: int


def read_blocks(quantisation: Any) -> Blocks | None:
    """Return what a tensor's quantisation says of blocks."""
    if quantisation is None or quantisation.DetailsType() != _BLOCKWISE:
        return None
    table = quantisation.Details()
    if table is None:
        return None

    def number(slot: int) -> int:
        at = table.Offset(slot)
        return int(table.Get(flatbuffers.number_types.Int32Flags, at + table.Pos)) if at else 0

    return Blocks(scales=number(_SCALES), zeros=number(_ZEROS), block=number(_BLOCK))


def read_scales(
    name: str, shape: Sequence[int], blocks: Blocks, values: Sequence[np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales of a tensor's blocks, [rows, blocks of a row], and their zero points.

    `values` are what the graph's tensors hold.

    Raises:
        ValueError: they fit no blocks of its rows.
    """
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
