"""What integer networks are made of: operators over tensors by index, and their parameters. All
scales of the file have become multipliers, shifts, tables and bounds, so that nothing here can
round differently on another machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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

    @classmethod
    def by_one(cls, factor: Factor, zero: int, ends: tuple[int, int]) -> Requantise:
        """Return the rule of one factor for all channels."""
        multiplier, shift = (np.array([number]) for number in factor)
        return cls(multipliers=multiplier, shifts=shift, zero=zero, low=ends[0], high=ends[1])

    def change_channels(self, change: Callable[[np.ndarray], np.ndarray]) -> Requantise:
        """Return it with its numbers of channels changed, those that it has."""
        numbers = (self.multipliers, self.shifts, self.reals)
        multipliers, shifts, reals = (change(v) if v.size else v for v in numbers)
        return replace(self, multipliers=multipliers, shifts=shifts, reals=reals)


@dataclass(frozen=True, kw_only=True)
class Window:
    """How a kernel moves over an image; `bottom` and `right` are implied by the output."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    top: int = 0
    left: int = 0

    def fields(self, *, dilated: bool = False) -> dict[str, int]:
        """Return it as fields of a kernel's struct, which may have places for dilations."""
        pairs = {("kernel_height", "kernel_width"): self.kernel}
        pairs["stride_y", "stride_x"] = self.strides
        if dilated:
            pairs["dilation_y", "dilation_x"] = self.dilations
        pairs["top", "left"] = self.top, self.left
        return {n: v for names, pair in pairs.items() for n, v in zip(names, pair, strict=True)}


@dataclass(frozen=True, kw_only=True, eq=False)
class OneSource:
    """An operator that reads one tensor."""

    source: int
    result: int

    @property
    def sources(self) -> tuple[int, ...]:
        """Return the tensors that it reads."""
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoSources:
    """An operator that reads two tensors; the second may repeat along the first."""

    sources: tuple[int, int]
    result: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Filter(OneSource):
    """Sums over a window, and how they become numbers of the result."""

    weights: np.ndarray
    bias: np.ndarray
    window: Window
    zero_in: int
    requantise: Requantise

    @property
    def rows(self) -> np.ndarray:
        """Return the weights of each channel of the result, as int64."""
        by_channel = self.weights.reshape(len(self.weights), -1)
        if isinstance(self, Depthwise):
            by_channel = self.weights.reshape(-1, self.weights.shape[-1]).T
        return by_channel.astype(np.int64)

    @property
    def moved_bias(self) -> np.ndarray:
        """Return the bias of products with the source's numbers as they are stored."""
        return np.asarray(self.bias - self.zero_in * self.rows.sum(1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution(Filter):
    """Sums over a window of all channels; `weights` O,H,W,I. A dense layer has a window of 1x1.
    With `joined` its output is the first operand of that sum, which gives the result."""

    joined: Sum | None = None

    @property
    def sources(self) -> tuple[int, ...]:
        """Return its own source, and what is added."""
        return (self.source,) if self.joined is None else (self.source, self.joined.sources[1])

    @property
    def is_dense(self) -> bool:
        """Return whether it computes each pixel of the result from one of the source alone."""
        return self.window.kernel == (1, 1) == self.window.strides


@dataclass(frozen=True, kw_only=True, eq=False)
class Depthwise(Filter):
    """Sums over a window, a channel at a time; `weights` H,W,O, with O a multiple of I."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool(OneSource):
    """The `kind` ("average" or "max") of a window, without what lies outside of the image."""

    kind: str
    window: Window
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup(OneSource):
    """Each number by a table of 256, from -128 on."""

    table: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum(TwoSources):
    """Two tensors, each with a table of its scaled numbers, which are added."""

    tables: tuple[np.ndarray, np.ndarray]
    requantise: Requantise
    wanted: np.ndarray | None = None
    """The results of all pairs, where a rule in floats gives them; tables are near then."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Softmax(OneSource):
    """Over the last axis; `exponentials` of 0, -1 ... -255 quanta, zero where left out."""

    exponentials: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Product(TwoSources):
    """Two tensors multiplied, each less its zero point."""

    zeros: tuple[int, int]
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Mean(OneSource):
    """Over one axis of three: what lies outside, what is summed, what lies inside of it."""

    extents: tuple[int, int, int]
    zero_in: int
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Move(OneSource):
    """Elements at other places: for each axis of the result, where each index reads.

    `offsets` are elements of the source, to be added over the axes; -1 is a place outside, which
    holds `fill`.  There are four axes.
    """

    offsets: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    fill: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Between:
    """Where each index of one axis of an enlarged image reads: two places of the source's axis.
    `weights` are those of the second place, in 1/1024; the first has the rest."""

    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Bilinear(OneSource):
    """Another size of an image, each number between four of the source's."""

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
class Svdf(OneSource):
    """Filters over time: each number of the input's products is kept for `memory` calls.

    `feature` F,I and `time` F,M weigh inputs and what is kept; `rank` filters make a result.
    `kept` is how a product becomes one of the int16 that are kept, which begin as zeros.
    """

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
class Lstm(OneSource):
    """An LSTM over rows in turn, which keeps cells of int16 and its last result between calls.

    `gates`: input, forget, cell, output; without the first, what is not forgotten is taken in.
    A cell has `cell_bits` behind the point; with `clip` it stays within that.  Before the first
    call cells are zero, and each number of the last result is `start`.
    """

    gates: tuple[Gate | None, Gate, Gate, Gate]
    cell_bits: int
    clip: int
    hidden: Factor
    zero: int
    start: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatImage(OneSource):
    """Computed in float32: real = `scales[0]` * (stored - `zeros[0]`), and so of the result."""

    scales: tuple[np.float32, np.float32]
    zeros: tuple[int, int]
    offset: int
    """What is stored lies so far below the file's numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatPool(FloatImage):
    """The mean of a window, as onnxruntime adds up: row by row, and divided once. The result is
    rounded halves to even. `whole`: a border counts as zeros."""

    window: Window
    whole: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatBetween:
    """Where each index of one axis reads, and the shares of both places, in float32."""

    first: np.ndarray
    second: np.ndarray
    of_first: np.ndarray
    of_second: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatBilinear(FloatImage):
    """Another size of an image, as onnxruntime adds up: four parts in turn. The quotient by the
    result's scale is rounded halves to even, and moved."""

    rows: FloatBetween
    columns: FloatBetween


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatSoftmax(OneSource):
    """Over the last axis, in float32: `exponentials` of -255 ... 0 quanta below the largest. The
    result is exponential * `scale` / sum, rounded halves to even, and moved by `zero`."""

    exponentials: np.ndarray
    scale: np.float32
    zero: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Rescale(OneSource):
    """Each number less `zero_in` times a factor, that below zero times another; then bounds."""

    zero_in: int
    above: Factor
    below: Factor
    zero: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class WordSum(TwoSources):
    """Two tensors of int16, each scaled and times its sign."""

    factors: tuple[Factor, Factor]
    signs: tuple[int, int]
    requantise: Requantise


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve(OneSource):
    """The `kind` ("logistic" or "tanh") of numbers of int16, by lines between points of a table. A
    number is multiplied and shifted to the right with rounding, to 1/12288 of the function's."""

    kind: str
    multiplier: int
    shift: int


@dataclass(frozen=True, kw_only=True, eq=False)
class WordSoftmax(OneSource):
    """Over the last axis, of int16; `factor` takes differences to 10/65535."""

    factor: Factor


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(OneSource):
    """The same bytes under another shape."""


Operator: TypeAlias = "OneSource | TwoSources | Join"
