"""An ONNX graph while it becomes a network: what translations of operators ask of it. Functions of
floats between two conversions become operators on bytes.

*Before -> after*: QuantizeLinear(f(DequantizeLinear(x))) -> Between(x, its scale and zero point,
those of the result), which is a table; the same for concatenations, as QLinearConcat, and for
linear resizes. QuantizeLinear(Reshape(f)) -> Reshape(QuantizeLinear(f)), so that f is closed too.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8
from adrenoc.firmware.mcu.network import FirmwareTensor, offsets_of
from adrenoc.firmware.mcu.operators import Move, Requantise, Reshape
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.importers.onnx.contrib_quantised import QdqFuser, Rule, fuse_move, make_fused
from adrenoc.importers.onnx.graph import OnnxGraph, attributes

_UNSIGNED = 128
_BYTES = {onnx.TensorProto.INT8: 0, onnx.TensorProto.UINT8: _UNSIGNED}
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(kw_only=True)
class OnnxContext:
    """A translation under way. Tensors of four axes lie with channels last; bytes without sign are
    stored less 128."""

    graph: OnnxGraph
    operators: list[NetworkOperator] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    tensors: list[FirmwareTensor] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """The tensor of each name."""

    def constant(self, node: onnx.NodeProto, index: int) -> np.ndarray:
        """Return the value of an input that has to be known."""
        name = node.input[index] if index < len(node.input) else ""
        if name not in self.graph.constants:
            raise RefusedError(f"input {index} is not a constant")
        return self.graph.constants[name]

    def number(self, node: onnx.NodeProto, index: int) -> Any:
        """Return the one number of a constant, in its own type."""
        value = self.constant(node, index).reshape(-1)
        if value.size != 1:
            raise RefusedError(f"input {index} has {value.size} numbers, expected one")
        return value[0]

    def quanta(self, node: onnx.NodeProto, index: int) -> tuple[np.float32, int]:
        """Return a constant scale, and the zero point behind it."""
        return np.float32(self.number(node, index)), int(self.number(node, index + 1))

    def given(self, node: onnx.NodeProto, index: int) -> bool:
        """Return whether a node has an input that may be left out."""
        return len(node.input) > index and bool(node.input[index])

    def data(self, node: onnx.NodeProto, index: int) -> int:
        """Return the tensor of an input that varies."""
        if node.input[index] not in self.places:
            raise RefusedError(f"input {index} is no tensor of bytes that varies")
        return self.places[node.input[index]]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the file's shape of a tensor."""
        known = self.graph.types.get(name)
        if known is None or known.shape is None:
            raise RefusedError(f"'{name}' has no static shape")
        return tuple(int(d) for d in known.shape)

    def offset(self, name: str) -> int:
        """Return what a stored number of the firmware is below the file's."""
        known = self.graph.types.get(name)
        if known is None or known.element not in _BYTES:
            raise RefusedError(f"'{name}' is no tensor of bytes")
        return _BYTES[known.element]

    def make(self, name: str, scale: float, zero: int) -> int:
        """Return a tensor for a name of the file, with the file's zero point."""
        shape = self.shape(name)
        if len(shape) == 4:
            shape = tuple(shape[a] for a in _TO_LAST)
        self.places[name] = self.add(shape, name, scale, zero - self.offset(name))
        return self.places[name]

    def result(self, node: onnx.NodeProto, index: int) -> int:
        """Return a tensor for a node's output, with the quanta that its inputs from `index` say."""
        scale, zero = self.quanta(node, index)
        return self.make(node.output[0], float(scale), zero)

    def float_image(self, node: onnx.NodeProto) -> dict[str, Any]:
        """Return what all operators on images in float32 have, of a node between conversions."""
        source, (scale, _), (to, zero) = (
            self.data(node, 0),
            self.quanta(node, 1),
            self.quanta(node, 3),
        )
        return {
            "source": source,
            "result": self.result(node, 3),
            "scales": (scale, to),
            "zeros": (self.tensors[source].zero, zero),
            "offset": self.offset(node.output[0]),
        }

    def like(self, name: str, source: int) -> int:
        """Return a tensor for a name of the file, with another's quanta."""
        tensor = self.tensors[source]
        return self.make(name, tensor.scale, tensor.zero + self.offset(name))

    def add(self, shape: tuple[int, ...], name: str, scale: float, zero: int) -> int:
        """Return a tensor."""
        return self.add_tensor(FirmwareTensor(name=name, shape=shape, scale=scale, zero=zero))

    def add_tensor(self, tensor: FirmwareTensor) -> int:
        """Return the place of a new tensor."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def spread(self, source: int, places: tuple[np.ndarray, np.ndarray]) -> int:
        """Return an image with other rows and columns: which one each reads, -1 for zeros."""
        tensor = self.tensors[source]
        n, _, _, depth = tensor.shape
        shape = (n, len(places[0]), len(places[1]), depth)
        result = self.add(shape, f"{tensor.name} spread", tensor.scale, tensor.zero)
        indices = (np.zeros(1, np.int64), *places, np.arange(depth))
        offsets = offsets_of(tensor.shape, indices)
        self.operators.append(Move(source=source, result=result, offsets=offsets, fill=tensor.zero))
        return result

    def transpose(self, source: int, order: tuple[int, ...], label: str) -> int:
        """Return a tensor with its axes in another order; by a move, where that moves anything."""
        tensor = self.tensors[source]
        shape = tuple(tensor.shape[a] for a in order)
        long = [a for a in order if tensor.shape[a] > 1]
        result = self.add(shape, tensor.name, tensor.scale, tensor.zero)
        if long == sorted(long):
            self.operators.append(Reshape(source=source, result=result))
        else:
            indices = [np.arange(tensor.shape[a]) for a in order]
            offsets = offsets_of(tensor.shape, indices, order)
            self.operators.append(Move(source=source, result=result, offsets=offsets, fill=0))
        self.labels.append(label)
        return result

    def channels_first(self, source: int) -> int:
        """Return the tensor in the file's own order."""
        image = len(self.tensors[source].shape) == 4
        return self.transpose(source, _TO_FIRST, "Transpose") if image else source

    def channels_last(self, source: int) -> int:
        """Return a tensor of the file's own order as the network has it."""
        image = len(self.tensors[source].shape) == 4
        return self.transpose(source, _TO_LAST, "Transpose") if image else source


def float_rule(reals: np.ndarray, zero: int) -> Requantise:
    """Multiply sums by factors in float32, halves to even, as onnxruntime rounds."""
    factors = np.asarray(reals, np.float32).reshape(-1)
    return Requantise(zero=zero, low=INT8[0], high=INT8[1], reals=factors)


def options(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes."""
    return dict(attributes(node))


Translation: TypeAlias = Callable[[OnnxContext, onnx.NodeProto], None]
"""Adds what a node of the file is to the network.

Raises:
    RefusedError: it is of a kind that has no kernel, with the reason.
    ValueError: the file contradicts itself.
"""


BETWEEN = "Between"
LINEAR_RESIZE = "QLinearResize"
_ONE = np.float32(1)
Function: TypeAlias = Callable[[np.ndarray], np.ndarray]


def _hard_sigmoid(node: onnx.NodeProto, alpha: float = 0.2) -> Function:
    given = dict(attributes(node))
    a = np.float32(given.get("alpha", alpha))
    b = np.float32(given.get("beta", 0.5))
    return lambda x: np.clip(x * a + b, np.float32(0), _ONE)


def _hard_swish(node: onnx.NodeProto) -> Function:
    gate = _hard_sigmoid(node, 1 / 6)
    return lambda x: x * gate(x)


def _elu(node: onnx.NodeProto) -> Function:
    alpha = float(dict(attributes(node)).get("alpha", 1.0))
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x.astype(np.float64), 0)))


def _leaky_relu(node: onnx.NodeProto) -> Function:
    alpha = np.float32(dict(attributes(node)).get("alpha", 0.01))
    return lambda x: np.where(x >= 0, x, x * alpha)


FUNCTIONS: dict[str, Callable[[onnx.NodeProto], Function]] = {
    "Abs": lambda node: np.abs,
    "Elu": _elu,
    "Exp": lambda node: lambda x: np.exp(x.astype(np.float64)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Neg": lambda node: np.negative,
    "Relu": lambda node: lambda x: np.maximum(x, np.float32(0)),
    "Sigmoid": lambda node: lambda x: 1 / (1 + np.exp(-x.astype(np.float64))),
    "Tanh": lambda node: lambda x: np.tanh(x.astype(np.float64)),
}


MEAN, TRANSPOSED = "QLinearReduceMean", "QLinearConvTranspose"
WEIGHTS_AXIS = "weights_axis"
"""Attribute: the axis that scales of the weights go along."""
_MOVES = ("Pad", "Resize", "Slice")
_SHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_CLOSED = {
    **dict.fromkeys(FUNCTIONS, BETWEEN),
    "ReduceMean": MEAN,
    "Resize": LINEAR_RESIZE,
    "Softmax": "QLinearSoftmax",
}
"""Operators of one tensor, and what they are on bytes."""


def _quantise_before_shapes(graph: OnnxGraph) -> None:
    """Let what a closed operator makes be quantised before it gets another shape."""
    places = {name: place for place, node in enumerate(graph.nodes) for name in node.output}
    readers = graph.count_reads()
    for node in list(graph.nodes):
        place = places[node.output[0]]
        while (before := _shape_before(graph, place, places, readers)) is not None:
            end, shaped = graph.nodes[place], graph.nodes[before]
            source, between = shaped.input[0], f"{shaped.input[0]} quantised by {end.output[0]}"
            element = graph.types[end.output[0]].element
            graph.types[between] = replace(graph.types[source], element=element)
            last = helper.make_node(
                shaped.op_type, [between, *shaped.input[1:]], list(end.output), name=shaped.name
            )
            last.attribute.extend(shaped.attribute)
            first = helper.make_node(end.op_type, [source, *end.input[1:]], [between])
            graph.nodes[before], graph.nodes[place] = first, last
            places[between] = place = before


def _shape_before(
    graph: OnnxGraph, place: int, places: dict[str, int], readers: Counter[str]
) -> int | None:
    """Return where a conversion to bytes reads what only shapes the result of a closed operator."""
    end = graph.nodes[place]
    if end.op_type != "QuantizeLinear" or len(end.input) != 3 or readers[end.input[0]] != 1:
        return None
    before = places.get(end.input[0])
    if before is None or graph.nodes[before].op_type not in _SHAPES:
        return None
    maker = places.get(graph.nodes[before].input[0])
    known = maker is not None and graph.nodes[maker].op_type in (*_SHAPES, *_RULES)
    return before if known else None


def close_islands(graph: OnnxGraph) -> None:
    """Put operators on bytes in place of what stands between two conversions, in `graph`."""
    _quantise_before_shapes(graph)
    QdqFuser(graph).run(_RULES)


def is_linear_resize(node: onnx.NodeProto) -> bool:
    """Return whether a node resizes to numbers between its elements."""
    return node.op_type == "Resize" and dict(attributes(node)).get("mode") == b"linear"


def _close_one(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
    x, y = fuser.activation(node, 0), fuser.result(node, clamps=False)
    if x is None or y is None:
        return None
    kind = _CLOSED[node.op_type]
    made = make_fused(kind, [*x.operands, y.scale, y.zero, *node.input[1:]], node, y.name)
    if kind == BETWEEN:
        made.attribute.append(helper.make_attribute("function", node.op_type))
    return made


def _close_move(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
    if is_linear_resize(node):
        return _close_one(fuser, node)
    made, x = fuse_move(fuser, node), fuser.activation(node, 0)
    if made is not None and x is not None and node.op_type == "Pad" and not any(made.input[2:3]):
        # What it fills up with is zero, of which the byte is the zero point.
        made.input[:] = [*made.input[:2], x.zero, *made.input[3:]]
    return made


def _close_concat(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
    parts = [fuser.activation(node, at) for at in range(len(node.input))]
    y = fuser.result(node, clamps=False)
    if y is None or None in parts:
        return None
    operands = [name for part in parts if part is not None for name in part.operands]
    return make_fused("QLinearConcat", [y.scale, y.zero, *operands], node, y.name)


def _close_transposed(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the node with its inputs as QLinearConv has them."""
    x, weight = fuser.activation(node, 0), fuser.quanta(node, 1)
    y = fuser.result(node, clamps=False)
    bias = None if x is None or weight is None else fuser.bias(node, x, weight)
    if x is None or weight is None or y is None or bias is None:
        return None
    inputs = [*x.operands, *weight.operands, y.scale, y.zero, *([bias] if bias else [])]
    made = make_fused(TRANSPOSED, inputs, node, y.name)
    made.attribute.append(helper.make_attribute(WEIGHTS_AXIS, weight.axis))
    return made


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_CLOSED, _close_one),
    **dict.fromkeys(_MOVES, _close_move),
    "Concat": _close_concat,
    "ConvTranspose": _close_transposed,
}
