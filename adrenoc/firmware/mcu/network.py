"""A network of int8 or int16 in integers alone: what importers make and everything below reads.

Data are NHWC with a batch of one. Importers say by its operators what it has none for: transposed
convolutions are plain ones with zeros between elements and the kernel turned round; convolutions in
groups of channels are one for each group, between a move and a concatenation. A file that quantises
its input itself, and turns its output back into floats, is computed without either: firmware has
sensors' numbers, and does that better where it reads them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np

from adrenoc.base.decision import Decision
from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op

WIDTHS = {"int8": 1, "int16": 2}
"""Bytes of a number, by what tensors may be of."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FirmwareTensor:
    """A tensor of int8 or int16; real = scale * (stored - zero)."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    dtype: str = "int8"

    @property
    def elements(self) -> int:
        """Return how many numbers it has."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Return how many rows there are along its last axis."""
        return self.elements // self.shape[-1]

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return WIDTHS[self.dtype]

    @property
    def size_bytes(self) -> int:
        """Return what it takes of memory."""
        return self.elements * self.width

    @property
    def ends(self) -> tuple[int, int]:
        """Return the least and the greatest number that it may hold."""
        most = (1 << (8 * self.width - 1)) - 1
        return -most - 1, most


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Operators in the order of execution, over tensors by index."""

    name: str
    tensors: tuple[FirmwareTensor, ...]
    operators: tuple[op.Operator, ...]
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


def image_fields(
    operator: op.Depthwise | op.Pool | op.FloatPool, network: Network
) -> dict[str, int]:
    """Return the images that an operator with a window reads and makes, as fields of its struct."""
    _, height, width, channels = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    fields = {"in_height": height, "in_width": width, "channels": channels}
    return {**fields, "out_height": out_height, "out_width": out_width}


def has_words(network: Network, operator: op.Operator) -> bool:
    """Return whether an operator reads or makes int16."""
    indices = (operator.result, *operator.sources)
    return any(network.tensors[index].dtype == "int16" for index in indices)


def multiply_adds(network: Network, result: int) -> int:
    """Return how many products a tensor is made of; borders count as if they lay inside."""
    maker = next((o for o in network.operators if o.result == result), None)
    if isinstance(maker, op.Convolution):
        channels = maker.weights.shape[0]
        return network.tensors[result].elements // channels * maker.weights.size
    if isinstance(maker, op.Depthwise):
        taps = maker.weights.shape[0] * maker.weights.shape[1]
        return network.tensors[result].elements * taps
    return 0


def offsets_of(
    shape: Sequence[int], indices: Sequence[np.ndarray], axes: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return four tables of a move: what each index of an axis reads of the source; -1: outside."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    found = []
    for axis, index in zip(axes or range(len(shape)), indices, strict=True):
        offsets = np.where(index < 0, -1, index * steps[axis])
        if len(offsets) > 1 or offsets[0]:
            found.append(offsets)
    if len(found) > 4:
        raise RefusedError(f"{len(found)} axes of more than one element")
    found = [np.zeros(1, np.int64)] * (4 - len(found)) + found
    return found[0], found[1], found[2], found[3]


def index_padded(extent: int, before: int, after: int, mode: str = "constant") -> np.ndarray:
    """Return what each index of a padded axis reads: -1 outside, or the border's or mirrored ones.
    Raises RefusedError where the mode is unknown, or mirrors more than there is."""
    index = np.arange(-before, extent + after)
    if mode == "constant":
        return np.where((index < 0) | (index >= extent), -1, index)
    if mode == "edge":
        return index.clip(0, extent - 1)
    if mode == "reflect" and max(before, after) < extent:
        return (extent - 1) - np.abs((extent - 1) - np.abs(index))
    raise RefusedError(f"a pad by '{mode}' of {before} and {after} beside {extent}")


def spread_axis(have: int, want: int, taps: int, stride: int, pad: int) -> tuple[int, np.ndarray]:
    """Spread one axis for a transposed convolution: what the convolution pads before, and which
    element each index of it reads.

    -1 is a zero between two elements. `pad` is what the transposed convolution cuts off before,
    `taps` the whole extent of the kernel. Raises RefusedError where more is cut off than the kernel
    adds.
    """
    if pad > taps - 1:
        raise RefusedError("a padding wider than its kernel")
    # A window of one element has no border, so zeros stand for what lies beyond the last one.
    index = np.arange(want if taps == 1 else (have - 1) * stride + 1)
    outside = (index % stride != 0) | (index // stride >= have)
    return taps - 1 - pad, np.where(outside, -1, index // stride)


_MOST_GROUPS = 64
"""Each is code and constants of its own."""


def split_groups(
    whole: op.Convolution,
    source: FirmwareTensor,
    result: FirmwareTensor,
    add: Callable[[FirmwareTensor], int],
) -> list[op.Operator]:
    """Return the same by convolutions of all channels; the last operator makes the result.

    The weights of `whole` have the channels of one group; `add` makes a tensor. Raises RefusedError
    where there are too many groups, or the channels are no multiple of them.
    """
    _, height, width, depth = shape4(source.shape)
    channels, _, _, part = whole.weights.shape
    groups = depth // part
    if groups * part != depth or channels % groups:
        raise RefusedError(f"{channels} channels of {part} each, of an image of {depth}")
    if groups > _MOST_GROUPS:
        raise RefusedError(f"{groups} groups of channels, at most {_MOST_GROUPS}")
    each = channels // groups
    operators: list[op.Operator] = []
    made = []
    rows, columns = np.arange(height) * width * depth, np.arange(width) * depth
    for group in range(groups):
        own = slice(group * each, (group + 1) * each)
        offsets = (np.zeros(1, np.int64), rows, columns, np.arange(part) + group * part)
        named, shape = f"{source.name} group {group}", (*result.shape[:-1], each)
        read = add(replace(source, name=named, shape=(1, height, width, part)))
        operators.append(op.Move(source=whole.source, result=read, offsets=offsets, fill=0))
        made.append(add(replace(result, name=f"{result.name} group {group}", shape=shape)))
        operators.append(
            replace(
                whole,
                source=read,
                result=made[-1],
                weights=np.ascontiguousarray(whole.weights[own]),
                bias=whole.bias[own],
                requantise=whole.requantise.change_channels(itemgetter(own)),
            )
        )
    count = int(np.prod(result.shape[:-1]))
    join = op.Join(sources=tuple(made), result=whole.result, chunks=(each,) * groups, count=count)
    return [*operators, join]


_UNSIGNED = 128
DTYPES = (*WIDTHS, "uint8", "float32")


@dataclass(frozen=True, kw_only=True)
class Border:
    """An input or output: real = scale * (stored - zero) of `stored`; `dtype` is the file's own."""

    scale: float
    zero: int
    dtype: str = "int8"
    stored: str = "int8"

    def to_model(self, stored: np.ndarray) -> np.ndarray:
        """Return what the model itself has for numbers of the firmware."""
        if self.dtype == "float32":
            # As runtimes dequantise: one product in float32.
            return (stored.astype(np.int32) - self.zero).astype(np.float32) * np.float32(self.scale)
        if self.dtype == "uint8":
            return (stored.astype(np.int32) + _UNSIGNED).astype(np.uint8)
        return stored

    def to_firmware(self, numbers: np.ndarray) -> np.ndarray:
        """Return what the firmware has for numbers that the model could have stored."""
        if self.dtype == "float32":
            near = np.rint(numbers.astype(np.float64) / self.scale) + self.zero
            ends = np.iinfo(self.stored)
            return np.clip(near, ends.min, ends.max).astype(self.stored)
        if self.dtype == "uint8":
            return (numbers.astype(np.int32) - _UNSIGNED).astype(np.int8)
        return numbers


def border_decision(tensor: FirmwareTensor, dtype: str) -> Decision:
    """Return the Decision that a border's own type is not what firmware has."""
    why = f"{dtype} in the model: the header's SCALE and ZERO_POINT convert"
    if dtype == "uint8":
        why = "uint8 in the model: each number less 128"
    return Decision(subject=tensor.name, taken=tensor.dtype, reason=why)
