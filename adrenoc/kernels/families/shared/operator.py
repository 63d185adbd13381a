"""What passes ask about an operator of the planning graph: one record each, no field left out.

A family's folder has its records in `operator.py`; `adrenoc/kernels/families/operators.py` joins
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import Layout, channel_at, channels_last, default_layout
from adrenoc.kernels.families.shared.batch import FollowsBatch
from adrenoc.kernels.families.shared.channel_sums import ChannelSums
from adrenoc.kernels.families.shared.channel_weights import WeightsByChannel
from adrenoc.kernels.families.shared.context import Rule
from adrenoc.kernels.families.shared.typical import Typical

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
    FLATTENED = "flattened"
    """It reads one vector from the image that this is flattened from."""
    SHUFFLE = "shuffle"
    """It writes the pixels that a map after it makes of its channels."""
    PAIR = "pair"
    """A depthwise and a 1x1 convolution in one kernel, as either of the two."""
    WINOGRAD = "winograd"
    """Winograd's algorithm computes it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """One operator of the planning graph, by its name there.

    `relax` is the operator of Relax that stays whole as this one, empty where passes make it.
    `refuses` says why a case of it has to be a plain loop nest, which is slower and just as right.
    """

    name: str
    kind: Kind
    numbers: Numbers
    rule: Rule
    """Node -> kernel, packed weights, arguments."""
    relax: str
    refuses: Refuses
    wants_layout: WantsLayout
    makes_layout: MakesLayout
    whole_numbers: frozenset[int]
    """Positions of inputs that are or may be integers, and stay so: packed weights, positions,
    caches of few bits."""
    writes_into: int | None
    """Position of the input that its result is a change of, in the same memory where that is a
    state; it takes no epilogue.  None of others, whose results have memory of their own."""
    keeps_axes: bool
    """Whether its output has the layout of its first input, whatever that is."""
    reads_often: bool
    """Whether it reads an element many times: a row-major operand is packed in blocks for it."""
    needs_channel_only: bool
    """Whether the channel of an operand has to lie in texels, and its other axes may lie anyhow."""
    follows_batch: FollowsBatch | None
    """Where the batch lies in its result; None for operators that are made later than is asked."""
    multiply_adds: Counts | None
    """Multiply-adds of the operator as mathematics states it; None where it has no products."""
    terms: Counts | None
    """How many numbers or products a result adds up; None where none, or nobody asks any more."""
    operations: Counts
    """Operations that run over elements, beside multiply-adds and the epilogue."""
    typical: Typical | None
    """What the operator makes of data of about one; None where its body says that, or nobody asks
    any more."""

    fusions: frozenset[Fusion]
    """What it may become a part of."""
    channel_weights: WeightsByChannel | None
    """How its weights lie by channel; None where it has none that stand between channels."""
    channel_sums: ChannelSums | None
    """How to reckon with the operator in float32; stated of convolutions that half arithmetic may
    compute."""

    @property
    def is_product(self) -> bool:
        """Whether it adds up products, by weights or of activations."""
        return self.multiply_adds is not None


NO_INPUTS: frozenset[int] = frozenset()
"""The whole-number inputs of an operator of floats alone: none."""


def refuses_nothing(_node: Node, _tensors: Mapping[str, Tensor]) -> None:
    """Refuse no case: every one has a rule."""


def any_layout(_node: Node, _position: int, _tensors: Mapping[str, Tensor]) -> None:
    """Operands are read in whatever layout they have."""


def channels_last_at(*positions: int) -> WantsLayout:
    """Inputs at these positions are read with their last axis in texels; the others as they lie."""

    def wants(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
        rank = len(tensors[node.inputs[position]].shape)
        return channels_last(rank) if position in positions else None

    return wants


def same_layout(node: Node, tensors: Mapping[str, Tensor], source: Layout | None) -> Layout | None:
    """Give the result the layout of the first input; the usual one where their ranks differ."""
    shape = tensors[node.output].shape
    if source is not None and len(source.roles) == len(shape):
        return source
    return default_layout(shape)


def channel_of_result(
    node: Node, tensors: Mapping[str, Tensor], _source: Layout | None
) -> Layout | None:
    """Give a product the layout whose channel is the axis `out_channel`, or else the last one."""
    shape = tensors[node.output].shape
    channel = node.attrs.get("out_channel", len(shape) - 1)
    return channel_at(channel, len(shape)) if shape else default_layout(shape)


def no_operations(_graph: Graph, _node: Node) -> int:
    """Count no operations beside multiply-adds."""
    return 0


def made_by_passes(
    name: str,
    kind: Kind,
    rule: Rule,
    *,
    numbers: Numbers = Numbers.WEIGHTED,
    multiply_adds: Counts | None,
    operations: Counts = no_operations,
    channel_sums: ChannelSums | None = None,
) -> Operator:
    """Return an operator that fusion makes of others when all tensors have their places already."""
    return Operator(
        name=name,
        kind=kind,
        numbers=numbers,
        rule=rule,
        relax="",
        refuses=refuses_nothing,
        wants_layout=any_layout,
        makes_layout=same_layout,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=True,
        needs_channel_only=False,
        follows_batch=None,
        multiply_adds=multiply_adds,
        terms=None,
        operations=operations,
        typical=None,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=channel_sums,
    )
