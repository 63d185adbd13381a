"""Seeded weights that behave like trained ones.

Plain random weights make deep networks chaotic: half precision then loses a tenth of the output
range, and a comparison tests nothing.  Here half of each spatial filter is a low-pass (all taps
alike), residual branches are scaled by 0.3, and norms spread a little around the identity.
"""

import math

import numpy as np

RESIDUAL_SCALE = 0.3


class Weights:
    """A stream of weights; the same seed gives the same stream."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def filters(self, shape: tuple[int, ...], fan_in: float, gain: float = 2.0) -> np.ndarray:
        """Filters [out, in, kh, kw] with the variance gain / fan_in."""
        std = math.sqrt(gain / fan_in)
        taps = self._random.standard_normal(shape)
        if shape[2] * shape[3] > 1:
            smooth = self._random.standard_normal((*shape[:2], 1, 1))
            taps = (taps + smooth) / math.sqrt(2.0)
        if shape[1] > 1:
            # Activations behind a ReLU have a positive mean.  Filters that sum to zero do not see
            # it, and what the image says is not drowned in offsets of the weights' making.
            taps = taps - taps.mean(axis=(1, 2, 3), keepdims=True)
        return (taps * std).astype(np.float32)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        """A matrix for a linear layer of `rows` inputs; each column sums to zero."""
        values = self._random.standard_normal((rows, columns)) * math.sqrt(gain / rows)
        values -= values.mean(axis=0)
        return values.astype(np.float32)

    def bias(self, count: int, std: float = 0.05) -> np.ndarray:
        """Small offsets."""
        return (self._random.standard_normal(count) * std).astype(np.float32)

    def near(self, centre: float, spread: float, count: int) -> np.ndarray:
        """Numbers in centre - spread to centre + spread."""
        return self._random.uniform(centre - spread, centre + spread, count).astype(np.float32)
