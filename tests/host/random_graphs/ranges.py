"""Ranges of numbers that networks are fed with: each is a function of a generator and a shape."""

from collections.abc import Callable

import numpy as np

Range = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _even(low: float, high: float) -> Range:
    return lambda random, shape: random.uniform(low, high, shape)


def _around_mean(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    mean = 10 ** random.uniform(1, 4)
    return mean * (1 + 10 ** random.uniform(-4, -2) * random.normal(size=shape))


def _mixed_scales(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    channels = shape[1] if len(shape) == 4 else shape[-1]
    scales = 10 ** random.uniform(-4, 3, channels)
    scales = scales.reshape(-1, 1, 1) if len(shape) == 4 else scales
    return random.normal(size=shape) * scales


def _constant_rows(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    rows = random.normal(size=(*shape[:-1], 1)) * 10 ** random.uniform(-2, 3)
    return np.broadcast_to(rows, shape) * (1 + 1e-3 * (random.uniform(size=shape) < 0.05))


def _sparse(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(size=shape) * (random.uniform(size=shape) < 0.05)


RANGES: dict[str, Range] = {
    "tiny": _even(-1e-6, 1e-6),
    "small": _even(-1e-3, 1e-3),
    "unit": lambda random, shape: random.normal(size=shape),
    "pixels": _even(0, 255),
    "sound": _even(-32768, 32767),
    "uint16": _even(0, 65535),
    "million": _even(-1e6, 1e6),
    "mean": _around_mean,
    "channels": _mixed_scales,
    "constant": _constant_rows,
    "sparse": _sparse,
}
