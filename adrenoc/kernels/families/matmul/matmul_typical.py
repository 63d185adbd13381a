"""What products of matrices make of data of about one."""

from __future__ import annotations

import numpy as np

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.shared.typical import (
    ROWS,
    NotKnownError,
    TypicalRun,
    have_one_sign,
    middle,
    sums_of_terms,
    weights_of,
)

_MOST_PRODUCTS = 1 << 19


def typical_product(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return the sums of a product, by a constant matrix or of two that are computed."""
    terms = run.graph.tensors[node.inputs[0]].shape[-1]
    if run.graph.tensors[node.inputs[1]].value is None:
        return _multiply_matrices(data, run.numbers(node.inputs[1]), terms)
    matrix = weights_of(run, node)
    if matrix.ndim != 2 or data.ndim < 2:
        raise NotKnownError
    rows = middle(data, keep=data.ndim - 2).reshape(len(data), -1)
    rows = np.broadcast_to(rows, (len(data), terms)).astype(np.float32)
    squares = np.zeros((len(data), matrix.shape[1]))
    for first in range(0, terms, ROWS):
        part = matrix[first : first + ROWS].astype(np.float32)
        squares += np.square(rows[:, first : first + ROWS]) @ np.square(part)
    sums = (rows @ matrix).astype(np.float64)
    made = sums_of_terms(sums, squares, alike=have_one_sign(matrix))
    return made.reshape(len(made), *[1] * (data.ndim - 2), -1)


def _multiply_matrices(left: np.ndarray, right: np.ndarray, terms: int) -> np.ndarray:
    """Return the product of two matrices, or stacks of them, that are both computed."""
    if min(left.ndim, right.ndim) < 3:
        raise NotKnownError
    if left.shape[-1] == right.shape[-2] == 1:
        return left * right * terms
    rows = left if left.shape[-1] > 1 else np.repeat(left, terms, axis=-1)
    columns = right if right.shape[-2] > 1 else np.repeat(right, terms, axis=-2)
    if rows.size * columns.shape[-1] > _MOST_PRODUCTS:
        rows = middle(rows, keep=rows.ndim - 2)
    rank = max(rows.ndim, columns.ndim)
    return np.asarray(np.matmul(_raise_rank(rows, rank), _raise_rank(columns, rank)))


def _raise_rank(array: np.ndarray, rank: int) -> np.ndarray:
    return array.reshape(array.shape[0], *[1] * (rank - array.ndim), *array.shape[1:])
