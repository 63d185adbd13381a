"""A network of int8 or int16 in integers alone: what importers make and everything below reads.

Data are NHWC with a batch of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from adrenoc.firmware.mcu.operators import (
    Convolution,
    Depthwise,
    FloatPool,
    Join,
    Operator,
    Pool,
    Product,
    Sum,
    WordSum,
)

WIDTHS = {"int8": 1, "int16": 2}
"""Bytes of a number, by what tensors may be of."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """A tensor of int8 or int16; real = scale * (stored - zero)."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    dtype: str = "int8"

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return WIDTHS[self.dtype]

    @property
    def size_bytes(self) -> int:
        """What it takes of memory."""
        return self.elements * self.width

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest number that it may hold."""
        most = (1 << (8 * self.width - 1)) - 1
        return -most - 1, most


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Operators in the order of execution, over tensors by index."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    labels: tuple[str, ...] = field(default=())
    """What a report calls each operator."""
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    """Tensors that are known beforehand, beside weights."""
    dtypes: Mapping[int, str] = field(default_factory=dict)
    """Inputs and outputs that are neither int8 nor int16 in the model: what they are there."""
    kept: tuple[np.ndarray, ...] = ()
    """Where some were left out, which of its channels each tensor still has."""

    def shape4(self, index: int) -> tuple[int, int, int, int]:
        """Return a tensor's shape as N, H, W, C, with ones before what it has."""
        return shape4(self.tensors[index].shape)


def shape4(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return a shape of at most four axes as N, H, W, C."""
    n, h, w, c = (1,) * (4 - len(shape)) + tuple(shape)
    return n, h, w, c


def image_extents(operator: Depthwise | Pool | FloatPool, network: Network) -> dict[str, int]:
    """Return the images that an operator with a window reads and makes, as fields of its C
    struct."""
    _, height, width, channels = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    return {
        "in_height": height,
        "in_width": width,
        "channels": channels,
        "out_height": out_height,
        "out_width": out_width,
    }


def sources_of(operator: Operator) -> tuple[int, ...]:
    """Return the tensors that an operator reads."""
    if isinstance(operator, Sum | WordSum | Product | Join):
        return operator.sources
    if isinstance(operator, Convolution) and operator.joined is not None:
        return operator.source, operator.joined.sources[1]
    return (operator.source,)


def has_words(network: Network, operator: Operator) -> bool:
    """Return whether an operator reads or makes int16."""
    indices = (operator.result, *sources_of(operator))
    return any(network.tensors[index].dtype == "int16" for index in indices)


def multiply_adds(network: Network, result: int) -> int:
    """Return how many products are added up to make a tensor; borders count as if they lay
    inside."""
    maker = next((o for o in network.operators if o.result == result), None)
    if isinstance(maker, Convolution):
        channels = maker.weights.shape[0]
        return network.tensors[result].elements // channels * maker.weights.size
    if isinstance(maker, Depthwise):
        taps = maker.weights.shape[0] * maker.weights.shape[1]
        return network.tensors[result].elements * taps
    return 0
