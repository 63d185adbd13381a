"""Options of custom operators that are a record of C in the file, as MediaPipe's writers put them.

Source: tensorflow/lite/core/c/builtin_op_data.h (TfLitePoolParams, TfLiteTransposeConvParams).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from adrenoc.base.refused import RefusedError
from adrenoc.importers.tflite.node import Node

_SAME, _VALID = 1, 2


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """A window; `is_same` pads so that every pixel begins one."""

    is_same: bool
    strides: tuple[int, int]
    window: tuple[int, int]
    activation: int


def pool_options(node: Node) -> PoolOptions:
    """Read TfLitePoolParams: padding, strides, window, activation.

    Raises:
        RefusedError: the record is too short, or says what no window is.
    """
    padding, across, down, width, height, activation = _ints(node, 6)
    return PoolOptions(
        is_same=_is_same(padding),
        strides=_check_sizes(down, across),
        window=_check_sizes(height, width),
        activation=activation,
    )


def transpose_options(node: Node) -> tuple[bool, tuple[int, int]]:
    """Read TfLiteTransposeConvParams: whether it pads, and strides by rows and columns.

    Raises:
        RefusedError: the record is too short, or has no strides.
    """
    padding, across, down = _ints(node, 3)
    return _is_same(padding), _check_sizes(down, across)


def _ints(node: Node, count: int) -> tuple[int, ...]:
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
