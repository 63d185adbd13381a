"""Quantised operators of onnxruntime's own domain, as floats between two quantisations.

Before -> after:
    y = com.microsoft.QLinearSigmoid(x, ...)                y = Quantize(Sigmoid(Dequantize(x)))
    y = com.microsoft.DynamicQuantizeLSTM(x, W, R, ...)     y = LSTM(x, (W - zero) * scale, ...)

onnxruntime defines them so, but for sums and products: those count in quanta, and one factor at the
end does what three scales would.  What runs as integers on the GPU is decided later, for these and
for models that are written this way from the start.

Of recurrent, attention and embedding layers, onnxruntime rounds the data of each run, and the state
of each step, to bytes whose range is that of all their numbers.  Where the weights are constants
they are opened once and the data stays float: nearer to the model that was trained, and off from
onnxruntime by that rounding.  A check against its own result would tell nothing of the kernel.

Float operators that stand between dequantisation and quantisation become quantised ones:
    y = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(b)))
    y = QLinearConv(x, w, b)

onnxruntime runs such models so.  The sums are of integers then and come out exactly, where sums of
floats are rounded in an order of their own and move results by a quantum, layer by layer.

Of signed bytes onnxruntime does so on arm64, as on phones.  On x86 it makes bytes without sign of
them where a tensor has one reader, and leaves floats where that gives an operator both kinds: a
flip of a quantum here and there, and two at the end of a MobileNet (`session.py`).

Source: onnxruntime's ContribOperators reference; its QDQ transformers (which operators, on which
conditions).
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from onnx import NodeProto, helper
from onnx.numpy_helper import from_array

from adrenoc.base.errors import RefusedError
from adrenoc.importers.onnx.attention import attend
from adrenoc.importers.onnx.graph import (
    MICROSOFT,
    OnnxGraph,
    Writer,
    array_of,
    attributes,
    is_standard,
)

OPENED = "DynamicQuantizeLSTM"
_WEIGHTS = ((1, 8, 9), (2, 10, 11))
"""A byte layer's weights and recurrence: the inputs that are quanta, scales and zero points."""


def _float(write: Writer, first: int) -> str:
    """Return the numbers that inputs `first` (quanta), +1 (scale) and +2 (zero point) stand for."""
    return write("DequantizeLinear", *map(write.input, range(first, first + 3)))


def _quanta(write: Writer, x: str, scale: int, source: int = 0) -> None:
    """Write the result in the dtype of input `source`; its zero point follows its scale."""
    zero = _zero_of(write, scale + 1, source)
    write("QuantizeLinear", x, write.input(scale), zero, out=write.result)


def _numbers(write: Writer, *indices: int) -> list[np.float32]:
    """Return scales and zero points, each of which is one constant number, and 0 if left out."""
    held = [write.value(write.input(i)) if write.input(i) else np.zeros(()) for i in indices]
    if any(value is None or value.size != 1 for value in held):
        raise RefusedError("a scale or zero point of it is not one constant number")
    return [np.float32(value.reshape(())) for value in held if value is not None]


def _whole(write: Writer, index: int) -> str:
    """Return integers as floats."""
    return write("Cast", write.input(index), to=1)


def _quantise(write: Writer, x: str, zero: str) -> None:
    """Write the result: `x` in quanta, to the nearest integers."""
    write("QuantizeLinear", x, write.array(np.array(1, np.float32)), zero, out=write.result)


def _zero_of(write: Writer, index: int, source: int = 0) -> str:
    """Return a zero point, or a zero in the dtype of input `source` where it is left out."""
    if write.input(index):
        return write.input(index)
    return write.array(np.zeros((), np.dtype(write.dtype(write.input(source)))))


def _add(write: Writer) -> None:
    """Write one factor an operand, one offset, one rounding: as onnxruntime does on x86."""
    a_scale, a_zero, b_scale, b_zero, scale, zero = _numbers(write, 1, 2, 4, 5, 6, 7)
    a_factor, b_factor = a_scale / scale, b_scale / scale
    offset = zero - (a_factor * a_zero + b_factor * b_zero)
    b = write("Mul", _whole(write, 3), write.array(np.asarray(b_factor)))
    b = write("Add", b, write.array(np.asarray(offset)))
    a = write("Mul", _whole(write, 0), write.array(np.asarray(a_factor)))
    # The sum holds the zero point already: half of an odd number of quanta is even with it.
    none = write.array(np.zeros((), np.dtype(write.dtype(_zero_of(write, 7)))))
    _quantise(write, write("Add", a, b), none)


def _mul(write: Writer) -> None:
    """Write the product of integers times one factor, plus the zero point; rounded then."""
    a_scale, a_zero, b_scale, b_zero, scale, zero = _numbers(write, 1, 2, 4, 5, 6, 7)
    a = write("Sub", _whole(write, 0), write.array(np.asarray(a_zero)))
    b = write("Sub", _whole(write, 3), write.array(np.asarray(b_zero)))
    scaled = write("Mul", write("Mul", a, b), write.array(np.asarray(a_scale * b_scale / scale)))
    none = write.array(np.zeros((), np.dtype(write.dtype(_zero_of(write, 7)))))
    _quantise(write, write("Add", scaled, write.array(np.asarray(zero))), none)


def _global_pool(write: Writer) -> None:
    """Write the sum of integers times one factor."""
    x_scale, x_zero, scale = _numbers(write, 1, 2, 3)
    shape = write.shape(write.input(0))
    first = 1 if write.number("channels_last", 0) else 2
    axes = list(range(first, first + len(shape) - 2))
    count = np.float32(np.prod([shape[axis] for axis in axes]))
    centred = write("Sub", _whole(write, 0), write.array(np.asarray(x_zero)))
    total = write.total(centred, *axes, keepdims=1)
    factor = x_scale / (scale * count)
    _quantise(write, write("Mul", total, write.array(np.asarray(factor))), _zero_of(write, 4))


def _unary(op: str, *attributes: str) -> Callable[[Writer], None]:
    def rewrite(write: Writer) -> None:
        kept = {name: write.attrs[name] for name in attributes if name in write.attrs}
        _quanta(write, write(op, _float(write, 0), **kept), 3)

    return rewrite


def _average_pool(write: Writer) -> None:
    x, last = _float(write, 0), bool(write.number("channels_last", 0))
    rank = len(write.shape(write.input(0)))
    if last:
        x = write("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    kept = {name: value for name, value in write.attrs.items() if name != "channels_last"}
    pooled = write("AveragePool", x, **kept)
    if last:
        pooled = write("Transpose", pooled, perm=[0, *range(2, rank), 1])
    _quanta(write, pooled, 3)


def _concat(write: Writer) -> None:
    parts = [_float(write, first) for first in range(2, len(write.node.input), 3)]
    joined = write("Concat", *parts, axis=int(write.number("axis", 0)))
    _quanta(write, joined, 0, source=2)


def _softmax(write: Writer) -> None:
    axis, rank = int(write.number("axis", -1)), len(write.shape(write.input(0)))
    if write.number("opset", 13) < 13 and axis % rank != rank - 1:
        raise RefusedError("it normalises over all axes from one on, as opsets below 13 do")
    _quanta(write, write("Softmax", _float(write, 0), axis=axis), 3)


def _gemm(write: Writer) -> None:
    """Write a product of integers, with the bias in its units; then one factor a column."""
    transposes = {n: write.attrs[n] for n in ("transA", "transB") if n in write.attrs}
    a = _whole(write, 0)
    if write.input(2):
        a = write("Sub", a, _whole(write, 2))
    b = _whole(write, 3)
    if write.input(5):
        b_zero = _whole(write, 5)
        if write.shape(write.input(5)) and transposes.get("transB"):
            b_zero = write.reshape(b_zero, -1, 1)
        b = write("Sub", b, b_zero)
    bias = _whole(write, 6) if write.input(6) else ""
    steps = write("Mul", write.input(1), write.input(4))
    alpha = write.number("alpha", 1.0)
    if alpha != 1.0:
        # Not as Gemm's own factor: the bias counts in products of the two scales and alpha.
        steps = write("Mul", steps, write.array(np.float32(alpha)))
    total = write("Gemm", a, b, bias, **transposes)
    if not write.input(7):
        write("Mul", total, steps, out=write.result)
        return
    y = write("Mul", total, write("Div", steps, write.input(7)))
    _quantise(write, y, _zero_of(write, 8))


def _matmul_integer_to_float(write: Writer) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (write.input(index) for index in range(7))
    product = write("MatMulInteger", a, b, a_zero, b_zero)
    _scale_product(write, product, (a_scale, b_scale), bias, out=write.result)


def _dynamic_quantize_matmul(write: Writer) -> None:
    a, b, b_scale, b_zero, bias = (write.input(index) for index in range(5))
    quanta, scale, zero = (f"{write.result}/dynamic{index}" for index in range(3))
    write("DynamicQuantizeLinear", a, out=quanta)
    write.nodes[-1].output.extend([scale, zero])
    product = write("MatMulInteger", quanta, b, zero, b_zero)
    _scale_product(write, product, (scale, b_scale), bias, out=write.result)


def _scale_product(
    write: Writer, product: str, scales: tuple[str, str], bias: str, *, out: str
) -> None:
    """Write the floats `out` that a product of integers stands for, with a bias if there is one."""
    whole = write("Cast", product, to=1)
    factor = write("Mul", *scales)
    result = write("Mul", whole, factor, out="" if bias else out)
    if bias:
        write("Add", result, bias, out=out)


def _open_weights(quanta: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None) -> np.ndarray:
    """Return the floats [directions, columns, rows], as LSTM takes them, of constant quanta
    [directions, rows, columns] with a scale and a zero point for a direction or for each column."""

    def spread(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32).reshape(*values.shape[:1], 1, -1)

    floats = quanta.astype(np.float32)
    if zeros is not None:
        floats = floats - spread(zeros)
    return np.ascontiguousarray(np.swapaxes(floats * spread(scales), 1, 2))


def open_layers(model: onnx.ModelProto) -> None:
    """Put layers of floats in place of those of bytes whose weights are initialisers."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != OPENED:
            continue
        given = {name: array_of(held[name]) for name in node.input if name in held}
        graph = OnnxGraph(nodes=[], inputs=[], outputs=[], opset=1, constants=dict(given))
        write = Writer(node, graph)
        with contextlib.suppress(RefusedError):
            _lstm(write)
            node.CopyFrom(write.nodes[0])
            made = ((name, graph.constants[name]) for name in graph.constants.keys() - given)
            model.graph.initializer.extend(from_array(value, name) for name, value in made)


def _lstm(write: Writer) -> None:
    """The weights lie as [directions, input, 4 hidden], the transpose of the standard's."""
    arrays = []
    for places in _WEIGHTS:
        quanta, steps, zeros = (write.value(write.input(place)) for place in places)
        if quanta is None or steps is None or (zeros is None and write.input(places[2])):
            raise RefusedError("its weights are no constants")
        arrays.append(write.array(_open_weights(quanta, steps, zeros)))
    rest = [write.input(index) for index in range(3, 8)]
    write("LSTM", write.input(0), *arrays, *rest, out=write.node.output[0], **write.attrs)
    write.nodes[-1].output[:] = write.node.output


def _attention(write: Writer) -> None:
    """Its projection is a product of integers; scores and mix are floats."""
    x, weight, bias, x_scale, scale, mask, x_zero, zero, past = (
        write.input(index) for index in range(9)
    )
    if past or write.output(1):
        raise RefusedError("it keeps past keys and values, whose length grows at run time")
    projected = f"{write.result}/projected"
    product = write("MatMulInteger", x, weight, x_zero, zero)
    _scale_product(write, product, (x_scale, scale), bias, out=projected)
    batch, length, _ = write.shape(x)
    hidden = write.shape(weight)[1] // 3
    attend(write, projected, (batch, length), [hidden] * 3, mask=mask)


def _embed_layer_normalization(write: Writer) -> None:
    """Tables and factors of bytes, opened; the rest is EmbedLayerNormalization."""
    tables = []
    for places in ((2, 8, 13), (3, 9, 14), (4, 10, 15), (5, 11, 16), (6, 12, 17)):
        held = [write.input(place) for place in places]
        tables.append(write("DequantizeLinear", *held) if held[0] else "")
    ids, segments, mask = (write.input(index) for index in (0, 1, 7))
    operands = [ids, segments, *tables, mask]
    write("EmbedLayerNormalization", *operands, out=write.result, domain=MICROSOFT, **write.attrs)
    write.nodes[-1].output[:] = write.node.output


QUANTISED: dict[str, Callable[[Writer], None]] = {
    "DynamicQuantizeLSTM": _lstm,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embed_layer_normalization,
    "QGemm": _gemm,
    "QLinearAdd": _add,
    "QLinearAveragePool": _average_pool,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _mul,
    "QLinearReduceMean": _unary("ReduceMean", "axes", "keepdims"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
}


_BYTES = ("int8", "uint8")
_BINARY = {"Add": "QLinearAdd", "Mul": "QLinearMul"}
_UNARY = {
    "AveragePool": "QLinearAveragePool",
    "GlobalAveragePool": "QLinearGlobalAveragePool",
    "LeakyRelu": "QLinearLeakyRelu",
    "Sigmoid": "QLinearSigmoid",
}
# fmt: off
_MOVES = frozenset({
    "Expand", "Flatten", "Gather", "MaxPool", "Reshape", "Slice", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})
# fmt: on
"""Operators that take integers as they are, where scale and zero point stay."""
_BIAS_TOLERANCE = 1e-3
"""Of the scale of a bias against that of the sums, relative."""
_BEYOND_INT32 = 2**31


@dataclass(frozen=True, kw_only=True)
class QuantisedTensor:
    """A tensor of integers, with the names and values of its scale and zero point."""

    name: str
    scale: str
    zero: str
    scale_value: np.ndarray
    zero_value: np.ndarray
    axis: int

    @property
    def operands(self) -> list[str]:
        """Integers, scale and zero point, as operators read them."""
        return [self.name, self.scale, self.zero]

    @property
    def is_per_tensor(self) -> bool:
        """Return whether one scale is for all of it."""
        return bool(self.scale_value.size == 1)


Rule: TypeAlias = "Callable[[QdqFuser, NodeProto], NodeProto | None]"
"""Return what replaces an operator and the conversion behind it; None where it stays."""


def fuse_qdq(graph: OnnxGraph) -> None:
    """Put quantised operators in place of float ones between the two conversions, in `graph`."""
    fuser = QdqFuser(graph)
    fuser.run(_QDQ_RULES)
    for op, count in sorted(fuser.fused.items()):
        taken = f"{count} {op} between quantised tensors computed on the integers"
        reason = "as onnxruntime does: sums of integers are exact, and need no conversion"
        graph.log.add("graph", taken, reason)
    for node, reason in fuser.left:
        taken = f"{node.op_type} between quantised tensors computed on floats"
        graph.log.add(node.output[0], taken, reason)


class QdqFuser:
    """Looks at what stands around operators between two conversions."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        for node in graph.nodes:
            if self._is(node, "Constant") and "value" in attributes(node):
                held = next(a.t for a in node.attribute if a.name == "value")
                graph.set_constant(node.output[0], array_of(held))
        self._makers, self._readers = graph.makers(), graph.readers()
        self.fused: Counter[str] = Counter()
        self.left: list[tuple[NodeProto, str]] = []
        """Products that stay ones of floats between quantised tensors, each with the reason."""

    def run(self, rules: Mapping[str, Rule]) -> None:
        """Put what rules make of operators, by their names, in the place of these."""
        fused: dict[int, NodeProto] = {}
        for node in self._graph.nodes:
            rule = rules.get(node.op_type)
            made = rule(self, node) if rule is not None and is_standard(node) else None
            if made is None:
                continue
            self.fused[node.op_type] += 1
            end = self._makers[made.output[0]]
            fused[id(end)] = made
            self._makers[made.output[0]] = made
        self._graph.nodes = [fused.get(id(node), node) for node in self._graph.nodes]
        if fused:
            self._graph.drop_unused()

    # What stands around a node

    @staticmethod
    def _is(node: NodeProto, *operators: str) -> bool:
        """Return whether it is one of these operators; onnxruntime has its own of some."""
        return node.op_type in operators and (is_standard(node) or node.domain == MICROSOFT)

    def _value(self, node: NodeProto, index: int) -> np.ndarray | None:
        name = node.input[index] if index < len(node.input) else ""
        return self._graph.constants.get(name)

    def _read_quanta(self, node: NodeProto, name: str) -> QuantisedTensor | None:
        """Return the quanta on one side of a conversion, whose parameters are inputs 1 and 2."""
        scale, zero = self._value(node, 1), self._value(node, 2)
        if scale is None or zero is None or scale.dtype != np.float32 or not (scale > 0).all():
            return None
        if attributes(node).get("block_size"):
            return None
        return QuantisedTensor(
            name=name,
            scale=node.input[1],
            zero=node.input[2],
            scale_value=scale,
            zero_value=zero,
            axis=attributes(node).get("axis", 1),
        )

    def quanta(self, node: NodeProto, index: int) -> QuantisedTensor | None:
        """Return what input `index` is dequantised from, in 8 bits; constants too."""
        maker = self._makers.get(node.input[index]) if index < len(node.input) else None
        if maker is None or not self._is(maker, "DequantizeLinear"):
            return None
        found = self._read_quanta(maker, maker.input[0])
        return found if found is not None and str(found.zero_value.dtype) in _BYTES else None

    def activation(self, node: NodeProto, index: int) -> QuantisedTensor | None:
        """Return the same with one scale for the whole tensor."""
        found = self.quanta(node, index)
        return found if found is not None and found.is_per_tensor else None

    def result(self, node: NodeProto, *, clamps: bool = True) -> QuantisedTensor | None:
        """Return what the output of a node is quantised to, if nothing else reads it. An activation
        between that does what the range of the integers does anyway is left out."""
        while True:
            name = node.output[0]
            readers = self._readers.get(name, [])
            if len(readers) != 1 or name in self._graph.outputs:
                return None
            (reader,) = readers
            if self._is(reader, "QuantizeLinear"):
                found = self._read_quanta(reader, reader.output[0])
                fits = found is not None and found.is_per_tensor
                if not fits or str(found.zero_value.dtype) not in _BYTES:  # type: ignore[union-attr]
                    return None
                return found
            if not clamps or not self._is(reader, "Relu", "Clip"):
                return None
            after = self.result(reader)
            if after is None or not self._is_range_of(reader, after):
                return None
            return after

    def _is_range_of(self, clamp: NodeProto, quanta: QuantisedTensor) -> bool:
        """Return whether the integers hold no number beyond the bounds of a Relu or Clip."""
        info = np.iinfo(quanta.zero_value.dtype)
        zero, scale = float(quanta.zero_value), float(quanta.scale_value)
        least, most = (info.min - zero) * scale, (info.max - zero) * scale
        low, high = 0.0, np.inf
        if clamp.op_type == "Clip":
            values = attributes(clamp)
            bounds = [self._value(clamp, 1), self._value(clamp, 2)]
            for index, name in ((1, "min"), (2, "max")):
                given = index < len(clamp.input) and clamp.input[index]
                if given and bounds[index - 1] is None:
                    return False
                if name in values:
                    bounds[index - 1] = np.asarray(values[name])
            low = -np.inf if bounds[0] is None else float(bounds[0])
            high = np.inf if bounds[1] is None else float(bounds[1])
        slack = 1e-6 * scale
        return low <= least + slack and most <= high + slack

    def bias(self, node: NodeProto, x: QuantisedTensor, weight: QuantisedTensor) -> str | None:
        """Return the third input in units of the sums: its name, or empty; None: not so."""
        if len(node.input) < 3 or not node.input[2]:
            return ""
        name, unit = node.input[2], x.scale_value.reshape(()) * weight.scale_value
        maker = self._makers.get(name)
        if maker is not None and self._is(maker, "DequantizeLinear"):
            return maker.input[0] if self._counts_in(maker, unit) else None
        value = self._graph.constants.get(name)
        if value is None or value.dtype != np.float32 or value.ndim != 1:
            return None
        steps = np.rint(value.astype(np.float64) / unit.reshape(-1).astype(np.float64))
        if np.abs(steps).max(initial=0) >= _BEYOND_INT32:
            return None
        made = f"{name}/of {node.output[0]}/integers"
        self._graph.set_constant(made, steps.astype(np.int32))
        return made

    def _counts_in(self, conversion: NodeProto, unit: np.ndarray) -> bool:
        """Return whether what is dequantised are constants of 32 bits in these units."""
        whole, scale, zero = (self._value(conversion, index) for index in range(3))
        if scale is None or whole is None or whole.dtype != np.int32:
            return False
        shaped = unit.reshape(-1) if scale.ndim else unit
        same = scale.size == shaped.size and np.allclose(scale, shaped, _BIAS_TOLERANCE, 0)
        return bool(same and (zero is None or not zero.any()))


def make_fused(op: str, inputs: list[str], node: NodeProto, out: str) -> NodeProto:
    """Return an operator with the attributes and the name of another one."""
    domain = "" if op in ("QLinearConv", "QLinearMatMul") or op in _MOVES else MICROSOFT
    made = helper.make_node(op, inputs, [out], name=node.name, domain=domain)
    made.attribute.extend(node.attribute)
    return made


def _fuse_product(fuser: QdqFuser, node: NodeProto) -> NodeProto | None:
    x, weight, y = fuser.activation(node, 0), fuser.quanta(node, 1), fuser.result(node)
    values = attributes(node)
    if x is None or weight is None or y is None:
        return None
    if values.get("alpha", 1.0) != 1.0 or values.get("beta", 1.0) != 1.0:
        return None
    if not weight.is_per_tensor and not _is_by_output(fuser, node, weight):
        if node.op_type == "MatMul":
            fuser.left.append((node, f"the scales of its weight lie along axis {weight.axis}"))
        return None
    bias = fuser.bias(node, x, weight)
    if bias is None:
        return None
    operands, result = [*x.operands, *weight.operands], [y.scale, y.zero]
    if node.op_type != "Gemm":
        inputs = [*operands, *result, *([bias] if bias else [])]
        return make_fused(f"QLinear{node.op_type}", inputs, node, y.name)
    made = make_fused("QGemm", [*operands, bias, *result], node, y.name)
    del made.attribute[:]
    kept = {name: values[name] for name in ("transA", "transB") if name in values}
    made.attribute.extend(helper.make_attribute(name, value) for name, value in kept.items())
    return made


def _is_by_output(fuser: QdqFuser, node: NodeProto, weight: QuantisedTensor) -> bool:
    """Return whether a weight has a scale for each output of a product."""
    if node.op_type == "Conv":
        return weight.axis == 0
    if node.op_type == "Gemm":
        return weight.axis % 2 == (0 if attributes(node).get("transB") else 1)
    rank = len(fuser._graph.shape_of(weight.name) or ())
    return rank > 1 and weight.axis % rank == rank - 1


def _fuse_binary(fuser: QdqFuser, node: NodeProto) -> NodeProto | None:
    a, b, y = fuser.activation(node, 0), fuser.activation(node, 1), fuser.result(node)
    if a is None or b is None or y is None:
        return None
    inputs = [*a.operands, *b.operands, y.scale, y.zero]
    return make_fused(_BINARY[node.op_type], inputs, node, y.name)


def _fuse_unary(fuser: QdqFuser, node: NodeProto) -> NodeProto | None:
    x, y = fuser.activation(node, 0), fuser.result(node, clamps=False)
    if x is None or y is None:
        return None
    return make_fused(_UNARY[node.op_type], [*x.operands, y.scale, y.zero], node, y.name)


def fuse_move(fuser: QdqFuser, node: NodeProto) -> NodeProto | None:
    """Move integers as they are, where scale and zero point stay."""
    x, y = fuser.activation(node, 0), fuser.result(node, clamps=False)
    if x is None or y is None or len(node.output) > 1:
        return None
    same = x.scale_value.item() == y.scale_value.item()
    if not same or x.zero_value.item() != y.zero_value.item():
        return None
    if x.zero_value.dtype != y.zero_value.dtype:
        return None
    return make_fused(node.op_type, [x.name, *node.input[1:]], node, y.name)


_QDQ_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Conv", "Gemm", "MatMul"), _fuse_product),
    **dict.fromkeys(_BINARY, _fuse_binary),
    **dict.fromkeys(_UNARY, _fuse_unary),
    **dict.fromkeys(_MOVES, fuse_move),
}
"""Operator -> what puts its quantised form in its place."""
