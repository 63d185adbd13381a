"""What integer networks are made of: operators over tensors by index, and their parameters.

All real numbers of the file (scales) have become multipliers, shifts, tables and bounds, so
nothing here can round differently on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

Factor: TypeAlias = tuple[int, int]
"""A multiplier of 31 bits and a shift to the left."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantise:
    """From sums to int8 or int16: a factor for each channel (or one), zero point, bounds.

    A factor is `multipliers` and `shifts` in TFLite's fixed point, or, where `reals` holds
    something, that number: in float64 with one rounding, halves away from zero; or, where it is of
    float32, in that with halves to even, as onnxruntime rounds.  Sums are of 32 bits; `wide` ones
    of 64, which are scaled by fifteen bits of the multiplier where there is one.
    """

    zero: int
    low: int
    high: int
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    shifts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    reals: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float64))
    wide: bool = False


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
class GateNorm:
    """A gate's sums less their mean, over their deviation, times `weights`; then a bias."""

    weights: np.ndarray
    bias: np.ndarray
    factor: Factor
    guard: int
    """What stands in place of a variance below one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gate:
    """Products of the input and of the last result, each with its bias and factor to int16."""

    weights: tuple[np.ndarray, np.ndarray]
    biases: tuple[np.ndarray, np.ndarray]
    factors: tuple[Factor, Factor]
    norm: GateNorm | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Lstm:
    """An LSTM over rows in turn, which keeps cells of int16 and its last result between calls.

    `gates`: input, forget, cell, output; without the first, what is not forgotten is taken in.
    A cell has `cell_bits` behind the point; with `clip` it stays within that.  Before the first
    call cells are zero, and each number of the last result is `start`.
    """

    source: int
    result: int
    gates: tuple[Gate | None, Gate, Gate, Gate]
    cell_bits: int
    clip: int
    hidden: Factor
    zero: int
    start: int


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
class FloatBetween:
    """Where each index of one axis reads, and the shares of both places, in float32."""

    first: np.ndarray
    second: np.ndarray
    of_first: np.ndarray
    of_second: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatBilinear:
    """Another size of an image in float32, as onnxruntime adds up: four parts in turn.

    real = `scales[0]` * (stored - `zeros[0]`); the quotient by the result's scale is rounded halves
    to even, and moved.
    """

    source: int
    result: int
    rows: FloatBetween
    columns: FloatBetween
    scales: tuple[np.float32, np.float32]
    zeros: tuple[int, int]
    offset: int
    """What is stored lies so far below the file's numbers."""


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
class Rescale:
    """Each number less `zero_in` times a factor, that below zero times another; then bounds."""

    source: int
    result: int
    zero_in: int
    above: Factor
    below: Factor
    zero: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class WordSum:
    """Two tensors of int16, each scaled, the second times `sign`; it may repeat along the first."""

    sources: tuple[int, int]
    result: int
    factors: tuple[Factor, Factor]
    signs: tuple[int, int]
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The `kind` ("logistic" or "tanh") of numbers of int16, by lines between points of a table.

    A number is multiplied and shifted to the right with rounding, to 1/12288 of the function's.
    """

    source: int
    result: int
    kind: str
    multiplier: int
    shift: int


@dataclass(frozen=True, kw_only=True, eq=False)
class WordSoftmax:
    """Over the last axis, of int16; `factor` takes differences to 10/65535."""

    source: int
    result: int
    factor: Factor


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape:
    """The same bytes under another shape."""

    source: int
    result: int


Operator: TypeAlias = (
    "Convolution | Depthwise | Pool | Lookup | Sum | Softmax | Product | Mean | Move | Join "
    "| Reshape | Bilinear | FloatBilinear | FloatPool | FloatSoftmax | Svdf | Lstm "
    "| Rescale | WordSum | Curve | WordSoftmax"
)
