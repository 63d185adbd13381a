"""Hold the error of a plan against what ideal rounding gives on the same inputs."""

from __future__ import annotations

import math

from adrenoc.check.accuracy.deviation import Deviation
from adrenoc.check.accuracy.result import Floor

_NO_ERROR = 1e-7
"""Of the range: a float32 kernel rounds by more, so that ratios of less say nothing."""


def floor_of(ours: Deviation, ideal: Deviation, exact: Deviation, tensors: int) -> Floor:
    """The floor under an error, where `tensors` are rounded; `exact` is of float32 throughout."""
    if math.isinf(ours.rms):
        ratio = 1.0 if math.isinf(ideal.rms) else math.inf
    else:
        ratio = max(ours.rms, _NO_ERROR) / max(ideal.rms, _NO_ERROR)
    return Floor(
        error=ideal.largest,
        rms=ideal.rms,
        our_rms=ours.rms,
        ratio=ratio,
        tensors=tensors,
        float32_error=exact.largest,
        float32_counted=exact.counted,
        float32_rms=exact.rms,
    )
