"""The sums that a filter can come to: what proofs about its arithmetic range over."""

from __future__ import annotations

import numpy as np

from adrenoc.base.errors import CompileError
from adrenoc.firmware.mcu.operators import Convolution, Depthwise

_MOST = (1 << 31) - 1


def sum_range(operator: Convolution | Depthwise) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest sum of each channel, with its bias, borders included.

    Raises:
        CompileError: a sum may overflow 32 bits.
    """
    if isinstance(operator, Depthwise):
        weights = operator.weights.reshape(-1, operator.weights.shape[-1]).T.astype(np.int64)
    else:
        weights = operator.weights.reshape(operator.weights.shape[0], -1).astype(np.int64)
    # A tap outside of the image adds nothing: as if it read the zero point, which is in range.
    low, high = -128 - operator.zero_in, 127 - operator.zero_in
    up, down = np.maximum(weights, 0).sum(1), np.minimum(weights, 0).sum(1)
    least = up * low + down * high + operator.bias
    most = up * high + down * low + operator.bias
    if max(-int(least.min()), int(most.max())) > _MOST:
        raise CompileError(
            "a layer's sums may grow beyond 32 bits, as no converter writes them",
            hint="convert the model again",
        )
    return least, most
