"""An int8 network in integers alone: what importers make and everything below reads.

All real numbers of the file (scales) have become multipliers, shifts, tables and bounds, so
nothing here can round differently on another machine.  Data are NHWC with a batch of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """A tensor of int8; real = scale * (stored - zero)."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int

    @property
    def elements(self) -> int:
        """How many numbers, and bytes, it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantise:
    """From sums of int32 to int8: a factor for each channel (or one), zero point, bounds.

    A factor is `multipliers` and `shifts` in TFLite's fixed point, or, where `reals` holds
    something, that number: in float64 with one rounding, halves away from zero; or, where it is of
    float32, in that with halves to even, as onnxruntime rounds.
    """

    zero: int
    low: int
    high: int
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    shifts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    reals: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float64))


@dataclass(frozen=True, kw_only=True)
class Window:
    """How a kernel moves over an image; `bottom` and `right` are implied by the output."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    top: int = 0
    left: int = 0

    def steps(self) -> dict[str, int]:
        """Extents and strides in pixels, by the names that the structs of kernels have for them."""
        return {
            "kernel_height": self.kernel[0],
            "kernel_width": self.kernel[1],
            "stride_y": self.strides[0],
            "stride_x": self.strides[1],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution:
    """Sums over a window of all channels; `weights` O,H,W,I.  A dense layer has a window of 1x1.

    With `joined` its output is the first operand of that sum, which gives the result.
    """

    source: int
    result: int
    weights: np.ndarray
    bias: np.ndarray
    window: Window
    zero_in: int
    requantise: Requantise
    joined: Sum | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Depthwise:
    """Sums over a window, a channel at a time; `weights` H,W,O, with O a multiple of I."""

    source: int
    result: int
    weights: np.ndarray
    bias: np.ndarray
    window: Window
    zero_in: int
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """The `kind` ("average" or "max") of a window, without what lies outside of the image."""

    source: int
    result: int
    kind: str
    window: Window
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup:
    """Each number by a table of 256, from -128 on."""

    source: int
    result: int
    table: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum:
    """Two tensors, each with a table of its scaled numbers, which are added.

    The second may repeat along the first.
    """

    sources: tuple[int, int]
    result: int
    tables: tuple[np.ndarray, np.ndarray]
    requantise: Requantise
    wanted: np.ndarray | None = None
    """The results of all pairs, where a rule in floats gives them; tables are near then."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Softmax:
    """Over the last axis; `exponentials` of 0, -1 ... -255 quanta, zero where left out."""

    source: int
    result: int
    exponentials: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Product:
    """Two tensors multiplied, each less its zero point; the second may repeat along the first."""

    sources: tuple[int, int]
    result: int
    zeros: tuple[int, int]
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Mean:
    """Over one axis of three: what lies outside, what is summed, what lies inside of it."""

    source: int
    result: int
    extents: tuple[int, int, int]
    zero_in: int
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Move:
    """Elements at other places: for each axis of the result, where each index reads.

    `offsets` are elements of the source, to be added over the axes; -1 is a place outside, which
    holds `fill`.  There are four axes.
    """

    source: int
    result: int
    offsets: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    fill: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Between:
    """Where each index of one axis of an enlarged image reads: two places of the source's axis.

    `weights` are those of the second place, in 1/1024; the first has the rest.
    """

    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Bilinear:
    """Another size of an image, each number between four of the source's."""

    source: int
    result: int
    rows: Between
    columns: Between


@dataclass(frozen=True, kw_only=True, eq=False)
class Join:
    """Concatenation: `chunks` of each source, in turn, `count` times."""

    sources: tuple[int, ...]
    result: int
    chunks: tuple[int, ...]
    count: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Svdf:
    """Filters over time: each number of the input's products is kept for `memory` calls.

    `feature` F,I and `time` F,M weigh inputs and what is kept; `rank` filters make a result.
    `kept` is how a product becomes one of the int16 that are kept, which begin as zeros.
    """

    source: int
    result: int
    feature: np.ndarray
    time: np.ndarray
    bias: np.ndarray
    rank: int
    zero_in: int
    kept: tuple[int, int]
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatPool:
    """The mean of a window in float32, as onnxruntime adds up: row by row, and divided once.

    real = `scales[0]` * (stored - `zeros[0]`); the result is rounded halves to even.  `whole`: a
    border counts as zeros.
    """

    source: int
    result: int
    window: Window
    scales: tuple[np.float32, np.float32]
    zeros: tuple[int, int]
    offset: int
    """What is stored lies so far below the file's numbers."""
    whole: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatSoftmax:
    """Over the last axis, in float32: `exponentials` of -255 ... 0 quanta below the largest.

    The result is exponential * `scale` / sum, rounded halves to even, and moved by `zero`.
    """

    source: int
    result: int
    exponentials: np.ndarray
    scale: np.float32
    zero: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape:
    """The same bytes under another shape."""

    source: int
    result: int


Operator: TypeAlias = (
    "Convolution | Depthwise | Pool | Lookup | Sum | Softmax | Product | Mean | Move | Join "
    "| Reshape | Bilinear | FloatPool | FloatSoftmax "
    "| Svdf"
)


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
    """Inputs and outputs that are not int8 in the model: what they are there."""

    def shape4(self, index: int) -> tuple[int, int, int, int]:
        """A tensor's shape as N, H, W, C, with ones before what it has."""
        return shape4(self.tensors[index].shape)


def shape4(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """A shape of at most four axes as N, H, W, C."""
    n, h, w, c = (1,) * (4 - len(shape)) + tuple(shape)
    return n, h, w, c


def sources_of(operator: Operator) -> tuple[int, ...]:
    """The tensors that an operator reads."""
    if isinstance(operator, Sum | Product | Join):
        return operator.sources
    if isinstance(operator, Convolution) and operator.joined is not None:
        return operator.source, operator.joined.sources[1]
    return (operator.source,)


def multiply_adds(network: Network, result: int) -> int:
    """How many products are added up to make a tensor; borders count as if they lay inside."""
    maker = next((o for o in network.operators if o.result == result), None)
    if isinstance(maker, Convolution):
        channels = maker.weights.shape[0]
        return network.tensors[result].elements // channels * maker.weights.size
    if isinstance(maker, Depthwise):
        taps = maker.weights.shape[0] * maker.weights.shape[1]
        return network.tensors[result].elements * taps
    return 0
