"""What exporters put between a layer's norm and its attention, as the attention's own.

Before -> after:
    q = MatMulNBits(x, a), keys and values alike       qkv = MatMulNBits(x, a, b and c beside it)
    q, k, v = Split(qkv)                               the attention reads qkv
    q = Reshape(RMSNorm(Reshape(x))) of each head      `q_norm_weight` of the attention, keys alike

Each is done where nothing else reads what lies between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from adrenoc.decision import Decision
from adrenoc.files.spill import spill
from adrenoc.importers.onnx.graph import OnnxGraph, attributes

_PAST, _NORMS = 3, (14, 15)
_EPSILON = "qk_norm_epsilon"
_NORM = "SimplifiedLayerNormalization"
_PRODUCT = "MatMulNBits"
_FLAT = ("Add", "MatMul", "Split")
"""What makes tensors of the axes batch, token and channel, beside the product of few bits."""
_SAME_ATTRIBUTES = ("K", "bits", "block_size", "weight_prepacked")


def join_heads(graph: OnnxGraph, attentions: list[onnx.NodeProto]) -> list[Decision]:
    """Change `attentions` (GroupQueryAttention), in place, and what stands before them."""
    joiner = _Joiner(graph)
    for node in attentions:
        joiner.take_norms(node)
        joiner.pack_products(node)
        joiner.read_packed(node)
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in joiner.gone]
    told = (
        (joiner.norms, "norms of heads", "computed by the attention", "nothing else reads them"),
        (joiner.products, "products", "computed with those beside them", "they read the same"),
    )
    return [
        Decision(subject=f"{count} {what}", taken=taken, reason=reason)
        for count, what, taken, reason in told
        if count
    ]


class _Joiner:
    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.nodes for name in node.output}
        self._readers = Counter(
            [*graph.outputs, *(name for node in graph.nodes for name in node.input)]
        )
        self.gone: set[int] = set()
        """Nodes, by identity."""
        self.norms = self.products = 0

    def take_norms(self, attention: onnx.NodeProto) -> None:
        """Let an attention compute the norms of its queries' and its keys' heads."""
        size = self._head(attention)
        found = [self._norm_of(name, size) for name in attention.input[:2]]
        chains = [chain for chain in found if chain is not None]
        given = any(at < len(attention.input) and attention.input[at] for at in _NORMS)
        if len(chains) < 2 or given or len({_epsilon(chain[1]) for chain in chains}) > 1:
            return
        inputs = [*attention.input, *[""] * (_NORMS[1] + 1 - len(attention.input))]
        for at, norm_at, chain in zip((0, 1), _NORMS, chains, strict=True):
            inputs[at], inputs[norm_at] = chain[0].input[0], chain[1].input[1]
            self._drop(*chain)
        _set_inputs(attention, inputs)
        attention.attribute.append(helper.make_attribute(_EPSILON, _epsilon(chains[0][1])))
        self.norms += len(chains)

    def pack_products(self, attention: onnx.NodeProto) -> None:
        """Compute queries, keys and values by one product, where three read the same."""
        names = list(attention.input[:3])
        found = [self._alone(name) for name in names]
        products = [node for node in found if node is not None and node.op_type == _PRODUCT]
        if len(products) < 3 or len({id(node) for node in products}) < 3:
            return
        operands = [self._constants_of(node) for node in products]
        alike = {
            (node.input[0], *(attributes(node).get(name) for name in _SAME_ATTRIBUTES))
            for node in products
        }
        if len(alike) > 1 or any(one is None for one in operands):
            return
        joined = _join_constants([one for one in operands if one is not None])
        if joined is None:
            return
        self._replace_products(products, joined, attention)
        self.products += len(products)

    def _replace_products(
        self,
        products: list[onnx.NodeProto],
        joined: list[np.ndarray | None],
        attention: onnx.NodeProto,
    ) -> None:
        first = products[0]
        whole = f"{first.output[0]}/beside"
        inputs = [first.input[0]]
        for number, value in enumerate(joined, 1):
            inputs.append("" if value is None else f"{whole}/{number}")
            if value is not None:
                self._graph.set_constant(inputs[-1], value)
        while not inputs[-1]:
            inputs.pop()
        outputs = sum(_number(node, "N") for node in products)
        attrs = {**attributes(first), "N": outputs}
        node = helper.make_node(
            _PRODUCT, inputs, [whole], name=first.name, domain=first.domain, **attrs
        )
        nodes = self._graph.nodes
        at = next(number for number, other in enumerate(nodes) if other is first)
        nodes.insert(at, node)
        known = self._graph.types.get(first.output[0])
        if known is not None and known.shape is not None:
            shape = (*known.shape[:-1], outputs)
            self._graph.types[whole] = type(known)(element=known.element, shape=shape)
        self._makers[whole] = node
        self._drop(*products)
        _set_inputs(attention, [whole, "", "", *attention.input[3:]])

    def read_packed(self, attention: onnx.NodeProto) -> None:
        """Read queries, keys and values from the tensor that they are split from."""
        split = self._makers.get(attention.input[0])
        if split is None or split.op_type != "Split" or not attention.input[1]:
            return
        size = self._head(attention)
        sizes = self._graph.constants.get(split.input[1]) if len(split.input) > 1 else None
        heads = ("num_heads", "kv_num_heads", "kv_num_heads")
        wanted = [_number(attention, name) * size for name in heads]
        if (
            list(split.output) != list(attention.input[:3])
            or sizes is None
            or sizes.reshape(-1).tolist() != wanted
            or attributes(split).get("axis", 0) not in (-1, 2)
            or any(self._readers[name] != 1 for name in split.output)
        ):
            return
        _set_inputs(attention, [split.input[0], "", "", *attention.input[3:]])
        self._drop(split)

    def _norm_of(
        self, name: str, size: int
    ) -> tuple[onnx.NodeProto, onnx.NodeProto, onnx.NodeProto] | None:
        """Reshape, norm, Reshape, where these are what makes a tensor."""
        chain: list[onnx.NodeProto] = []
        for op in ("Reshape", _NORM, "Reshape"):
            node = self._alone(name)
            if node is None or node.op_type != op:
                return None
            chain.insert(0, node)
            name = node.input[0]
        apart, norm, whole = chain
        weight = self._graph.constants.get(norm.input[1])
        shapes = [self._graph.constants.get(node.input[1]) for node in (apart, whole)]
        maker = self._makers.get(apart.input[0])
        if weight is None or maker is None or any(shape is None for shape in shapes):
            return None
        split, joined = ([] if shape is None else shape.reshape(-1).tolist() for shape in shapes)
        same = split == [0, -1, size] and joined[:2] == [0, -1] and weight.shape == (size,)
        last = attributes(norm).get("axis", -1) in (-1, 2)
        flat = maker.op_type in (*_FLAT, _PRODUCT)
        return (apart, norm, whole) if same and last and flat else None

    def _alone(self, name: str) -> onnx.NodeProto | None:
        """What makes a tensor that has one reader."""
        node = self._makers.get(name)
        return node if node is not None and self._readers[name] == 1 else None

    def _head(self, attention: onnx.NodeProto) -> int:
        """Numbers of a head, 0 where nobody knows."""
        past = self._graph.types.get(attention.input[_PAST])
        return past.shape[3] if past and past.shape and len(past.shape) == 4 else 0

    def _constants_of(self, node: onnx.NodeProto) -> Mapping[int, np.ndarray] | None:
        """Position -> constant, of a product whose operands all are such."""
        constants = self._graph.constants
        given = {at: name for at, name in enumerate(node.input) if at and name}
        if any(name not in constants for name in given.values()):
            return None
        return {at: constants[name] for at, name in given.items()}

    def _drop(self, *nodes: onnx.NodeProto) -> None:
        self.gone.update(id(node) for node in nodes)


def _join_constants(operands: list[Mapping[int, np.ndarray]]) -> list[np.ndarray | None] | None:
    """The constants of products beside each other, by position from 1 on; None: not alike.

    Rows of outputs follow each other in each of them, flat ones too.
    """
    positions = {at for one in operands for at in one}
    joined: list[np.ndarray | None] = []
    for at in range(1, max(positions) + 1):
        values = [one[at] for one in operands if at in one]
        if len(values) not in (0, len(operands)):
            return None
        if len({(value.dtype, value.shape[1:]) for value in values}) > 1:
            return None
        joined.append(spill(np.concatenate(values)) if values else None)
    return joined


def _epsilon(norm: onnx.NodeProto) -> float:
    epsilon: Any = attributes(norm).get("epsilon", 1e-5)
    return float(epsilon)


def _number(node: onnx.NodeProto, name: str) -> int:
    value: Any = attributes(node).get(name, 0)
    return int(value)


def _set_inputs(node: onnx.NodeProto, inputs: list[str]) -> None:
    changed: Any = node.input
    del changed[:]
    changed.extend(inputs)
