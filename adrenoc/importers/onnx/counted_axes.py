"""Which axis of a node's results is counted, where it works entry by entry on counted tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import onnx

from adrenoc.importers.onnx.graph import Counted, OnnxGraph, attributes

# fmt: off
_BY_ELEMENT = frozenset({
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf",
    "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or",
    "Pow", "PRelu", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt",
    "Sub", "Sum", "Tanh", "Where", "Xor",
})
# fmt: on

Own = Mapping[str, Counted]
Rule = Callable[[OnnxGraph, onnx.NodeProto, Own], "int | None"]


def follow_axis(graph: OnnxGraph, node: onnx.NodeProto) -> Counted | str:
    """Return what the results of `node` are, or in words why they are nothing that can be had."""
    own = _find_counted(graph, node)
    sources = sorted({one.source for one in own.values()})
    if len(sources) > 1:
        found = " and of ".join(f"'{name}'" for name in sources)
        return f"the numbers of entries of {found} depend on data: use one of them at a time"
    rule = _RULES.get(node.op_type)
    if rule is None and node.op_type in _BY_ELEMENT:
        rule = _follow_elements
    if rule is not None and node.op_type in _OF_FIRST and set(own) != {node.input[0]}:
        rule = None
    is_known = None not in [graph.shape_of(name) for name in (*node.input, *node.output) if name]
    axis = rule(graph, node, own) if rule is not None and own and is_known else None
    if axis is None:
        what = f"'{next(iter(own))}'" if own else "a tensor of the graph around it"
        return (
            f"how many entries {what} has depends on data: they can be gathered by, sliced from "
            "the first on, and computed one by one; give them as an output, and do this on the CPU"
        )
    return replace(next(iter(own.values())), axis=axis)


def _find_counted(graph: OnnxGraph, node: onnx.NodeProto) -> dict[str, Counted]:
    """Return the counted inputs."""
    known = ((name, graph.counted.get(name)) for name in node.input)
    return {name: counted for name, counted in known if counted is not None}


def _shape(graph: OnnxGraph, name: str) -> tuple[int, ...]:
    return graph.shape_of(name) or ()


def _ints(graph: OnnxGraph, node: onnx.NodeProto, index: int, name: str) -> list[int] | None:
    """Integers that are a constant input in newer opsets, and an attribute in older ones."""
    if len(node.input) > index and node.input[index]:
        value = graph.constants.get(node.input[index])
        return None if value is None else [int(v) for v in value.reshape(-1)]
    given = attributes(node).get(name)
    return None if given is None else [int(v) for v in given]


def _axis(node: onnx.NodeProto, rank: int, missing: int = 0) -> int:
    return attributes(node).get("axis", missing) % rank if rank else 0


def _follow_elements(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    """Operands are aligned at the right; only counted ones may extend along the counted axis."""
    rank = len(_shape(graph, node.output[0]))
    aligned = {own[n].axis + rank - len(_shape(graph, n)) for n in node.input if n in own}
    if len(aligned) != 1:
        return None
    (axis,) = aligned
    extent = _shape(graph, node.output[0])[axis]
    for name in filter(None, node.input):
        shape = _shape(graph, name)
        place = axis - rank + len(shape)
        if (shape[place] if place >= 0 else 1) != (extent if name in own else 1):
            return None
    return axis


def _transpose(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    rank = len(_shape(graph, node.input[0]))
    return list(attributes(node).get("perm", range(rank)[::-1])).index(own[node.input[0]].axis)


def _squeeze(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    axes, axis = _ints(graph, node, 1, "axes"), own[node.input[0]].axis
    rank = len(_shape(graph, node.input[0]))
    gone = {a % rank for a in axes or ()}
    return None if not gone or axis in gone else axis - sum(a < axis for a in gone)


def _unsqueeze(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    axes, axis = _ints(graph, node, 1, "axes"), own[node.input[0]].axis
    if axes is None:
        return None
    rank = len(_shape(graph, node.input[0])) + len(axes)
    added = {a % rank for a in axes}
    return [a for a in range(rank) if a not in added][axis]


def _reshape(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    """The axis has to stay whole, and the wanted shape has to leave its extent open."""
    wanted = _ints(graph, node, 1, "shape")
    before, after = _shape(graph, node.input[0]), _shape(graph, node.output[0])
    axis = own[node.input[0]].axis
    for place, extent in enumerate(after):
        is_open = wanted is not None and (
            wanted[place] == -1 or (wanted[place] == 0 and place == axis)
        )
        whole = math.prod(before[:axis]) == math.prod(after[:place])
        if is_open and whole and extent == before[axis]:
            return place
    return None


def _flatten(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    rank = len(_shape(graph, node.input[0]))
    first = own[node.input[0]].axis == 0 and _axis(node, rank, 1) == 1
    return 0 if first else None


def _slice(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    """Of the counted axis only the first entries, which are the first that were found."""
    rank, axis = len(_shape(graph, node.input[0])), own[node.input[0]].axis
    starts, ends = _ints(graph, node, 1, "starts"), _ints(graph, node, 2, "ends")
    if starts is None or ends is None:
        return None
    axes = _ints(graph, node, 3, "axes")
    if axes is None and len(node.input) > 3 and node.input[3]:
        return None
    steps = _ints(graph, node, 4, "steps")
    if steps is None and len(node.input) > 4 and node.input[4]:
        return None
    for place, of in enumerate(axes or range(len(starts))):
        step = steps[place] if steps else 1
        if of % rank == axis and not (starts[place] == 0 and step == 1 and ends[place] > 0):
            return None
    return axis


def _gather(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    data, indices = node.input[0], node.input[1]
    rank = len(_shape(graph, data))
    along = _axis(node, rank)
    if data not in own:
        return along + own[indices].axis
    axis = own[data].axis
    if indices in own or axis == along:
        return None
    return axis if axis < along else axis - 1 + len(_shape(graph, indices))


def _gather_nd(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    if node.input[0] in own or attributes(node).get("batch_dims", 0):
        return None
    axis = own[node.input[1]].axis
    return axis if axis < len(_shape(graph, node.input[1])) - 1 else None


def _concat(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    axes = {own[n].axis if n in own else None for n in node.input}
    axis = next(iter(axes)) if len(axes) == 1 else None
    return None if axis == _axis(node, len(_shape(graph, node.input[0]))) else axis


def _split(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    axis = own[node.input[0]].axis
    return None if axis == _axis(node, len(_shape(graph, node.input[0]))) else axis


def _expand(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    """The axis keeps its extent, and the wanted shape leaves it to the data."""
    wanted = _ints(graph, node, 1, "shape")
    before, after = _shape(graph, node.input[0]), _shape(graph, node.output[0])
    axis = own[node.input[0]].axis
    place = axis + len(after) - len(before)
    stated = place - len(after) + len(wanted or ())
    if wanted is None or before[axis] == 1 or after[place] != before[axis]:
        return None
    return place if stated < 0 or wanted[stated] == 1 else None


def _matmul(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    """Rows of the first operand, columns of the second, and batches that the other has not."""
    if len(own) != 1 or node.input[0] == node.input[1]:
        return None
    first = node.input[0] in own
    name, other = node.input[:2] if first else reversed(node.input[:2])
    shape, beside = _shape(graph, name), _shape(graph, other)
    axis, rank = own[name].axis, len(_shape(graph, node.output[0]))
    from_end = len(shape) - axis
    if len(shape) < 2 or len(beside) < 2 or from_end == (1 if first else 2):
        return None
    if from_end > 2 and from_end <= len(beside) and beside[-from_end] != 1:
        return None
    return rank - from_end


def _gemm(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    bias = _shape(graph, node.input[2]) if len(node.input) > 2 and node.input[2] else ()
    rows = own[node.input[0]].axis == 0 and not attributes(node).get("transA", 0)
    return 0 if rows and (len(bias) < 2 or bias[0] == 1) else None


def _softmax(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    rank, axis = len(_shape(graph, node.input[0])), own[node.input[0]].axis
    if graph.opset < 13:
        return axis if axis < _axis(node, rank, 1) else None
    return None if axis == _axis(node, rank, -1) else axis


def _layer_norm(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    axis = own[node.input[0]].axis
    return axis if axis < _axis(node, len(_shape(graph, node.input[0])), -1) else None


def _reduce(graph: OnnxGraph, node: onnx.NodeProto, own: Own) -> int | None:
    axes, axis = _ints(graph, node, 1, "axes"), own[node.input[0]].axis
    gone = {a % len(_shape(graph, node.input[0])) for a in axes or ()}
    if not gone or axis in gone:
        return None
    return axis if attributes(node).get("keepdims", 1) else axis - sum(a < axis for a in gone)


_REDUCTIONS = tuple(
    f"Reduce{kind}"
    for kind in (
        "L1",
        "L2",
        "LogSum",
        "LogSumExp",
        "Max",
        "Mean",
        "Min",
        "Prod",
        "Sum",
        "SumSquare",
    )
)

_OF_FIRST = frozenset(
    {
        *("Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
        *("Expand", "Gemm", "LayerNormalization", "LogSoftmax", "Softmax", *_REDUCTIONS),
    }
)
"""Those whose first input alone may be counted."""

_RULES: Mapping[str, Rule] = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    **dict.fromkeys(_REDUCTIONS, _reduce),
}
