"""Fourier transforms of either format: a product with one matrix of both parts.

Source: ONNX operator reference: DFT-20.
"""

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import dtype_of, make_constant

_LARGEST_MATRIX = 1 << 26
"""Elements of a transform's matrix, which has both parts of each."""


def transform(
    emit: Callable[[relax.Expr], relax.Expr],
    x: relax.Expr,
    shape: Sequence[int],
    axis: int,
    *,
    length: int | None,
    inverse: bool,
    onesided: bool,
) -> relax.Expr:
    """Transform along `axis` by a product; the last axis holds real and imaginary parts.

    `length` pads or cuts the axis first.  With `onesided` the half of the spectrum that says all of
    real numbers is made, or taken.
    """
    held = shape[axis] * max(shape[axis], length or 0) * 4
    if held > _LARGEST_MATRIX:
        raise RefusedError(f"its matrix has {held} elements, expected up to {_LARGEST_MATRIX}")
    matrix = _dft_matrix(shape[axis], shape[-1], length, inverse=inverse, onesided=onesided)
    made, parts = matrix.shape[2:]
    rank = len(shape)
    order = [*(a for a in range(rank - 1) if a != axis), axis, rank - 1]
    rest = [shape[a] for a in order[:-2]]
    rows = relax.op.permute_dims(x, order)
    rows = relax.op.reshape(rows, [int(np.prod(rest)), shape[axis] * shape[-1]])
    flat = matrix.reshape(shape[axis] * shape[-1], made * parts).astype(dtype_of(x))
    product = emit(relax.op.matmul(rows, make_constant(flat)))
    product = relax.op.reshape(product, [*rest, made, parts])
    return relax.op.permute_dims(product, [int(a) for a in np.argsort(order)])


def _dft_matrix(
    extent: int, parts: int, length: int | None, *, inverse: bool, onesided: bool
) -> np.ndarray:
    """Return [extent, parts in, outputs, parts out] of the transform."""
    to_real = inverse and onesided
    length = length or (2 * (extent - 1) if to_real else extent)
    used = min(extent, length // 2 + 1 if to_real else length)
    outputs = length // 2 + 1 if onesided and not inverse else length
    n, k = np.arange(used)[:, None], np.arange(outputs)[None, :]
    sign = 1 if inverse else -1
    roots = np.exp(sign * 2j * np.pi * n * k / length) / (length if inverse else 1)
    if to_real:  # the other half of the spectrum is the conjugate of this one
        roots = roots * np.where((n == 0) | (2 * n == length), 1, 2)
    full = np.zeros((extent, outputs), np.complex128)
    full[:used] = roots
    # (a + bi)(c + di): what the real and the imaginary part of the input give.
    by_part = np.stack(
        [np.stack([full.real, full.imag], -1), np.stack([-full.imag, full.real], -1)]
    )
    return np.moveaxis(by_part, 0, 1)[:, :parts, :, : 1 if to_real else 2]
