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

Models in halves widen x before that and narrow what comes out: so does the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.files.spill import spill
from adrenoc.importers.onnx.graph import OnnxGraph, attributes, is_standard
from adrenoc.importers.onnx.n_bits import N_BITS as OWN_N_BITS
from adrenoc.importers.relax.cache_constants import NIBBLE, head_of

NORM = "SimplifiedLayerNormalization"
_LAST = -1


def join_norms(graph: OnnxGraph) -> None:
    """Put one operator in the place of each norm of `graph`."""
    finder = _Finder(graph)
    count = 0
    for at, node in enumerate(graph.nodes):
        if node.op_type == "RMSNormalization" and is_standard(node):
            node.op_type = NORM
            continue
        found = finder.find(node)
        if found is None:
            continue
        attrs = {"axis": _LAST, "epsilon": found.epsilon, "stash_type": 1}
        inputs = [found.read, found.gains]
        graph.nodes[at] = helper.make_node(NORM, inputs, list(node.output), node.name, **attrs)
        count += 1
    if count:
        graph.drop_unused()
        reason = "a factor, a root and a mean of squares are a norm by root mean square"
        graph.log.add(f"{count} norms", "are one operator each", reason)


@dataclass(frozen=True, kw_only=True)
class _Norm:
    """The tensor that a norm reads, its gains, a constant, and what it adds to the mean."""

    read: str
    gains: str
    epsilon: float


class _Finder:
    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._makers = graph.makers()

    def find(self, node: onnx.NodeProto) -> _Norm | None:
        """Return the norm whose last product a node is, if it is one."""
        for gains, scaled in self._factors(node):
            value = self._graph.constants.get(gains)
            if value is None or value.ndim != 1:
                continue
            narrowed = self._made_by(scaled, "Cast")
            inner = scaled if narrowed is None else narrowed.input[0]
            for read, epsilon in self._scaled(inner):
                source = self._before_cast(read, scaled) if narrowed is not None else read
                shape = self._graph.shape_of(source)
                if shape is not None and shape[-1:] == value.shape:
                    return _Norm(read=source, gains=gains, epsilon=epsilon)
        return None

    def _scaled(self, name: str) -> Iterator[tuple[str, float]]:
        """Yield what a tensor is x / root of, or x times one over the root: x, and epsilon."""
        node = self._makers.get(name)
        if node is None:
            return
        pairs: list[tuple[str, str]] = []
        if node.op_type == "Div":
            pairs = [(node.input[0], node.input[1])]
        for x, inverse in self._factors(node):
            over = self._made_by(inverse, "Reciprocal")
            if over is not None:
                pairs.append((x, over.input[0]))
            divided = self._made_by(inverse, "Div")
            if divided is not None and self._number(divided.input[0]) == 1:
                pairs.append((x, divided.input[1]))
        for x, root in pairs:
            epsilon = self._epsilon(x, root)
            if epsilon is not None:
                yield x, epsilon

    def _epsilon(self, x: str, root: str) -> float | None:
        """Return what is added to the mean of the squares of x, whose root this is; None of
        others."""
        taken = self._made_by(root, "Sqrt")
        raised = None if taken is None else self._made_by(taken.input[0], "Add")
        for at in (0, 1) if raised is not None else ():
            assert raised is not None
            mean, epsilon = self._made_by(raised.input[at], "ReduceMean"), raised.input[1 - at]
            value = self._number(epsilon)
            if mean is not None and value is not None and self._is_over_last(mean):
                square = self._makers.get(mean.input[0])
                if square is not None and self._is_square(square, x):
                    return value
        return None

    def _is_square(self, node: onnx.NodeProto, x: str) -> bool:
        if node.op_type == "Pow":
            return node.input[0] == x and self._number(node.input[1]) == 2
        return node.op_type == "Mul" and list(node.input) == [x, x]

    def _is_over_last(self, mean: onnx.NodeProto) -> bool:
        own = attributes(mean)
        axes = own.get("axes")
        if len(mean.input) > 1 and mean.input[1]:
            axes = self._graph.constants.get(mean.input[1])
        shape = self._graph.shape_of(mean.input[0])
        if axes is None or not own.get("keepdims", 1) or shape is None:
            return False
        return np.asarray(axes).reshape(-1).tolist() in ([_LAST], [len(shape) - 1])

    def _before_cast(self, read: str, narrowed: str) -> str:
        """Return what was widened, where it was of the type that comes out; else what is read
        itself."""
        cast = self._made_by(read, "Cast")
        types = self._graph.types
        if cast is None or types.get(cast.input[0]) is None or types.get(narrowed) is None:
            return ""
        same = types[cast.input[0]].element == types[narrowed].element
        return str(cast.input[0]) if same else ""

    def _factors(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        if node.op_type == "Mul":
            yield node.input[0], node.input[1]
            yield node.input[1], node.input[0]

    def _made_by(self, name: str, op: str) -> onnx.NodeProto | None:
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op and is_standard(node) else None

    def _number(self, name: str) -> float | None:
        value = self._graph.constants.get(name)
        return None if value is None or value.size != 1 else float(value.reshape(-1)[0])


_PAST, _NORMS = 3, (14, 15)
_EPSILON = "qk_norm_epsilon"
_FLAT = ("Add", "MatMul", "Split")
"""What makes tensors of the axes batch, token and channel, beside the product of few bits."""


def join_heads(graph: OnnxGraph, attentions: list[onnx.NodeProto]) -> None:
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
        """Return Reshape, norm, Reshape, where these are what makes a tensor."""
        chain: list[onnx.NodeProto] = []
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

    def _alone(self, name: str) -> onnx.NodeProto | None:
        """Return what makes a tensor that has one reader."""
        node = self._makers.get(name)
        return node if node is not None and self._readers[name] == 1 else None

    def _head(self, attention: onnx.NodeProto) -> int:
        """Return numbers of a head, 0 where nobody knows."""
        past = attention.input[_PAST]
        shape = self._graph.shape_of(past)
        if shape is None or len(shape) != 4:
            return 0
        return head_of(shape[3], NIBBLE if self._graph.types[past].dtype == "uint8" else 0)

    def _drop(self, *nodes: onnx.NodeProto) -> None:
        self.gone.update(id(node) for node in nodes)


def _epsilon(norm: onnx.NodeProto) -> float:
    return float(attributes(norm).get("epsilon", 1e-5))


def _number(node: onnx.NodeProto, name: str) -> int:
    return int(attributes(node).get(name, 0))


def _set_inputs(node: onnx.NodeProto, inputs: list[str]) -> None:
    changed: Any = node.input
    del changed[:]
    changed.extend(inputs)


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
        """Return what has to be the same of products that one can compute."""
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
