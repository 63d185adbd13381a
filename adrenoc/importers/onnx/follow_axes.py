"""Where an axis of an operand lies in a node's results, or whether its elements meet there.

So batches are found among open axes of inputs: axes of samples that know nothing of each other.
    Conv, pools, norms of channels: axis 0 is the batch, others are space
    GRU, LSTM, RNN: one axis is the steps, the other the batch
    Concat, Softmax, sums along it: it is none, as its elements meet
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
from onnx import NodeProto, numpy_helper

from adrenoc.importers.onnx.graph import attributes


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A node that reads a tensor as its input number `at`, of whose axes one is followed. `rank_of`
    tells how many axes a tensor has, `ints_of` the whole numbers of a constant."""

    node: NodeProto
    at: int
    axis: int
    rank_of: Callable[[str], int | None]
    ints_of: Callable[[str], list[int] | None]
    opset: int

    @property
    def rank(self) -> int:
        """Return how many axes the operand has, 0 where nobody knows."""
        return self.rank_of(self.node.input[self.at]) or 0

    @property
    def attrs(self) -> dict[str, Any]:
        """Return the node's attributes."""
        return attributes(self.node)

    def stay(self) -> Moved:
        """Say that the axis lies in the results as it does here."""
        return Moved(axis=self.axis, rank=self.rank)

    def leave_out(self, gone: list[int]) -> Moved:
        """Return where the axis is once others are left out."""
        return Moved(axis=self.axis - sum(a < self.axis for a in gone), rank=self.rank - len(gone))

    def axes(self, at: int, *, rank: int) -> list[int] | None:
        """Return axes as an attribute or input number `at` has them; None where nobody knows."""
        axes = self.attrs.get("axes")
        if axes is None and len(self.node.input) > at and self.node.input[at]:
            axes = self.ints_of(self.node.input[at])
            if axes is None:
                return None
        return [int(axis) % rank for axis in axes or ()]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a node says of an axis (`batch`), and where the axis lies in its results."""

    batch: bool | None = None
    axis: int | None = None
    rank: int = 0


LOST = Moved()
MET = Moved(batch=False)
"""Elements along a batch know nothing of each other."""


def _transpose(visit: Visit) -> Moved:
    perm = visit.attrs.get("perm") or list(reversed(range(visit.rank)))
    return Moved(axis=perm.index(visit.axis), rank=visit.rank) if visit.axis in perm else LOST


def _squeeze(visit: Visit) -> Moved:
    axes = visit.axes(1, rank=visit.rank)
    return LOST if not axes or visit.axis in axes else visit.leave_out(axes)


def _unsqueeze(visit: Visit) -> Moved:
    given = visit.axes(1, rank=visit.rank + 1)
    rank = visit.rank + len(given or ())
    added = visit.axes(1, rank=rank)
    if not added:
        return LOST
    return Moved(axis=[a for a in range(rank) if a not in added][visit.axis], rank=rank)


def _flatten(visit: Visit) -> Moved:
    is_kept = visit.axis == 0 and visit.attrs.get("axis", 1) % visit.rank == 1
    return Moved(axis=0, rank=2) if is_kept else LOST


def _gather(visit: Visit) -> Moved:
    table, picked = (visit.rank_of(name) for name in visit.node.input[:2])
    if table is None or picked is None:
        return LOST
    along = visit.attrs.get("axis", 0) % max(table, 1)
    if visit.at == 0 and visit.axis == along:
        return MET
    is_behind = visit.at == 0 and visit.axis > along
    axis = visit.axis + (along if visit.at else picked - 1 if is_behind else 0)
    return Moved(axis=axis, rank=table + picked - 1)


def _product(visit: Visit) -> Moved:
    """Follow rows of the first operand, columns of the second, and batches of either."""
    ranks = [visit.rank_of(name) for name in visit.node.input[:2]]
    known = [rank for rank in ranks if rank is not None and rank > 1]
    from_end = visit.rank - visit.axis
    if from_end == (2 if visit.at else 1):
        return MET
    if len(known) < 2:
        return visit.stay() if visit.at == 0 else LOST
    return Moved(axis=max(known) - from_end, rank=max(known))


def _gemm(visit: Visit) -> Moved:
    if visit.at:
        return LOST
    is_row = visit.axis == (1 if visit.attrs.get("transA", 0) else 0)
    return Moved(axis=0, rank=2) if is_row else MET


def meet_along(visit: Visit) -> Moved:
    """Meet, or part, along the axis that an attribute names."""
    axis = visit.attrs.get("axis", 0 if visit.node.op_type == "Split" else -1)
    return MET if axis % visit.rank == visit.axis else visit.stay()


def _within(visit: Visit) -> Moved:
    """Meet along all axes from one on."""
    first = visit.attrs.get("axis", 1 if "Softmax" in visit.node.op_type else -1)
    return MET if visit.axis >= first % visit.rank else visit.stay()


def _softmax(visit: Visit) -> Moved:
    return _within(visit) if visit.opset < 13 else meet_along(visit)


def _reduce(visit: Visit) -> Moved:
    axes = visit.axes(1, rank=visit.rank)
    if visit.at or axes is None:
        return LOST
    along = axes or list(range(visit.rank))
    if visit.axis in along:
        return MET
    return visit.stay() if visit.attrs.get("keepdims", 1) else visit.leave_out(along)


_OPERATORS: dict[str, Callable[[Visit], Moved]] = {
    "Concat": meet_along,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "LogSoftmax": _softmax,
    "MatMul": _product,
    "Softmax": _softmax,
    "Split": meet_along,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}


def find_rule(kind: str) -> Callable[[Visit], Moved] | None:
    """Return what follows an axis through an operator, if anything here does."""
    if kind.endswith("LayerNormalization"):
        return _within
    return _reduce if kind.startswith("Reduce") else _OPERATORS.get(kind)


Axis = tuple[str, int]
"""A tensor and one of its axes."""

_OF_IMAGES = frozenset(
    {
        *("AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose"),
        *("DepthToSpace", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization"),
        *("InstanceNormalization", "LRN", "MaxPool", "QLinearConv", "SpaceToDepth"),
    }
)
"""Operators whose first input has the batch first."""
_KEEPING = frozenset(
    {
        *("Abs", "Cast", "Ceil", "Clip", "Cos", "DequantizeLinear", "Dropout", "Elu", "Erf", "Exp"),
        *("FastGelu", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log"),
        *("Mish", "Neg", "Not", "PRelu", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu"),
        *("Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh"),
    }
)
"""Operators of one tensor that keep each element where it is."""
_PAIRWISE = frozenset({"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"})
_NEWEST = 13
"""An opset whose Softmax is along one axis, as nearly all files have it."""
_NAMED_OTHERWISE = re.compile(
    r"seq|time|len|frame|sampl|step|token|point|node|edge|word|char|row|box|height|width",
    re.IGNORECASE,
)
"""Names that say of an axis that it is another than the batch."""
_NAMED_BATCH = re.compile(r"(?<![a-z])(batch|bs|n|b)(?![a-z])|batch", re.IGNORECASE)


def find_batches(
    graph: onnx.GraphProto, axes: Mapping[str, Sequence[int | str | None]]
) -> frozenset[Axis]:
    """Return the open axes of inputs that are batches; `axes` has the extents of each input.

    An axis 0 of several is one where nothing speaks against it: neither a node nor its name. Others
    are where a node says so, or where they share the name of such a one."""
    open_axes = [
        (name, axis)
        for name, extents in axes.items()
        for axis, extent in enumerate(extents)
        if not isinstance(extent, int)
    ]
    batches, others = _ask_nodes(
        graph, {name: len(extents) for name, extents in axes.items()}, open_axes
    )
    names = {(name, axis): axes[name][axis] for name, axis in open_axes}

    def alike(one: Axis) -> list[Axis]:
        """Return the axes of the same name, itself with them."""
        return [
            o for o in open_axes if o == one or (names[o] is not None and names[o] == names[one])
        ]

    def is_batch(one: Axis) -> bool:
        named = str(names[one] or "")
        if others.intersection(alike(one)):
            return False
        if batches.intersection(alike(one)):
            return True
        leads = any(axis == 0 and len(axes[name]) > 1 for name, axis in alike(one))
        if not leads or _NAMED_OTHERWISE.search(named):
            return bool(leads and _NAMED_BATCH.search(named))
        return True

    return frozenset(one for one in open_axes if is_batch(one))


def _ask_nodes(
    graph: onnx.GraphProto, ranks: Mapping[str, int], open_axes: Iterable[Axis]
) -> tuple[set[Axis], set[Axis]]:
    """Return which axes nodes call batches, and which others, those of branches too."""
    batches: set[Axis] = set()
    others: set[Axis] = set()
    places: dict[str, dict[Axis, int]] = {}
    known = {**{tensor.name: len(tensor.dims) for tensor in graph.initializer}, **ranks}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for name, axis in open_axes:
        places.setdefault(name, {})[name, axis] = axis

    def move(name: str, one: Axis, axis: int, rank: int) -> None:
        places.setdefault(name, {})[one] = axis
        known[name] = rank

    def ints_of(name: str) -> list[int] | None:
        return numpy_helper.to_array(stored[name]).reshape(-1).tolist() if name in stored else None

    def visit(node: NodeProto) -> None:
        rule = _RULES.get(node.op_type) or find_rule(node.op_type)
        if rule is None:
            return
        look = partial(Visit, node=node, rank_of=known.get, ints_of=ints_of, opset=_NEWEST)
        for at, name in enumerate(node.input):
            for one, axis in list(places.get(name, {}).items()):
                moved = rule(look(at=at, axis=axis)) if known[name] else LOST
                if moved.batch is not None:
                    (batches if moved.batch else others).add(one)
                for made in node.output if moved.axis is not None else ():
                    move(made, one, moved.axis or 0, moved.rank)

    def walk(nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if node.op_type == "Constant" and value is not None:
                stored[node.output[0]], known[node.output[0]] = value, len(value.dims)
            visit(node)
            for branch in (a.g for a in node.attribute if a.HasField("g")):
                walk(branch.node)
                pairs = zip(branch.output, node.output, strict=False)
                for inner, made in pairs if node.op_type == "If" else ():
                    for one, axis in list(places.get(inner.name, {}).items()):
                        move(made, one, axis, known[inner.name])

    walk(graph.node)
    return batches, others


def _pair(visit: Visit) -> Moved:
    most = max(visit.rank_of(name) or 0 for name in visit.node.input)
    return Moved(axis=visit.axis + most - visit.rank, rank=most)


def _image(visit: Visit) -> Moved:
    if visit.at:
        return LOST
    return Moved(batch=True, axis=0, rank=visit.rank) if visit.axis == 0 else MET


def _recurrent(visit: Visit) -> Moved:
    if visit.at not in (0, 5, 6) or visit.axis > 1:
        return LOST
    return Moved(batch=visit.axis == (0 if visit.attrs.get("layout", 0) else 1))


def _slice(visit: Visit) -> Moved:
    axes = visit.axes(3, rank=visit.rank)
    if visit.at or axes is None:
        return LOST
    return MET if visit.axis in (axes or range(visit.rank)) else visit.stay()


_RULES: dict[str, Callable[[Visit], Moved]] = {
    **dict.fromkeys(_KEEPING, lambda visit: visit.stay() if visit.at == 0 else LOST),
    **dict.fromkeys(_PAIRWISE, _pair),
    **dict.fromkeys(_OF_IMAGES, _image),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("CumSum", "TopK"), meet_along),
    "NonMaxSuppression": lambda visit: Moved(batch=visit.axis == 0) if visit.at < 2 else LOST,
    "Slice": _slice,
}
