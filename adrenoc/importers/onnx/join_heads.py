"""Make what exporters put between a layer's norm and its attention the attention's own.

Before -> after:
    q = MatMulNBits(x, a) + b, k and v alike        qkv = MatMulNBits(x, a beside others) + (b, ...)
    q, k, v = Split(qkv)                            the attention reads qkv
    q = Reshape(RMSNorm(Reshape(x))) of each head   `q_norm_weight` of the attention, keys alike

Each is done where nothing else reads what lies between.  Products are by weights of few bits or by
plain ones, each with a bias or without; of those without it is zero beside the others'.

Root-mean-square norms that an exporter wrote out, as one operator.

Before -> after:
    y = g * (x / Sqrt(ReduceMean(x * x) + epsilon))     y = SimplifiedLayerNormalization(x, g)
    y = RMSNormalization(x, g)                          the same

Models in halves widen x before that and narrow what comes out: so does the operator.  Norms are
known by what they make of numbers, however they are spelt.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from adrenoc.base.files.spill import spill
from adrenoc.importers.onnx.graph import OnnxGraph, attributes, is_standard
from adrenoc.importers.onnx.n_bits import N_BITS as OWN_N_BITS
from adrenoc.importers.onnx.probe import is_near, look_back
from adrenoc.importers.relax.own import NIBBLE, head_of

NORM = "SimplifiedLayerNormalization"
_OF_NORMS = frozenset(("Add", "Cast", "Div", "Mul", "Pow", "Reciprocal", "ReduceMean", "Sqrt"))
"""Operators that exporters write a norm with."""


def join_norms(graph: OnnxGraph) -> None:
    """Put one operator in the place of each norm of `graph`."""
    count = 0
    for at, node in enumerate(graph.nodes):
        if node.op_type == "RMSNormalization" and is_standard(node):
            node.op_type = NORM
            continue
        found = _find_norm(graph, node)
        if found is None:
            continue
        *inputs, epsilon = found
        attrs = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
        graph.nodes[at] = helper.make_node(NORM, inputs, list(node.output), node.name, **attrs)
        count += 1
    if count:
        graph.drop_unused()
        reason = "a factor, a root and a mean of squares are a norm by root mean square"
        graph.log.add(f"{count} norms", "are one operator each", reason)


def _find_norm(graph: OnnxGraph, node: NodeProto) -> tuple[str, str, float] | None:
    """Return what the norm reads whose last product a node is, its gains, which are constants, and
    what it adds to the mean; None where it is none."""
    gains = [n for n in node.input if n in graph.constants and graph.constants[n].ndim == 1]
    shape = graph.shape_of(node.output[0]) or ()
    if node.op_type != "Mul" or not gains:
        return None
    held = graph.constants[gains[0]]
    if held.shape != shape[-1:]:
        return None
    few = (*(min(extent, 2) for extent in shape[:-1]), shape[-1])
    for chain in look_back(graph, node.output[0], _OF_NORMS):
        numbers = {float(v.reshape(-1)[0]) for v in chain.constants.values() if v.size == 1}
        for epsilon in sorted(n for n in numbers if 0 <= n < 1):
            tried = [chain.try_numbers(few, size) for size in (1.0, math.sqrt(epsilon or 1.0))]
            if all(is_near(seen, _norm(x, held, epsilon)) for x, seen in tried):
                return chain.source, gains[0], epsilon
    return None


def _norm(x: np.ndarray, gains: np.ndarray, epsilon: float) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + epsilon) * gains


_PAST, _NORMS = 3, (14, 15)
_EPSILON = "qk_norm_epsilon"
_FLAT = ("Add", "MatMul", "Split")
"""What makes tensors of the axes batch, token and channel, beside the product of few bits."""


def join_heads(graph: OnnxGraph, attentions: list[NodeProto]) -> None:
    """Change `attentions` (GroupQueryAttention), in place, and what stands before them."""
    joiner = _Joiner(graph)
    for node in attentions:
        joiner.take_norms(node)
        joiner.pack_products(node)
        joiner.read_packed(node)
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in joiner.gone]
    for count, what, taken, reason in (
        (joiner.norms, "norms of heads", "computed by the attention", "nothing else reads them"),
        (joiner.products, "products", "computed with those beside them", "they read the same"),
    ):
        if count:
            graph.log.add(f"{count} {what}", taken, reason)


class _Joiner:
    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._makers, self._readers = graph.makers(), graph.count_reads()
        self.gone: set[int] = set()
        """Nodes, by identity."""
        self.norms = self.products = 0

    def take_norms(self, attention: NodeProto) -> None:
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

    def pack_products(self, attention: NodeProto) -> None:
        """Compute queries, keys and values by one product, where three read the same."""
        found = [read_projection(self._graph, self._alone, name) for name in attention.input[:3]]
        parts = [part for part in found if part is not None]
        if len(parts) < 3 or len({id(part.product) for part in parts}) < 3:
            return
        joined = join_projections(self._graph, parts)
        if joined is None:
            return
        nodes = self._graph.nodes
        at = next(number for number, other in enumerate(nodes) if other is parts[0].product)
        nodes[at:at] = joined
        self._makers.update({node.output[0]: node for node in joined})
        self._drop(*(node for part in parts for node in part.nodes))
        _set_inputs(attention, [joined[-1].output[0], "", "", *attention.input[3:]])
        self.products += len(parts)

    def read_packed(self, attention: NodeProto) -> None:
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

    def _norm_of(self, name: str, size: int) -> tuple[NodeProto, NodeProto, NodeProto] | None:
        """Return Reshape, norm, Reshape, where these are what makes a tensor."""
        chain: list[NodeProto] = []
        for op in ("Reshape", NORM, "Reshape"):
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
        flat_rows = split == [0, -1, size] and joined[:2] == [0, -1]
        # As [batch, token, head, number], which says how many heads there are.
        of_heads = len(split) == 4 and len(joined) == 3 and split[2:] == [joined[2] // size, size]
        same = (flat_rows or of_heads) and weight.shape == (size,)
        last = attributes(norm).get("axis", -1) in (-1, len(split) - 1)
        flat = maker.op_type in (*_FLAT, *OF_FEW_BITS)
        return (apart, norm, whole) if same and last and flat else None

    def _alone(self, name: str) -> NodeProto | None:
        """Return what makes a tensor that has one reader."""
        node = self._makers.get(name)
        return node if node is not None and self._readers[name] == 1 else None

    def _head(self, attention: NodeProto) -> int:
        """Return numbers of a head, 0 where nobody knows."""
        past = attention.input[_PAST]
        shape = self._graph.shape_of(past)
        if shape is None or len(shape) != 4:
            return 0
        return head_of(shape[3], NIBBLE if self._graph.types[past].dtype == "uint8" else 0)

    def _drop(self, *nodes: NodeProto) -> None:
        self.gone.update(id(node) for node in nodes)


def _epsilon(norm: NodeProto) -> float:
    return float(attributes(norm).get("epsilon", 1e-5))


def _number(node: NodeProto, name: str) -> int:
    return int(attributes(node).get(name, 0))


def _set_inputs(node: NodeProto, inputs: list[str]) -> None:
    changed: Any = node.input
    del changed[:]
    changed.extend(inputs)


N_BITS, MATMUL = "MatMulNBits", "MatMul"
OF_FEW_BITS = (N_BITS, OWN_N_BITS)
"""As files have it, and as it stands in a graph that was folded before."""
_SAME_ATTRIBUTES = ("K", "bits", "block_size", "weight_prepacked", "block", "zero")
_BIAS = 5
"""Input of MatMulNBits."""

MakerOf = Callable[[str], NodeProto | None]
"""What makes a tensor that nothing else reads; None of others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """A product by constants, and the bias behind it; `nodes` are what makes them."""

    product: NodeProto
    operands: Mapping[int, np.ndarray]
    """Constants by position, but for a bias."""
    bias: np.ndarray | None
    nodes: tuple[NodeProto, ...]

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
        """Return what has to be the same of products that one can compute."""
        own = attributes(self.product)
        said = (own.get(name) for name in _SAME_ATTRIBUTES)
        return (self.product.op_type, self.product.input[0], *said)


def read_projection(graph: OnnxGraph, maker_of: MakerOf, name: str) -> Projection | None:
    """Return the product that makes a tensor, or makes it but for a bias; None where none does."""
    constants, node = graph.constants, maker_of(name)
    nodes: tuple[NodeProto, ...] = ()
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


def join_projections(graph: OnnxGraph, parts: Sequence[Projection]) -> list[NodeProto] | None:
    """Return the nodes that compute `parts` beside each other, the last of all; None: not alike."""
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
    Rows of outputs follow each other in those of few bits, flat ones too; columns in plain ones."""
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
