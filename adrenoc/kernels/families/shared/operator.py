"""What passes ask about an operator of the planning graph: one record each.

`adrenoc/kernels/families/operators.py` joins the records of all families.  An operator follows the
batch if element i of it in the result is made of elements i of its operands, and of no others; else
its function gives None.

A record's `typical` says how large numbers become on data of about one.  A tensor is known by an
array with an axis for several trials, then its own axes, each of which is whole or of one element:
along the latter all elements are taken to be alike.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.half import largest_by_axes
from adrenoc.ir.layout import Layout, channel_at, channels_last, default_layout
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.context import Rule
from adrenoc.kernels.families.shared.conv_geometry import ConvWork
from adrenoc.kernels.families.shared.machine import CostModel

TRIALS = np.array([1.0, -1.0])
"""The numbers that stand for the data of an input: one, and minus one."""
ROWS = 1024
"""Rows of a matrix that are looked at together."""
_BEYOND_CHANCE = 4.0
"""Sums of terms of both signs are about the root of the sum of their squares; of this many times
that, they are none by chance: the terms have one sign, nearly."""
_FEW = 24
"""Fewer weights may have one sign by chance."""
_PART = 1 << 18
"""Weights that are looked at together."""
_LOOKED_AT = 1 << 28
"""Elements of a convolution's or product's weights: beyond it, a look takes too long."""


class NotKnownError(Exception):
    """There is no saying what numbers come to."""


@dataclass(frozen=True, kw_only=True)
class TypicalRun:
    """A graph, and the numbers of its tensors as far as they are known."""

    graph: Graph
    numbers: Callable[[str], np.ndarray]


Typical = Callable[[TypicalRun, Node, np.ndarray], np.ndarray]
"""(run, node, numbers of its first input or of its prologue) -> numbers of the operator's result.

Raises NotKnownError where it cannot tell.
"""


def one_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of about one, alike along all axes."""
    return TRIALS.reshape([-1] + [1] * len(shape))


def weights_of(run: TypicalRun, node: Node) -> np.ndarray:
    """Return the constant weights of a node, its second input."""
    value = run.graph.tensors[node.inputs[1]].value
    if value is None or value.size > _LOOKED_AT or value.dtype.kind not in "fiu":
        raise NotKnownError
    return value


def middle(array: np.ndarray, *, keep: int, also: int = -1) -> np.ndarray:
    """Return the array, with one element alone of the axes other than those."""
    held = (0, keep + 1, also + 1) if also >= 0 else (0, keep + 1)
    return array[
        tuple(
            slice(None) if axis in held else slice(extent // 2, extent // 2 + 1)
            for axis, extent in enumerate(array.shape)
        )
    ]


def sums_over_taps(weights: np.ndarray, taps: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of the weights of each pair of channels, and of their squares.  Part by part,
    without a second array of that size, and of halves in float32: their own squares end at their
    largest number and vanish below their least."""
    left = [a for a in range(weights.ndim) if a not in taps]
    lines = weights.transpose(*left, *taps)
    shape, count = lines.shape[: len(left)], math.prod(lines.shape[len(left) :])
    ones = np.ones(count, np.float32 if weights.dtype == np.float16 else np.float64)
    sums, squares = np.empty(shape, ones.dtype), np.empty(shape, ones.dtype)
    rows = max(1, _PART * len(lines) // max(1, weights.size))
    for part in (slice(first, first + rows) for first in range(0, len(lines), rows)):
        wide = lines[part].reshape(-1, count).astype(ones.dtype)
        sums[part] = (wide @ ones).reshape(-1, *shape[1:])
        squares[part] = (np.square(wide, out=wide) @ ones).reshape(-1, *shape[1:])
    return sums, squares


def sums_of_terms(sums: np.ndarray, squares: np.ndarray, *, alike: bool) -> np.ndarray:
    """Return sums of terms that are `alike`, or no larger than terms of both signs make them."""
    if alike:
        return sums
    by_chance = np.sqrt(squares)
    return np.where(
        np.abs(sums) > _BEYOND_CHANCE * by_chance, sums, np.clip(sums, -by_chance, by_chance)
    )


def have_one_sign(weights: np.ndarray) -> bool:
    """Return whether no weight has another sign than the others, which no chance brings about."""
    first = weights.reshape(-1)[:ROWS]
    if first.min() < 0 < first.max() or weights.size < _FEW:
        return False
    return bool(weights.min() >= 0 or weights.max() <= 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelSums:
    """An operator that adds up channels with weights, as a cost model sees that part of it."""

    convolutions: int
    """How many convolutions of a network it computes."""
    work: Callable[[Graph, Node, CompileOptions], ConvWork | None]
    """None of a node that adds up no channels, as depthwise convolutions do not."""
    clocks: Callable[[Node, ConvWork, CostModel], float]
    """The least estimate of such work, in clocks."""
    in_float: bool
    """Whether its sums can be in float32; not those whose terms lie in memory as halves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelWeights:
    """Weights whose axes are `letters`: I for inputs, O for outputs, others for all the rest.  Of a
    transposed convolution with groups the outputs of one group are stated, of others the inputs.
    `value` is None where the weights are computed."""

    value: np.ndarray | None
    shape: tuple[int, ...]
    letters: str
    axis: int
    """The axis of the result along which the outputs lie."""
    groups: int = 1
    transposed: bool = False

    @property
    def mixes(self) -> bool:
        """Return whether each result is made of several channels."""
        inputs = self.shape[self.letters.index("I")]
        return (inputs // self.groups if self.transposed else inputs) > 1

    def largest(self, channels: str) -> np.ndarray | None:
        """Return the largest size of the weights of each channel that is read (I), or made (O);
        what is zero altogether is of none, and counts as one."""
        if self.value is None:
            return None
        kept = channels if self.groups == 1 else "IO"
        rest = tuple(a for a, letter in enumerate(self.letters) if letter not in kept)
        sizes = largest_by_axes(self.value, rest)
        if self.groups > 1:
            axis = 2 if channels == "I" else 1
            sizes = self.split_by_group(sizes).max(axis=axis).reshape(-1)
        return np.where(sizes > 0, sizes, 1.0)

    def split_by_group(self, by_channels: np.ndarray) -> np.ndarray:
        """Return numbers along the two axes I and O of the weights, as [group, input, output]."""
        ahead = self.letters.index("I") < self.letters.index("O")
        matrix = by_channels if ahead else by_channels.T
        inputs, outputs = matrix.shape
        if self.transposed:
            return matrix.reshape(self.groups, inputs // self.groups, outputs)
        return matrix.reshape(inputs, self.groups, outputs // self.groups).transpose(1, 0, 2)


WeightsByChannel = Callable[[Graph, Node], ChannelWeights]


Refuses = Callable[[Node, Mapping[str, Tensor]], "str | None"]
"""(node, tensors) -> the reason why its rule does not cover a node, None where it does."""
WantsLayout = Callable[[Node, int, Mapping[str, Tensor]], "Layout | None"]
"""(node, position of an input, tensors) -> the layout that is read, None where any will do."""
MakesLayout = Callable[[Node, Mapping[str, Tensor], "Layout | None"], "Layout | None"]
"""(node, tensors, layout of the first input) -> that of the output."""
Counts = Callable[[Graph, Node], int]


class Kind(str, Enum):
    """What an operator is to a network."""

    MAP = "map"
    """Its body says what it computes, element by element or as a fold."""
    CONVOLUTION = "convolution"
    PRODUCT = "product"
    """A product of matrices."""
    ATTENTION = "attention"
    POOL = "pool"
    REDUCTION = "reduction"
    """Folds axes of its input: each element is read once, and can be computed then."""
    SOFTMAX = "softmax"
    NORM = "norm"
    TRANSFORM = "transform"
    """A part of another operator, as Winograd's algorithm has them."""


class Numbers(str, Enum):
    """What the numbers of a result are to those of the first input: for precision to reason by."""

    COMPUTED = "computed"
    """The operator's body says what they are."""
    WEIGHTED = "weighted"
    """Sums of products, by weights or of activations."""
    SUMMED = "summed"
    MULTIPLIED = "multiplied"
    AVERAGED = "averaged"
    """About as large, and of the same sign."""
    PICKED = "picked"
    """Each is one of those that are read."""
    CARRIED = "carried"
    """Each is computed of the one before: sums so far, states of recurrent layers."""
    SHARES = "shares"
    """Shares of one: from zero to one."""
    LOG_SHARES = "log shares"
    """Logarithms of shares: zero at most."""
    NORMED = "normed"
    """About one, whatever is read."""


class Fusion(str, Enum):
    """What fusion may make of a node together with others, where a kernel can do it."""

    ATTENTION = "attention"
    """Scores, or the mix of values, in one kernel with the softmax between them."""
    PROLOGUE = "prologue"
    """A map before it is computed where it reads."""
    IMAGE = "image"
    """It reads the model's own image, row-major, in place of a copy in texels."""
    MEAN = "mean"
    """A pair that makes the mean of its result too."""
    PAIR = "pair"
    """A depthwise and a 1x1 convolution in one kernel, as either of the two."""
    WINOGRAD = "winograd"
    """Winograd's algorithm computes it."""


@dataclass(frozen=True)
class Along:
    """The batch lies along `axis`, with `factor` neighbours for each of its elements."""

    axis: int
    factor: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The tensors that hold the batch, so far, and where it lies in each."""

    graph: Graph
    along: Mapping[str, Along]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.graph.tensors[name].shape


FollowsBatch = Callable[[Batch, Node], "Along | None"]


def refuses_nothing(_node: Node, _tensors: Mapping[str, Tensor]) -> None:
    """Refuse no case: every one has a rule."""


def any_layout(_node: Node, _position: int, _tensors: Mapping[str, Tensor]) -> None:
    """Operands are read in whatever layout they have."""


def same_layout(node: Node, tensors: Mapping[str, Tensor], source: Layout | None) -> Layout | None:
    """Give the result the layout of the first input; the usual one where their ranks differ, or
    where an axis that has no role there is longer than one."""
    shape = tensors[node.output].shape
    roles = "" if source is None else source.roles
    fits = all(r != "1" or extent == 1 for r, extent in zip(roles, shape, strict=False))
    return source if len(roles) == len(shape) and fits else default_layout(shape)


def no_operations(_graph: Graph, _node: Node) -> int:
    """Count no operations beside multiply-adds."""
    return 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """One operator of the planning graph, by its name there; a default is what most say.  `relax`
    is the operator of Relax that stays whole as this one, empty where passes make it.  `refuses`
    says why a case of it has to be a plain loop nest, which is slower and just as right."""

    name: str
    kind: Kind
    numbers: Numbers
    rule: Rule
    """Node -> kernel, packed weights, arguments."""
    relax: str = ""
    refuses: Refuses = refuses_nothing
    wants_layout: WantsLayout = any_layout
    makes_layout: MakesLayout = same_layout
    whole_numbers: frozenset[int] = frozenset()
    """Positions of inputs that are or may be integers, and stay so: packed weights, positions,
    caches of few bits."""
    writes_into: int | None = None
    """Position of the input that its result is a change of, in the same memory where that is a
    state; it takes no epilogue.  None of others, whose results have memory of their own."""
    keeps_axes: bool = False
    """Whether its output has the layout of its first input, whatever that is."""
    reads_often: bool = False
    """Whether it reads an element many times: a row-major operand is packed in blocks for it."""
    needs_channel_only: bool = False
    """Whether the channel of an operand has to lie in texels, and its other axes may lie anyhow."""
    follows_batch: FollowsBatch | None = None
    """Where the batch lies in its result; None for operators that are made later than is asked."""
    multiply_adds: Counts | None = None
    """Multiply-adds of the operator as mathematics states it; None where it has no products."""
    terms: Counts | None = None
    """How many numbers or products a result adds up; None where none, or nobody asks any more."""
    operations: Counts = no_operations
    """Operations that run over elements, beside multiply-adds and the epilogue."""
    typical: Typical | None = None
    """What the operator makes of data of about one; None where its body says that, or nobody asks
    any more."""

    fusions: frozenset[Fusion] = frozenset()
    """What it may become a part of."""
    channel_weights: WeightsByChannel | None = None
    """How its weights lie by channel; None where it has none that stand between channels."""
    channel_sums: ChannelSums | None = None
    """How to reckon with the operator in float32; stated of convolutions that half arithmetic may
    compute."""

    @property
    def is_product(self) -> bool:
        """Return whether it adds up products, by weights or of activations."""
        return self.multiply_adds is not None


def channels_last_at(*positions: int) -> WantsLayout:
    """Inputs at these positions are read with their last axis in texels; the others as they lie."""

    def wants(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
        rank = len(tensors[node.inputs[position]].shape)
        return channels_last(rank) if position in positions else None

    return wants


def channel_of_result(
    node: Node, tensors: Mapping[str, Tensor], _source: Layout | None
) -> Layout | None:
    """Give a product the layout whose channel is the axis `out_channel`, or else the last one."""
    shape = tensors[node.output].shape
    channel = node.attrs.get("out_channel", len(shape) - 1)
    return channel_at(channel, len(shape)) if shape else default_layout(shape)


def follow_letters(key: str) -> FollowsBatch:
    """Make the rule by which a batch axis goes through an operator with letters for its layout.
    `key` names the attribute that holds the letters of the input, such as `data_layout`."""

    def follow(batch: Batch, node: Node) -> Along | None:
        layout = str(node.attrs[key])
        out = str(node.attrs["out_layout"] or layout)
        others = any(name in batch.along for name in node.inputs[1:])
        if others or batch.along.get(node.inputs[0]) != Along(layout.find("N")):
            return None
        return Along(out.find("N"))

    return follow


SOFTMAX_OPERATIONS = 5
"""Operations an element: largest, subtract, exp, sum, divide."""


def size_of(graph: Graph, name: str) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(graph.tensors[name].shape)


def positions_of(graph: Graph, name: str) -> int:
    """Return the number of elements of one channel of a placed tensor."""
    return size_of(graph, name) // graph.operand(name).extents.c


def count_per_input_element(operations: int) -> Counts:
    """Return the operations of a node that does so many for each element of its first input."""

    def count(graph: Graph, node: Node) -> int:
        return operations * size_of(graph, node.inputs[0])

    return count


def count_per_output_position(graph: Graph, node: Node) -> int:
    """Return the multiply-adds of a node that uses each weight once for each output position."""
    return size_of(graph, node.inputs[1]) * positions_of(graph, node.output)


def count_per_input_position(graph: Graph, node: Node) -> int:
    """Return the multiply-adds of a node that uses each weight once for each input position."""
    return size_of(graph, node.inputs[1]) * positions_of(graph, node.inputs[0])


_LETTERS = ("NCHW", "NHWC", "NCW", "NWC")


def letters_refused(node: Node, key: str) -> str | None:
    """Return why the layouts of attributes `key` and `out_layout` are not read or written."""
    layout: Any = node.attrs[key]
    out = str(node.attrs["out_layout"] or layout)
    if str(layout) not in _LETTERS or out not in _LETTERS:
        return f"{key} {layout} to {out}, expected one of {', '.join(_LETTERS)}"
    return None


def wants_letters(key: str) -> WantsLayout:
    """Return the first input in the layout that attribute `key` names."""

    def want(node: Node, position: int, _tensors: Mapping[str, Tensor]) -> Layout | None:
        return Layout(str(node.attrs[key])) if position == 0 else None

    return want


def makes_letters(key: str) -> MakesLayout:
    """Return the output in the layout `out_layout`, or in that of the input where it names none."""

    def make(node: Node, _tensors: Mapping[str, Tensor], _source: Layout | None) -> Layout:
        return Layout(str(node.attrs["out_layout"] or node.attrs[key]))

    return make
