"""Which open axes of an ONNX model's inputs are batches: axes of samples that know nothing of each
other.

An axis is followed through the nodes that keep it, up to those that say what it is:

    Conv, pools, norms of channels: axis 0 is the batch, others are space
    GRU, LSTM, RNN: one axis is the steps, the other the batch
    Concat, Softmax, sums along it: it is none, as its elements meet
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx
from onnx import numpy_helper

from adrenoc.importers.onnx.follow_axes import LOST, MET, Moved, Visit, find_rule, meet_along

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


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What nodes say of the open axes that reach them."""

    batches: set[Axis]
    others: set[Axis]


def find_batches(
    graph: onnx.GraphProto, axes: Mapping[str, Sequence[int | str | None]]
) -> frozenset[Axis]:
    """Return the open axes of inputs that are batches; `axes` has the extents of each input.

    An axis 0 of several is one where nothing speaks against it: neither a node nor its name.
    Others are where a node says so, or where they share the name of such a one.
    """
    open_axes = [
        (name, axis)
        for name, extents in axes.items()
        for axis, extent in enumerate(extents)
        if not isinstance(extent, int)
    ]
    found = _ask_nodes(graph, {name: len(extents) for name, extents in axes.items()}, open_axes)
    names = {(name, axis): axes[name][axis] for name, axis in open_axes}

    def alike(one: Axis) -> list[Axis]:
        """Return the axes of the same name, itself with them."""
        return [
            o for o in open_axes if o == one or (names[o] is not None and names[o] == names[one])
        ]

    def is_batch(one: Axis) -> bool:
        named = str(names[one] or "")
        if found.others.intersection(alike(one)):
            return False
        if found.batches.intersection(alike(one)):
            return True
        leads = any(axis == 0 and len(axes[name]) > 1 for name, axis in alike(one))
        if not leads or _NAMED_OTHERWISE.search(named):
            return bool(leads and _NAMED_BATCH.search(named))
        return True

    return frozenset(one for one in open_axes if is_batch(one))


def _ask_nodes(
    graph: onnx.GraphProto, ranks: Mapping[str, int], open_axes: Iterable[Axis]
) -> _Found:
    """Follow the axes through all nodes, those of branches too."""
    found = _Found(batches=set(), others=set())
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

    def visit(node: onnx.NodeProto) -> None:
        rule = _RULES.get(node.op_type) or find_rule(node.op_type)
        if rule is None:
            return
        look = partial(Visit, node=node, rank_of=known.get, ints_of=ints_of, opset=_NEWEST)
        for at, name in enumerate(node.input):
            for one, axis in list(places.get(name, {}).items()):
                moved = rule(look(at=at, axis=axis)) if known[name] else LOST
                if moved.batch is not None:
                    (found.batches if moved.batch else found.others).add(one)
                for made in node.output if moved.axis is not None else ():
                    move(made, one, moved.axis or 0, moved.rank)

    def walk(nodes: Iterable[onnx.NodeProto]) -> None:
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
    return found


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
