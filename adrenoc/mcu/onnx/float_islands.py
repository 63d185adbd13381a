"""Functions of floats between two conversions become operators on bytes.

*Before -> after*: QuantizeLinear(f(DequantizeLinear(x))) -> Between(x, its scale and zero point,
those of the result), which is a table; the same for concatenations, as QLinearConcat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import OnnxGraph, attributes

BETWEEN = "Between"
_ONE = np.float32(1)
Function: TypeAlias = Callable[[np.ndarray], np.ndarray]


def _hard_sigmoid(node: onnx.NodeProto, alpha: float = 0.2) -> Function:
    given = dict(attributes(node))
    a = np.float32(given.get("alpha", alpha))  # type: ignore[arg-type]
    b = np.float32(given.get("beta", 0.5))  # type: ignore[arg-type]
    return lambda x: np.clip(x * a + b, np.float32(0), _ONE)


def _hard_swish(node: onnx.NodeProto) -> Function:
    gate = _hard_sigmoid(node, 1 / 6)
    return lambda x: x * gate(x)


def _elu(node: onnx.NodeProto) -> Function:
    alpha = float(dict(attributes(node)).get("alpha", 1.0))  # type: ignore[arg-type]
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x.astype(np.float64), 0)))


FUNCTIONS: dict[str, Callable[[onnx.NodeProto], Function]] = {
    "Abs": lambda node: np.abs,
    "Elu": _elu,
    "Exp": lambda node: lambda x: np.exp(x.astype(np.float64)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Neg": lambda node: np.negative,
    "Relu": lambda node: lambda x: np.maximum(x, np.float32(0)),
    "Tanh": lambda node: lambda x: np.tanh(x.astype(np.float64)),
}


def close_islands(graph: OnnxGraph) -> None:
    """Put operators on bytes in place of what stands between two conversions, in `graph`."""
    makers = {name: node for node in graph.nodes for name in node.output}
    readers = Counter(name for node in graph.nodes for name in node.input)
    readers.update(graph.outputs)
    ends = {
        node.input[0]: node
        for node in graph.nodes
        if node.op_type == "QuantizeLinear" and len(node.input) == 3 and readers[node.input[0]] == 1
    }
    made, gone = [], set()
    for node in graph.nodes:
        begins = [makers.get(name) for name in node.input]
        end = ends.get(node.output[0]) if len(node.output) == 1 else None
        if end is None or not (node.op_type in FUNCTIONS or node.op_type == "Concat"):
            made.append(node)
            continue
        operands = [_operand(begin) for begin in begins]
        if not operands or any(operand is None for operand in operands):
            made.append(node)
            continue
        found = [name for operand in operands for name in operand or ()]
        made.append(_joined(node, end, found))
        gone.add(end.output[0])
    graph.nodes = [n for n in made if n.op_type != "QuantizeLinear" or n.output[0] not in gone]
    graph.nodes = _used(graph)


def _operand(begin: onnx.NodeProto | None) -> list[str] | None:
    """The bytes that a conversion reads, with their scale and zero point."""
    if begin is None or begin.op_type != "DequantizeLinear" or len(begin.input) != 3:
        return None
    return list(begin.input)


def _joined(node: onnx.NodeProto, end: onnx.NodeProto, operands: list[str]) -> onnx.NodeProto:
    quanta = list(end.input[1:])
    inputs = [*operands, *quanta]
    kind = BETWEEN
    if node.op_type == "Concat":
        kind, inputs = "QLinearConcat", [*quanta, *operands]
    made = helper.make_node(kind, inputs, list(end.output), name=node.name)
    made.attribute.extend(node.attribute)
    if kind == BETWEEN:
        made.attribute.append(helper.make_attribute("function", node.op_type))
    return made


def _used(graph: OnnxGraph) -> list[onnx.NodeProto]:
    """The nodes without conversions that nothing reads any more."""
    read = {name for node in graph.nodes for name in node.input} | set(graph.outputs)
    return [n for n in graph.nodes if n.op_type != "DequantizeLinear" or n.output[0] in read]
