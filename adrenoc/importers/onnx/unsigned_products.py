"""Products of signed by unsigned bytes as products of unsigned bytes, which every CPU adds exactly.

Before -> after (w and its zero point are int8, x is uint8):
    y = QLinearConv(x, .., w, .., zero)     y = QLinearConv(x, .., w + 128, .., zero + 128)

Both are the same numbers.  onnxruntime multiplies uint8 by int8 with an instruction that adds pairs
of products in 16 bits, and saturates, where a CPU has AVX2 and no VNNI (AMD before Zen 4, Intel
before Cascade Lake).  Its setting `session.x64quantprecision` mends some of these products: of
constants alone, with graph optimisations alone, and not of QLinearMatMul.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_PRODUCTS = {
    "ConvInteger": (0, 2, 1, 3),
    "MatMulInteger": (0, 2, 1, 3),
    "MatMulIntegerToFloat": (0, 4, 1, 5),
    "QAttention": (0, 6, 1, 7),
    "QGemm": (0, 2, 3, 5),
    "QLinearConv": (0, 2, 3, 5),
    "QLinearMatMul": (0, 2, 3, 5),
}
"""Operators that multiply bytes: which inputs are data, their zero point, weights and theirs."""
_OWN_BYTES = {"DynamicQuantizeMatMul": (1, 3)}
"""Operators that round data to uint8 themselves: which inputs are the weights and their zero."""
_FLOAT_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that onnxruntime computes in bytes where they read what is made of bytes."""
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Operators whose results are the numbers that they read."""
_OPENS = "DequantizeLinear"
_SHIFT = 128
_MOST_MOVES = 64
"""Nodes to look back over for what a tensor is made of; a damaged file may go in circles."""


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """What the names of a graph, and of those around it, stand for."""

    constants: ChainMap[str, TensorProto] = field(default_factory=ChainMap)
    makers: ChainMap[str, onnx.NodeProto] = field(default_factory=ChainMap)
    declared: ChainMap[str, int] = field(default_factory=ChainMap)

    def enter(self, graph: onnx.GraphProto) -> _Scope:
        return _Scope(
            constants=self.constants.new_child({t.name: t for t in graph.initializer}),
            makers=self.makers.new_child({name: n for n in graph.node for name in n.output}),
            declared=self.declared.new_child(
                {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
            ),
        )

    def find_type(self, name: str) -> int:
        """Return the element type of a tensor of integers; 0 where it is not known."""
        for _ in range(_MOST_MOVES):
            if name in self.constants:
                return self.constants[name].data_type
            element, maker = self.declared.get(name, 0), self.makers.get(name)
            if not element and maker is not None:
                element, name = _find_made(maker)
            if element or maker is None:
                return element
        return 0

    def find_opened(self, name: str) -> onnx.NodeProto | None:
        """Return the node of this graph that makes floats of bytes for a tensor; None for any
        other."""
        own = self.makers.maps[0]
        for _ in range(_MOST_MOVES):
            maker = own.get(name)
            if maker is None or maker.op_type == _OPENS:
                return maker
            name = _input(maker, 0) if maker.op_type in MOVES else ""
        return None


@dataclass(frozen=True, kw_only=True)
class _Signed:
    """A signed operand of a product with an unsigned one: the inputs of `node` that it and its zero
    point are."""

    scope: _Scope
    graph: onnx.GraphProto
    node: onnx.NodeProto
    place: int
    zero: int


def mixes_signs(model: onnx.ModelProto, *, as_unsigned: bool = False) -> bool:
    """Return whether a model multiplies signed by unsigned bytes; it need not hold its external
    data."""
    return any(True for _ in _find_signed(model.graph, _Scope(), as_unsigned))


def move_to_unsigned(model: onnx.ModelProto, *, as_unsigned: bool = False) -> None:
    """Make unsigned bytes of the signed ones that a model multiplies by unsigned ones, in place.

    `as_unsigned` says that onnxruntime makes unsigned bytes of signed data, so that all signed
    weights meet these.
    """
    for signed in list(_find_signed(model.graph, _Scope(), as_unsigned)):
        _move(signed)


def _find_signed(graph: onnx.GraphProto, around: _Scope, as_unsigned: bool) -> Iterator[_Signed]:
    scope = around.enter(graph)
    seen: set[str] = set()
    for node in graph.node:
        for inner in (g for a in node.attribute for g in (a.g, *a.graphs) if g.node):
            yield from _find_signed(inner, scope, as_unsigned)
        for found, place, zero in _find_operands(node, scope, as_unsigned):
            if found.op_type != _OPENS or found.output[0] not in seen:
                seen.add(found.output[0])
                yield _Signed(scope=scope, graph=graph, node=found, place=place, zero=zero)


def _find_operands(
    node: onnx.NodeProto, scope: _Scope, as_unsigned: bool
) -> Iterator[tuple[onnx.NodeProto, int, int]]:
    """Yield the signed operand of a product by unsigned bytes, as node, place and place of its
    zero."""
    if node.op_type in _OWN_BYTES:
        place, zero = _OWN_BYTES[node.op_type]
        if scope.find_type(_input(node, place)) == TensorProto.INT8:
            yield node, place, zero
    elif node.op_type in _PRODUCTS:
        data, data_zero, weights, weights_zero = _PRODUCTS[node.op_type]
        pair = ((node, data, data_zero), (node, weights, weights_zero))
        yield from _pick_signed(pair, scope)
    elif node.op_type in _FLOAT_PRODUCTS:
        opened = [scope.find_opened(_input(node, place)) for place in (0, 1)]
        if opened[0] is not None and opened[1] is not None:
            yield from _pick_signed(
                ((opened[0], 0, 2), (opened[1], 0, 2)), scope, as_unsigned=as_unsigned
            )


def _pick_signed(
    pair: tuple[tuple[onnx.NodeProto, int, int], tuple[onnx.NodeProto, int, int]],
    scope: _Scope,
    *,
    as_unsigned: bool = False,
) -> Iterator[tuple[onnx.NodeProto, int, int]]:
    types = [
        scope.find_type(_input(node, zero)) or scope.find_type(_input(node, place))
        for node, place, zero in pair
    ]
    if types[1] == TensorProto.INT8 and (as_unsigned or types[0] == TensorProto.UINT8):
        yield pair[1]
    elif types == [TensorProto.INT8, TensorProto.UINT8]:
        yield pair[0]


def _find_made(maker: onnx.NodeProto) -> tuple[int, str]:
    """Return the type that an operator states of its result, or the input that has the same."""
    if maker.op_type == "DynamicQuantizeLinear":
        return TensorProto.UINT8, ""
    for attribute in maker.attribute:
        if attribute.name in ("to", "output_dtype") and attribute.i:
            return attribute.i, ""
        if maker.op_type == "Constant" and attribute.name == "value":
            return attribute.t.data_type, ""
    if maker.op_type == "QuantizeLinear":
        zero = _input(maker, 2)
        return (0, zero) if zero else (TensorProto.UINT8, "")
    return 0, _input(maker, 0)


def _move(signed: _Signed) -> None:
    """Let the node read unsigned bytes, and their zero point."""
    node, scope, graph = signed.node, signed.scope, signed.graph
    while len(node.input) <= signed.zero:
        node.input.append("")
    node.input[signed.place] = _shift(node.input[signed.place], scope, graph, node)
    if node.input[signed.zero]:
        node.input[signed.zero] = _shift(node.input[signed.zero], scope, graph, node)
        return
    # A zero point has an element for each of the scale, where what it belongs to has one.
    scale = scope.constants.get(_input(node, 1)) if node.op_type == _OPENS else None
    name = f"{node.output[0]}/zero"
    zeros = np.full(() if scale is None else tuple(scale.dims), _SHIFT, np.uint8)
    graph.initializer.append(numpy_helper.from_array(zeros, name))
    node.input[signed.zero] = name


def _shift(name: str, scope: _Scope, graph: onnx.GraphProto, reader: onnx.NodeProto) -> str:
    """Return the name of `name` + 128, unsigned: a constant, or what nodes before the reader
    make."""
    shifted = f"{name}/unsigned"
    if shifted in scope.constants or shifted in scope.makers:
        return shifted
    constant = scope.constants.get(name)
    if constant is not None:
        values = numpy_helper.to_array(constant).view(np.uint8) ^ np.uint8(_SHIFT)
        made = numpy_helper.from_array(values, shifted)
        graph.initializer.append(made)
        scope.constants[shifted] = made
        return shifted
    nodes = (
        helper.make_node("Cast", [name], [f"{shifted}/wide"], to=TensorProto.INT32),
        helper.make_node("Add", [f"{shifted}/wide", f"{shifted}/by"], [f"{shifted}/sum"]),
        helper.make_node("Cast", [f"{shifted}/sum"], [shifted], to=TensorProto.UINT8),
    )
    by = numpy_helper.from_array(np.int32(_SHIFT), f"{shifted}/by")
    graph.initializer.append(by)
    at = next(place for place, node in enumerate(graph.node) if node is reader)
    for offset, node in enumerate(nodes):
        graph.node.insert(at + offset, node)
        scope.makers.update(dict.fromkeys(node.output, node))
    return shifted


def _input(node: onnx.NodeProto, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""
