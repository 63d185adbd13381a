"""Products by constants that two files of one model have in common, by the names of their results.

Quantisers keep a product's name, or add how many bits its weights have: `/mlp/up_proj/MatMul_Q4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

_KINDS = frozenset({"MatMul", "Gemm", "Gather", "MatMulNBits", "GatherBlockQuantized"})
"""Products, and tables of words, which are products by what is one at a word."""
_TABLES = frozenset({"Gather", "GatherBlockQuantized"})
_LEAST = 2
"""Axes of a matrix; constants of fewer are no weights."""
_ADDED = re.compile(r"(NBits|_Q\d+|_quant(ized)?)(?=/|$)")


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedProduct:
    """A product in one file: its node, what makes its constants, and the tensor that it reads.

    `before` are nodes that compute from constants alone, as those that open weights.
    """

    node: onnx.NodeProto
    before: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...]
    read: str

    @property
    def made(self) -> str:
        """The tensor that it computes."""
        return str(self.node.output[0])

    @property
    def key(self) -> str:
        """The same in both files."""
        return _ADDED.sub("", self.made)

    @property
    def bytes(self) -> int:
        """What its constants take."""
        return sum(tensor.ByteSize() for tensor in self.constants)


def find_products(model: onnx.ModelProto) -> dict[str, WeightedProduct]:
    """Return the products of a model by their keys, in the order of the file."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    fixed: dict[str, bool] = dict.fromkeys(constants, True)
    for node in model.graph.node:  # in order: what a node reads is known before it
        is_fixed = node.op_type == "Constant" or all(
            fixed.get(name, False) for name in node.input if name
        )
        fixed.update(dict.fromkeys(node.output, is_fixed and bool(node.output)))
    found = {}
    for node in model.graph.node:
        moving = [name for name in node.input if name and not fixed.get(name, False)]
        weights = node.input[:1] if node.op_type in _TABLES else node.input[1:2]
        if node.op_type not in _KINDS or len(moving) != 1 or moving[0] in weights:
            continue
        before = _collect_before(node, makers, fixed)
        names = {name for one in (*before, node) for name in one.input if name in constants}
        kept = tuple(constants[name] for name in sorted(names))
        if any(len(tensor.dims) >= _LEAST for tensor in kept):
            product = WeightedProduct(node=node, before=before, constants=kept, read=moving[0])
            found[product.key] = product
    return found


def _collect_before(
    node: onnx.NodeProto, makers: dict[str, onnx.NodeProto], fixed: dict[str, bool]
) -> tuple[onnx.NodeProto, ...]:
    """Yield the nodes that make a product's constants, each behind what it reads."""
    seen: dict[str, onnx.NodeProto] = {}

    def visit(one: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        for name in one.input:
            maker = makers.get(name)
            if maker is not None and fixed[name] and maker.output[0] not in seen:
                yield from visit(maker)
                seen[maker.output[0]] = maker
                yield maker

    return tuple(visit(node))
