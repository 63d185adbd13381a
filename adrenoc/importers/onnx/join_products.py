"""Products of queries, keys and values that read the same, as one product beside each other.

Before -> after:
    q = MatMulNBits(x, a) + b, k and v alike      qkv = MatMulNBits(x, a beside others) + (b, ...)

Products by weights of few bits or by plain ones, each with a bias or without; of those without it
is zero beside the others'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.files.spill import spill
from adrenoc.importers.onnx.graph import OnnxGraph, attributes, is_standard
from adrenoc.importers.onnx.n_bits import N_BITS as OWN_N_BITS

N_BITS, MATMUL = "MatMulNBits", "MatMul"
OF_FEW_BITS = (N_BITS, OWN_N_BITS)
"""As files have it, and as it stands in a graph that was folded before."""
_SAME_ATTRIBUTES = ("K", "bits", "block_size", "weight_prepacked", "block", "zero")
_BIAS = 5
"""Input of MatMulNBits."""

MakerOf = Callable[[str], onnx.NodeProto | None]
"""What makes a tensor that nothing else reads; None of others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """A product by constants, and the bias behind it; `nodes` are what makes them."""

    product: onnx.NodeProto
    operands: Mapping[int, np.ndarray]
    """Constants by position, but for a bias."""
    bias: np.ndarray | None
    nodes: tuple[onnx.NodeProto, ...]

    @property
    def width(self) -> int:
        """Numbers that it makes of a token."""
        if self.product.op_type == MATMUL:
            return int(self.operands[1].shape[1])
        if self.product.op_type == OWN_N_BITS:
            return len(self.operands[1])
        return int(attributes(self.product)["N"])

    @property
    def kind(self) -> tuple[object, ...]:
        """What has to be the same of products that one can compute."""
        own = attributes(self.product)
        said = (own.get(name) for name in _SAME_ATTRIBUTES)
        return (self.product.op_type, self.product.input[0], *said)


def read_projection(graph: OnnxGraph, maker_of: MakerOf, name: str) -> Projection | None:
    """Return the product that makes a tensor, or makes it but for a bias; None where none does."""
    constants, node = graph.constants, maker_of(name)
    nodes: tuple[onnx.NodeProto, ...] = ()
    bias = None
    if node is not None and node.op_type == "Add" and len(node.input) == 2:
        held = [n for n in node.input if n in constants]
        others = [n for n in node.input if n not in constants]
        if len(held) != 1 or constants[held[0]].ndim != 1:
            return None
        bias, nodes, node = constants[held[0]], (node,), maker_of(others[0])
    if node is None or node.op_type not in (*OF_FEW_BITS, MATMUL):
        return None
    given = {at: n for at, n in enumerate(node.input) if at and n}
    if any(n not in constants for n in given.values()):
        return None
    operands = {at: constants[n] for at, n in given.items()}
    inner = operands.pop(_BIAS, None) if node.op_type == N_BITS else None
    if inner is not None:
        bias = inner if bias is None else bias + inner
    plain = node.op_type == MATMUL and is_standard(node) and operands[1].ndim == 2
    found = Projection(product=node, operands=operands, bias=bias, nodes=(*nodes, node))
    return found if plain or node.op_type in OF_FEW_BITS else None


def join_projections(graph: OnnxGraph, parts: Sequence[Projection]) -> list[onnx.NodeProto] | None:
    """Return the nodes that compute `parts` beside each other, the last of them all; None: not
    alike."""
    joined = _join_operands(parts)
    if len({part.kind for part in parts}) > 1 or joined is None:
        return None
    first = parts[0].product
    whole = f"{first.output[0]}/beside"
    inputs = [first.input[0]]
    for at, value in enumerate(joined, 1):
        inputs.append("" if value is None else f"{whole}/{at}")
        if value is not None:
            graph.set_constant(inputs[-1], value)
    while not inputs[-1]:
        inputs.pop()
    width = sum(part.width for part in parts)
    attrs = attributes(first) | ({"N": width} if first.op_type == N_BITS else {})
    product = helper.make_node(
        first.op_type, inputs, [whole], name=first.name, domain=first.domain, **attrs
    )
    nodes = [product]
    if any(part.bias is not None for part in parts):
        dtype = next(part.bias.dtype for part in parts if part.bias is not None)
        zeros = [np.zeros(part.width, dtype) for part in parts]
        biases = [
            zero if part.bias is None else part.bias
            for part, zero in zip(parts, zeros, strict=True)
        ]
        graph.set_constant(f"{whole}/bias", np.concatenate(biases))
        nodes.append(helper.make_node("Add", [whole, f"{whole}/bias"], [f"{whole}/biased"]))
    known = graph.types.get(first.output[0])
    if known is not None and known.shape is not None:
        shape = (*known.shape[:-1], width)
        for node in nodes:
            graph.types[node.output[0]] = type(known)(element=known.element, shape=shape)
    return nodes


def _join_operands(parts: Sequence[Projection]) -> list[np.ndarray | None] | None:
    """Return the constants of products beside each other, by position from 1 on; None: not alike.

    Rows of outputs follow each other in those of few bits, flat ones too; columns in plain ones.
    """
    axis = 1 if parts[0].product.op_type == MATMUL else 0
    positions = {at for part in parts for at in part.operands}
    joined: list[np.ndarray | None] = []
    for at in range(1, max(positions) + 1):
        values = [part.operands[at] for part in parts if at in part.operands]
        if len(values) not in (0, len(parts)):
            return None
        if len({(v.dtype, v.ndim, *np.delete(v.shape, axis)) for v in values}) > 1:
            return None
        joined.append(spill(np.concatenate(values, axis=axis)) if values else None)
    return joined
