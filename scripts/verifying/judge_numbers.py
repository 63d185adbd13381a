"""Judge numbers one by one: what is beyond the bar is wrong, unless floats are as far off there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from tests.host.random_graphs.exact import in_doubles

Arrays = Mapping[str, np.ndarray]

BARS = {"fp32": 1e-4, "mixed": 1e-2, "fp16": 1e-2}
"""Largest deviation by preset, as a share of the right values' range."""
_LEAST_SPAN = 2.0**-10
_DRAWS = 8
_OF_DRAWS = 4.0
"""The largest of a few draws stands for what may come: so many times that."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How one output compares with its right values.

    `deviation` is the largest error of the numbers that count over the range, infinite where one is
    not finite and should be (or the other way around); `excused` counts the numbers beyond the bar
    that floats may be as far from, which do not count.
    """

    deviation: float
    excused: int = 0
    said: str = ""

    def is_right(self, preset: str) -> bool:
        """Whether it is within the bar of its preset."""
        return not self.said and self.deviation <= BARS[preset]


def judge(seen: np.ndarray, right: np.ndarray, spread: np.ndarray | None, bar: float) -> Verdict:
    """Compare an output with its right values; `spread` is how far a float may be from each."""
    if seen.shape != right.shape:
        return Verdict(deviation=np.inf, said=f"has shape {seen.shape}, not {right.shape}")
    if seen.size == 0:
        return Verdict(deviation=0.0)
    if seen.dtype.kind != "f":
        return _judge_choices(seen, right, spread)
    with np.errstate(all="ignore"):
        right = right.astype(np.float32).astype(np.float64)  # beyond a float is infinite
    seen = seen.astype(np.float64)
    span = span_of(right)
    unlike = np.where(
        np.isfinite(right),
        ~np.isfinite(seen),
        ~((seen == right) | (np.isnan(seen) & np.isnan(right))),
    )
    with np.errstate(all="ignore"):
        error = np.where(np.isfinite(right), np.abs(seen - right), 0.0) / span
    error = np.where(unlike, np.inf, error)
    excused = np.zeros(right.shape, bool)
    if spread is not None:
        excused = (error > bar) & (error <= _OF_DRAWS * spread / span)
    counted = error[~excused]
    bad = int(np.count_nonzero(np.isinf(counted)))
    said = f"{bad} of {right.size} numbers are not finite, or finite where they should not be"
    return Verdict(
        deviation=float(counted.max(initial=0.0)),
        excused=int(excused.sum()),
        said=said if bad else "",
    )


def _judge_choices(seen: np.ndarray, right: np.ndarray, spread: np.ndarray | None) -> Verdict:
    """Indices, labels and masks are right or wrong each by itself."""
    known = np.ones(right.shape, bool) if spread is None else spread == 0
    differs = int(np.count_nonzero((seen != right) & known))
    said = f"{differs} of {right.size} choices differ" if differs else ""
    share = differs / right.size
    return Verdict(deviation=share, excused=int((~known).sum()), said=said)


def span_of(right: np.ndarray) -> float:
    """Largest less smallest finite number; a thousandth of the largest size where that is more, for
    floats tell numbers no further apart."""
    finite = right[np.isfinite(right)]
    if not finite.size:
        return 1.0
    largest = float(np.abs(finite).max())
    return max(float(np.ptp(finite)), _LEAST_SPAN * largest) or 1.0


def find_spread(
    model: onnx.ModelProto, inputs: Arrays, *, ruled: Mapping[str, float] | None = None
) -> dict[str, np.ndarray]:
    """How far each number may be from the right one by the rounding of floats alone: to the nearest
    ones, and up or down at random.

    The tensors that `ruled` names may be off by halves, too.  Empty where onnx's reference cannot
    compute the model.
    """
    right = in_doubles(model, inputs)
    if right is None:
        return {}
    spread = {name: np.zeros(np.shape(value)) for name, value in right.items()}
    draws = [in_doubles(model, inputs, nearest=True)]
    for draw in range(_DRAWS):
        random = np.random.default_rng(draw)
        draws.append(in_doubles(model, inputs, rounding=random, relative=ruled))
    for drawn in draws:
        for name, value in (drawn or {}).items():
            spread[name] = np.maximum(spread[name], _distance(value, right[name]))
    return spread


def _distance(value: np.ndarray, right: np.ndarray) -> np.ndarray:
    if value.dtype.kind != "f":
        return np.asarray(value != right, np.float64)
    with np.errstate(all="ignore"):
        value, right = (v.astype(np.float32).astype(np.float64) for v in (value, right))
        same = (value == right) | (np.isnan(value) & np.isnan(right))
        return np.where(same, 0.0, np.nan_to_num(np.abs(value - right), nan=np.inf))
