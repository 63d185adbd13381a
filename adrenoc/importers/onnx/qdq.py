"""Quantised operators out of the float ones that stand between dequantisation and quantisation.

Before -> after:
    y = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(b)))
    y = QLinearConv(x, w, b)

onnxruntime runs such models so.  The sums are of integers then and come out exactly, where sums of
floats are rounded in an order of their own and move results by a quantum, layer by layer.

Of signed bytes onnxruntime does so on arm64, as on phones.  On x86 it makes bytes without sign of
them where a tensor has one reader, and leaves floats where that gives an operator both kinds: a
flip of a quantum here and there, and two at the end of a MobileNet (`session.py`).

Source: onnxruntime's QDQ transformers (which operators, and on which conditions).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import MICROSOFT, OnnxGraph, array_of, attributes, is_standard

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


Rule: TypeAlias = "Callable[[QdqFuser, onnx.NodeProto], onnx.NodeProto | None]"
"""Return what replaces an operator and the conversion behind it; None where it stays."""


def fuse_qdq(graph: OnnxGraph) -> None:
    """Put quantised operators in place of float ones between the two conversions, in `graph`."""
    fuser = QdqFuser(graph)
    fuser.run(_RULES)
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
        self.left: list[tuple[onnx.NodeProto, str]] = []
        """Products that stay ones of floats between quantised tensors, each with the reason."""

    def run(self, rules: Mapping[str, Rule]) -> None:
        """Put what rules make of operators, by their names, in the place of these."""
        fused: dict[int, onnx.NodeProto] = {}
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

    def is_by_column(self, weight: QuantisedTensor) -> bool:
        """Return whether a product's factor has a scale for each of its columns, the last axis."""
        rank = len(self._graph.shape_of(weight.name) or ())
        return rank > 1 and weight.axis % rank == rank - 1

    @staticmethod
    def _is(node: onnx.NodeProto, *operators: str) -> bool:
        """Return whether it is one of these operators; onnxruntime has its own of some."""
        return node.op_type in operators and (is_standard(node) or node.domain == MICROSOFT)

    def _value(self, node: onnx.NodeProto, index: int) -> np.ndarray | None:
        name = node.input[index] if index < len(node.input) else ""
        return self._graph.constants.get(name)

    def _read_quanta(self, node: onnx.NodeProto, name: str) -> QuantisedTensor | None:
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

    def quanta(self, node: onnx.NodeProto, index: int) -> QuantisedTensor | None:
        """Return what input `index` is dequantised from, in 8 bits; constants too."""
        maker = self._makers.get(node.input[index]) if index < len(node.input) else None
        if maker is None or not self._is(maker, "DequantizeLinear"):
            return None
        found = self._read_quanta(maker, maker.input[0])
        return found if found is not None and str(found.zero_value.dtype) in _BYTES else None

    def activation(self, node: onnx.NodeProto, index: int) -> QuantisedTensor | None:
        """Return the same with one scale for the whole tensor."""
        found = self.quanta(node, index)
        return found if found is not None and found.is_per_tensor else None

    def result(self, node: onnx.NodeProto, *, clamps: bool = True) -> QuantisedTensor | None:
        """Return what the output of a node is quantised to, if nothing else reads it.

        An activation between that does what the range of the integers does anyway is left out.
        """
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

    def _is_range_of(self, clamp: onnx.NodeProto, quanta: QuantisedTensor) -> bool:
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

    def bias(self, node: onnx.NodeProto, x: QuantisedTensor, weight: QuantisedTensor) -> str | None:
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

    def _counts_in(self, conversion: onnx.NodeProto, unit: np.ndarray) -> bool:
        """Return whether what is dequantised are constants of 32 bits in these units."""
        whole, scale, zero = (self._value(conversion, index) for index in range(3))
        if scale is None or whole is None or whole.dtype != np.int32:
            return False
        shaped = unit.reshape(-1) if scale.ndim else unit
        same = scale.size == shaped.size and np.allclose(scale, shaped, _BIAS_TOLERANCE, 0)
        return bool(same and (zero is None or not zero.any()))


def make_fused(op: str, inputs: list[str], node: onnx.NodeProto, out: str) -> onnx.NodeProto:
    """Return an operator with the attributes and the name of another one."""
    domain = "" if op in ("QLinearConv", "QLinearMatMul") or op in _MOVES else MICROSOFT
    made = helper.make_node(op, inputs, [out], name=node.name, domain=domain)
    made.attribute.extend(node.attribute)
    return made


def _product(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
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


def _is_by_output(fuser: QdqFuser, node: onnx.NodeProto, weight: QuantisedTensor) -> bool:
    """Return whether a weight has a scale for each output of a product."""
    if node.op_type == "Conv":
        return weight.axis == 0
    if node.op_type == "Gemm":
        return weight.axis % 2 == (0 if attributes(node).get("transB") else 1)
    return fuser.is_by_column(weight)


def _binary(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
    a, b, y = fuser.activation(node, 0), fuser.activation(node, 1), fuser.result(node)
    if a is None or b is None or y is None:
        return None
    inputs = [*a.operands, *b.operands, y.scale, y.zero]
    return make_fused(_BINARY[node.op_type], inputs, node, y.name)


def _unary(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
    x, y = fuser.activation(node, 0), fuser.result(node, clamps=False)
    if x is None or y is None:
        return None
    return make_fused(_UNARY[node.op_type], [*x.operands, y.scale, y.zero], node, y.name)


def fuse_move(fuser: QdqFuser, node: onnx.NodeProto) -> onnx.NodeProto | None:
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


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Conv", "Gemm", "MatMul"), _product),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_MOVES, fuse_move),
}
"""Operator -> what puts its quantised form in its place."""
