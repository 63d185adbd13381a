"""Products by weights that a DequantizeLinear in blocks opens, as onnxruntime's MatMulNBits.

Before -> after:
    y = MatMul(x, Transpose(DequantizeLinear(bytes, scales, block_size=32)))
    y = com.microsoft.MatMulNBits(x, bytes, scales)

So weights stay in few bits.  onnxruntime does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.contrib_dynamic import DOMAIN
from adrenoc.importers.onnx.graph import OnnxGraph, array_of, attributes, is_standard

_LEAST_BLOCK = 16
_ZERO_OF = {"int4": 8, "uint4": 0, "int8": 128, "uint8": 0}
"""Type -> what makes numbers from zero on of it."""
_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}


def keep_block_weights(graph: OnnxGraph) -> None:
    """Change such products of `graph`, in place."""
    makers = {name: node for node in graph.nodes for name in node.output if name}
    changed = 0
    for at, node in enumerate(graph.nodes):
        found = _weights_of(graph, makers, node)
        if found is not None:
            graph.nodes[at] = _write(graph, node, found)
            changed += 1
    if changed:
        graph.drop_unused()
        reason = "a DequantizeLinear in blocks along what is added up opens them"
        graph.log.add(f"{changed} products", "keep their weights in few bits", reason)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """Codes [N, K] from zero on, scales [N, blocks], and zero points or None for the middle."""

    bits: int
    block: int
    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None


def _weights_of(
    graph: OnnxGraph, makers: dict[str, onnx.NodeProto], node: onnx.NodeProto
) -> _Weights | None:
    """Return the weights of a product; None where it has no such ones."""
    opened, turned = _opening(makers, node)
    if opened is None:
        return None
    own = attributes(opened)
    block, axis = own.get("block_size", 0), own.get("axis", 1)
    values = [_value(graph, makers, name) for name in opened.input if name]
    if any(value is None for value in values) or block < _LEAST_BLOCK or block & (block - 1):
        return None
    codes, scales, *rest = (np.asarray(value) for value in values)
    kind = str(codes.dtype)
    floats = scales.dtype in (np.float32, np.float16)
    if codes.ndim != 2 or kind not in _BITS or axis % 2 != int(turned) or not floats:
        return None
    zero = _ZERO_OF[kind]
    if not turned:
        codes, scales, rest = codes.T, scales.T, [one.T for one in rest]
    if codes.shape[1] != scales.shape[1] * block:
        return None
    zeros = rest[0].astype(np.int16) + zero if rest else None
    if zeros is None and not zero:
        zeros = np.zeros(scales.shape, np.int16)
    return _Weights(
        bits=_BITS[kind],
        block=block,
        codes=(codes.astype(np.int16) + zero).astype(np.uint8),
        scales=np.ascontiguousarray(scales),
        zeros=None if zeros is None else zeros.astype(scales.dtype),
    )


def _opening(
    makers: dict[str, onnx.NodeProto], node: onnx.NodeProto
) -> tuple[onnx.NodeProto | None, bool]:
    """Return what opens the weights of a product, and whether they are turned then."""
    opened, turned = None, False
    if node.op_type == "MatMul" and is_standard(node):
        opened = makers.get(node.input[1])
    if opened is not None and opened.op_type == "Transpose" and is_standard(opened):
        turned = attributes(opened).get("perm", [1, 0]) == [1, 0]
        opened = makers.get(opened.input[0]) if turned else None
    known = opened is not None and opened.op_type == "DequantizeLinear"
    return (opened if known else None), turned


def _value(graph: OnnxGraph, makers: dict[str, onnx.NodeProto], name: str) -> np.ndarray | None:
    """Return a constant, of an initialiser or of a node."""
    if name in graph.constants:
        return graph.constants[name]
    node = makers.get(name)
    if node is None or node.op_type != "Constant":
        return None
    return next((array_of(a.t) for a in node.attribute if a.name == "value"), None)


def _write(graph: OnnxGraph, node: onnx.NodeProto, weights: _Weights) -> onnx.NodeProto:
    """Return the product as the operator of weights in few bits; zero points as numbers."""
    n, k = weights.codes.shape
    packed = weights.codes.reshape(n, k // weights.block, weights.block)
    if weights.bits == 4:
        packed = packed[:, :, 0::2] | (packed[:, :, 1::2] << np.uint8(4))
    names = [f"{node.output[0]}/{what}" for what in ("codes", "scales", "zeros")]
    graph.set_constant(names[0], np.ascontiguousarray(packed))
    graph.set_constant(names[1], weights.scales)
    inputs = [node.input[0], *names[:2]]
    if weights.zeros is not None:
        graph.set_constant(names[2], weights.zeros)
        inputs.append(names[2])
    return helper.make_node(
        "MatMulNBits",
        inputs,
        list(node.output),
        name=node.name,
        domain=DOMAIN,
        K=k,
        N=n,
        bits=weights.bits,
        block_size=weights.block,
    )
