"""How far outputs are from what is expected, over all sets of inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.device.compare import TensorCheck, compare
from adrenoc.device.uncertainty import ONE

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """Errors over the range of each output, infinite where a value is not finite.

    `largest` is that of the worst element, `rms` the root of the mean square over all elements of
    float outputs: noise of one size gives much the same `rms` each time, and any `largest`.
    `accepted_as` says why outputs beyond the tolerance are no error of ours, empty where none is;
    `left` is then the largest error of the others.
    """

    largest: float
    rms: float
    accepted_as: str = ""
    left: float = 0.0

    @property
    def counted(self) -> float:
        """What a tolerance is held against."""
        return self.left if self.accepted_as else self.largest


def deviation(seen: Sequence[Arrays], expected: Sequence[Arrays]) -> Deviation:
    """How far several sets of outputs, by name, are from what is expected of each."""
    largest, squares = 0.0, []
    for made, wanted in zip(seen, expected, strict=True):
        for name, value in wanted.items():
            largest = max(largest, range_error(made[name], value))
            if value.dtype.kind == "f":
                squares.append(_mean_square(made[name], value))
    return Deviation(largest=largest, rms=math.sqrt(math.fsum(squares) / max(1, len(squares))))


def range_error(seen: np.ndarray, expected: np.ndarray) -> float:
    """The largest error over the range of what is expected; infinite where one is not finite."""
    return error_of(compare({"": seen}, {"": expected}, tolerance=1.0).tensors[0])


def error_of(check: TensorCheck) -> float:
    """The error of one output over its range; infinite where one value is not finite."""
    return math.inf if check.bad_values else check.range_error


def step_over_range(step: float, expected: np.ndarray) -> float:
    """What a tensor that is one step off in one place is off by over its range."""
    return range_error(expected.astype(np.float64) + step * ONE, expected)


def _mean_square(seen: np.ndarray, expected: np.ndarray) -> float:
    if seen.shape != expected.shape:
        return math.inf
    a, b = seen.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (np.isfinite(a) & np.isfinite(b) | same).all():
        return math.inf
    finite = b[np.isfinite(b)]
    if not finite.size:
        return 0.0
    scale = float(np.ptp(finite)) or float(np.abs(finite).max()) or 1.0
    error = np.subtract(a, b, where=~same, out=np.zeros_like(a))
    return float(np.mean(np.square(error))) / scale**2
