"""Which open axes of an ONNX model's inputs are batches: axes of samples that know nothing of each
other.

An axis is followed through the nodes that keep it, up to those that say what it is:

    Conv, pools, norms of channels: axis 0 is the batch, others are space
    GRU, LSTM, RNN: one axis is the steps, the other the batch
    Concat, Softmax, sums along it: it is none, as its elements meet
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from adrenoc.importers.onnx.graph import attributes

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
_ALONG_AN_AXIS = frozenset({"Concat", "CumSum", "LogSoftmax", "Softmax", "Split", "TopK"})
"""Operators whose elements meet, or part, along the axis that an attribute names."""
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

    def visit(node: onnx.NodeProto) -> None:
        for at, name in enumerate(node.input):
            for one, axis in list(places.get(name, {}).items()):
                moved = _follow(
                    _Visit(
                        node=node, at=at, axis=axis, rank=known[name], ranks=known, stored=stored
                    )
                )
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


@dataclass(frozen=True, kw_only=True)
class _Visit:
    """A node that reads a tensor as its input number `at`, with an open `axis` among `rank`."""

    node: onnx.NodeProto
    at: int
    axis: int
    rank: int
    ranks: Mapping[str, int]
    stored: Mapping[str, onnx.TensorProto]

    @property
    def attrs(self) -> dict[str, Any]:
        return attributes(self.node)

    def stay(self) -> _Moved:
        """Return the axis lies in the results as it does here."""
        return _Moved(axis=self.axis, rank=self.rank)

    def axes(self, at: int, *, rank: int) -> list[int] | None:
        """Return axes as an attribute or input number `at` has them; None where nobody knows."""
        axes = self.attrs.get("axes")
        if axes is None and len(self.node.input) > at and self.node.input[at]:
            tensor = self.stored.get(self.node.input[at])
            if tensor is None:
                return None
            axes = onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
        return [int(axis) % rank for axis in axes or ()]


@dataclass(frozen=True, kw_only=True)
class _Moved:
    """What a node says of an axis (`batch`), and where the axis lies in its result."""

    batch: bool | None = None
    axis: int | None = None
    rank: int = 0


_LOST = _Moved()
_MET = _Moved(batch=False)


def _follow(visit: _Visit) -> _Moved:
    """Return what becomes of an axis; nothing where the trace is lost."""
    kind = visit.node.op_type
    rule = _RULES.get(kind)
    if rule is None and kind.startswith("Reduce"):
        rule = _reduce
    if rule is None and kind.endswith("LayerNormalization"):
        rule = _normalise
    return rule(visit) if rule is not None and visit.rank else _LOST


def _keep(visit: _Visit) -> _Moved:
    return visit.stay() if visit.at == 0 else _LOST


def _pair(visit: _Visit) -> _Moved:
    most = max(visit.ranks.get(name, 0) for name in visit.node.input)
    return _Moved(axis=visit.axis + most - visit.rank, rank=most)


def _image(visit: _Visit) -> _Moved:
    if visit.at:
        return _LOST
    return _Moved(batch=True, axis=0, rank=visit.rank) if visit.axis == 0 else _MET


def _along(visit: _Visit) -> _Moved:
    axis = visit.attrs.get("axis", 0 if visit.node.op_type == "Split" else -1)
    return _MET if axis % visit.rank == visit.axis else visit.stay()


def _normalise(visit: _Visit) -> _Moved:
    is_within = visit.axis >= visit.attrs.get("axis", -1) % visit.rank
    return _MET if is_within else visit.stay()


def _recurrent(visit: _Visit) -> _Moved:
    if visit.at not in (0, 5, 6) or visit.axis > 1:
        return _LOST
    return _Moved(batch=visit.axis == (0 if visit.attrs.get("layout", 0) else 1))


def _transpose(visit: _Visit) -> _Moved:
    perm = visit.attrs.get("perm") or list(reversed(range(visit.rank)))
    return _Moved(axis=perm.index(visit.axis), rank=visit.rank) if visit.axis in perm else _LOST


def _product(visit: _Visit) -> _Moved:
    if visit.at == 0 and visit.axis < visit.rank - 1:
        return visit.stay()
    is_summed = visit.axis == visit.rank - (1 if visit.at == 0 else 2)
    return _MET if is_summed else _LOST


def _gemm(visit: _Visit) -> _Moved:
    if visit.at:
        return _LOST
    is_row = visit.axis == (1 if visit.attrs.get("transA", 0) else 0)
    return _Moved(axis=0, rank=2) if is_row else _MET


def _gather(visit: _Visit) -> _Moved:
    table, picked = (visit.ranks.get(name) for name in visit.node.input[:2])
    if table is None or picked is None:
        return _LOST
    along = visit.attrs.get("axis", 0) % max(table, 1)
    if visit.at == 1:
        return _Moved(axis=visit.axis + along, rank=table + picked - 1)
    if visit.axis == along:
        return _MET
    axis = visit.axis + (picked - 1 if visit.axis > along else 0)
    return _Moved(axis=axis, rank=table + picked - 1)


def _slice(visit: _Visit) -> _Moved:
    axes = visit.axes(3, rank=visit.rank)
    if visit.at or axes is None:
        return _LOST
    return _MET if visit.axis in (axes or range(visit.rank)) else visit.stay()


def _squeeze(visit: _Visit) -> _Moved:
    axes = visit.axes(1, rank=visit.rank)
    if not axes or visit.axis in axes:
        return _LOST
    return _Moved(axis=visit.axis - sum(a < visit.axis for a in axes), rank=visit.rank - len(axes))


def _unsqueeze(visit: _Visit) -> _Moved:
    axes = visit.axes(1, rank=visit.rank + 1)
    if not axes or len(axes) > 1:
        return _LOST
    return _Moved(axis=visit.axis + (axes[0] <= visit.axis), rank=visit.rank + 1)


def _flatten(visit: _Visit) -> _Moved:
    is_kept = visit.axis == 0 and visit.attrs.get("axis", 1) == 1
    return _Moved(axis=0, rank=2) if is_kept else _LOST


def _suppress(visit: _Visit) -> _Moved:
    return _Moved(batch=visit.axis == 0) if visit.at < 2 else _LOST


def _reduce(visit: _Visit) -> _Moved:
    """Along an axis its elements meet; along others it stays, or moves up."""
    axes = visit.axes(1, rank=visit.rank)
    if visit.at or axes is None:
        return _LOST
    along = axes or list(range(visit.rank))
    if visit.axis in along:
        return _MET
    if visit.attrs.get("keepdims", 1):
        return visit.stay()
    return _Moved(
        axis=visit.axis - sum(a < visit.axis for a in along), rank=visit.rank - len(along)
    )


_RULES: dict[str, Callable[[_Visit], _Moved]] = {
    **dict.fromkeys(_KEEPING, _keep),
    **dict.fromkeys(_PAIRWISE, _pair),
    **dict.fromkeys(_OF_IMAGES, _image),
    **dict.fromkeys(_ALONG_AN_AXIS, _along),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _product,
    "NonMaxSuppression": _suppress,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
