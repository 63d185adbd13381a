"""Transposed convolutions as plain ones: zeros between elements, and the kernel turned round."""

from __future__ import annotations

import numpy as np

from adrenoc.base.refused import RefusedError


def spread_axis(have: int, want: int, taps: int, stride: int, pad: int) -> tuple[int, np.ndarray]:
    """Spread one axis for a transposed convolution: what the convolution pads before, and which
    element each index of it reads.

    -1 is a zero between two elements.  `pad` is what the transposed convolution cuts off before,
    `taps` the whole extent of the kernel.

    Raises:
        RefusedError: more is cut off than the kernel adds.
    """
    if pad > taps - 1:
        raise RefusedError("a padding wider than its kernel")
    # A window of one element has no border, so zeros stand for what lies beyond the last one.
    index = np.arange(want if taps == 1 else (have - 1) * stride + 1)
    outside = (index % stride != 0) | (index // stride >= have)
    return taps - 1 - pad, np.where(outside, -1, index // stride)
