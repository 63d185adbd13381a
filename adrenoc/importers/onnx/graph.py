"""An ONNX graph as the importer works on it (nodes, constants as arrays, static shapes), and what
writes the standard nodes that take the place of one of onnxruntime's own domain.  Inputs that alone
decide an If, such as a rate or a flag, are found for a message.

Constants live outside protobuf: weights of any size are neither copied nor serialised while
shapes are inferred and constants are folded.
"""

import graphlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError, RefusedError
from adrenoc.base.files.spill import spill
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.formats import malformed

# The domain of the standard operators has two spellings.
STANDARD_DOMAINS = ("", "ai.onnx")
MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


MOST_ELEMENTS = 2**30
"""The most elements of a tensor: kernels count in 32 bits, and no phone has room for more."""

MOST_AXES = 64
"""The most axes of a tensor: more than any model has, and few enough for TVM to be quick."""

MOST_ADDRESSED = 2**58
"""Elements, of sixteen bytes at most: NumPy takes no shape of more, not even of an empty array."""


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """Element type (a value of `onnx.TensorProto.DataType`) and static shape, if known."""

    element: int
    shape: tuple[int, ...] | None

    @property
    def dtype(self) -> str:
        """Return the name of the element type, as NumPy writes it."""
        return str(onnx.helper.tensor_dtype_to_np_dtype(self.element))

    def to_proto(self) -> onnx.TypeProto:
        """Return the same as a protobuf message."""
        return onnx.helper.make_tensor_type_proto(self.element, self.shape)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many entries of `axis` there are depends on data; those found come first. Beyond them the
    tensor `source` holds -1 on its `source_axis`."""

    source: str
    source_axis: int
    axis: int


@dataclass
class OnnxGraph:
    """A graph whose nodes stand in topological order.

    `types` holds what is known about each tensor, constants included; `refusals` says of a first
    output why its node is left as it is, for the error that lists it, and `untold` where that is
    only because nothing is known of an operand; `counted` holds tensors whose extent depends on
    data, and None for those that are made of them and do not; `sequences` holds the tensors in each
    sequence that is known; `disputed` names the nodes that onnx's inference refuses and onnxruntime
    takes; with `vast` some constant is refused for its size, and nothing more may be made of the
    others; `log` holds what was decided on the way."""

    nodes: list[NodeProto]
    inputs: list[TensorSpec]
    outputs: list[str]
    opset: int
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    counted: dict[str, Counted | None] = field(default_factory=dict)
    sequences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    disputed: list[str] = field(default_factory=list)
    vast: bool = False
    log: DecisionLog = field(default_factory=DecisionLog)

    def set_constant(self, name: str, value: np.ndarray) -> None:
        """Make the tensor `name` a constant."""
        self.constants[name] = value
        self.types[name] = TensorType(
            element=onnx.helper.np_dtype_to_tensor_dtype(value.dtype), shape=value.shape
        )

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Return the static shape of a tensor, or None where it is not known."""
        known = self.types.get(name)
        return None if known is None else known.shape

    def makers(self) -> dict[str, NodeProto]:
        """Return the node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.output if name}

    def readers(self) -> dict[str, list[NodeProto]]:
        """Return the nodes that read each tensor, once each."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(name for name in node.input if name):
                found.setdefault(name, []).append(node)
        return found

    def count_reads(self) -> Counter[str]:
        """Return how often each tensor is read, as an output of the model too."""
        return Counter([*self.outputs, *(name for node in self.nodes for name in node.input)])

    def find_maker(self, name: str) -> NodeProto | None:
        """Return the node that makes a tensor, of those that are there so far."""
        return next((node for node in reversed(self.nodes) if name in node.output), None)

    def scalar(self, name: str) -> float | int | bool:
        """Return the number in a constant, of several the first; ModelFormatError: none."""
        value = self.constants[name]
        if not value.size:
            raise damaged(
                f"the constant '{name}' has the shape {list(value.shape)}, expected one number"
            )
        number: float | int | bool = value.reshape(-1)[0].item()
        return number

    def drop_unused(self) -> int:
        """Remove nodes and constants that no output needs; return how many nodes went."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(node.input)
        dropped = len(self.nodes) - len(kept)
        self.nodes = kept[::-1]
        self.constants = {k: v for k, v in self.constants.items() if k in needed}
        return dropped


def damaged(text: str) -> ModelFormatError:
    """Return the error of a model that contradicts itself."""
    return ModelFormatError(text, hint="check the model: python -m onnx.bin.checker MODEL")


def load_constants(
    graph: onnx.GraphProto, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the initialisers of a graph as arrays, by name; `weights` are those that it lacks the
    data of. Raises ModelFormatError where the data of one does not fit its shape."""
    # The message keeps its own bytes as long as it lives.
    inner = (tensor for tensor in graph.initializer if tensor.name not in weights)
    return {**weights, **{tensor.name: spill(array_of(tensor)) for tensor in inner}}


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """Return the array of a tensor; raises ModelFormatError where its data fits no shape."""
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except ValueError as error:
        raise malformed(
            f"the constant '{tensor.name}' of the shape {list(tensor.dims)} does not fit its "
            f"data: {error}"
        ) from error


def sort_nodes(graph: onnx.GraphProto) -> bool:
    """Put the nodes of `graph`, and of graphs nested in it, in an order in which each reads what is
    there; whether it was not.

    The standard asks for such an order, and some exporters do not keep it.  Nodes that no order
    serves stay as they are."""
    nested = [inner for node in graph.node for inner in inner_graphs(node)]
    was_not = any([sort_nodes(inner) for inner in nested])
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    reads = [
        {makers[n] for inner in all_nodes([node]) for n in inner.input if n in makers} - {i}
        for i, node in enumerate(graph.node)
    ]
    if all(max(found, default=-1) < i for i, found in enumerate(reads)):
        return was_not
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(reads))).static_order())
    except graphlib.CycleError:  # who reads what nothing before it makes is refused by name
        return was_not
    nodes = [graph.node[i] for i in order]
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return True


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield all nodes, those of nested graphs (If, Loop) included."""
    for node in nodes:
        yield node
        for graph in inner_graphs(node):
            yield from all_nodes(graph.node)


def inner_graphs(node: NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that a node (If, Loop) holds."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def copy_node(node: NodeProto) -> NodeProto:
    """Return the node with memory of its own: a part of a message keeps all of it, weights too."""
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def is_standard(node: NodeProto) -> bool:
    """Return whether the operator is the one that the ONNX standard has by this name."""
    return node.domain in STANDARD_DOMAINS


def attributes(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def first_output(node: NodeProto) -> str:
    """Return the first output that has a name, or an empty string."""
    return next((str(name) for name in node.output if name), "")


def node_label(node: NodeProto) -> str:
    """Return how a message names a node: by its name, or by its output where it has none."""
    output = first_output(node) or "?"
    return f"'{node.name}'" if node.name else f"the node of '{output}'"


def make_model(
    node: NodeProto,
    types: Mapping[str, TensorType],
    stored: Mapping[str, np.ndarray],
    opset: int,
) -> onnx.ModelProto:
    """Return a model of one node; values that are `stored` are constants of it."""
    fed = [name for name in dict.fromkeys(node.input) if name and name not in stored]
    graph = onnx.helper.make_graph(
        [node],
        "node",
        [
            onnx.ValueInfoProto(name=n, type=types[n].to_proto() if n in types else None)
            for n in fed
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = min(10, onnx.IR_VERSION)  # older releases refuse the newest
    return model


_MOST_BEHIND = 64
"""Behind a condition that is a setting's there are few."""

_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def find_switches(
    condition: str,
    makers: Mapping[str, NodeProto],
    inputs: Collection[str],
    value_of: Callable[[str], np.ndarray | None],
) -> dict[str, str]:
    """Return the inputs that a condition is computed of, each with a value that it is compared
    with.

    `inputs` are those of one number.  The value is empty where nothing says one.  None are found
    where the condition hangs on more than these and constants, or on a long computation."""
    found: dict[str, str] = {}
    pending, seen = [condition], {condition}
    while pending:
        name = pending.pop()
        if name in inputs:
            found.setdefault(name, "")
            continue
        if value_of(name) is not None:
            continue
        maker = makers.get(name)
        if maker is None or len(seen) > _MOST_BEHIND or any(inner_graphs(maker)):
            return {}
        if maker.op_type in _COMPARING:
            found |= _compared(maker, makers, inputs, value_of)
        for operand in maker.input:
            if operand and operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return found


def settings_of(graph: onnx.GraphProto, weights: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return the inputs that alone decide the Ifs of a graph, with values they are compared with.
    `weights` are the initialisers that the graph lacks the data of."""
    makers = {name: node for node in graph.node for name in node.output}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            stored |= {name: a.t for name in node.output for a in node.attribute if a.HasField("t")}
    inputs = {value.name for value in graph.input if _is_one(value)} - stored.keys()

    def value_of(name: str) -> np.ndarray | None:
        if name in weights:
            return weights[name]
        return onnx.numpy_helper.to_array(stored[name]) if name in stored else None

    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "If":
            found |= find_switches(node.input[0], makers, inputs, value_of)
    return found


def write_switches(found: Mapping[str, str]) -> str:
    """Return the options that decide, to be typed."""
    return " ".join(f"--fix {name}={value or 'VALUE'}" for name, value in found.items())


def _is_one(value: onnx.ValueInfoProto) -> bool:
    """Return whether an input is one number whatever is fed, as settings are."""
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(axis.dim_value == 1 for axis in tensor.shape.dim)


def _compared(
    node: NodeProto,
    makers: Mapping[str, NodeProto],
    inputs: Collection[str],
    value_of: Callable[[str], np.ndarray | None],
) -> dict[str, str]:
    """Return the input on one side of a comparison, with the constant on the other."""
    sides = [_behind(name, makers, inputs) for name in node.input]
    for one, other in (sides, sides[::-1]):
        value = value_of(other)
        if one in inputs and value is not None and value.size == 1:
            return {one: str(value.reshape(-1)[0].item())}
    return {}


def _behind(name: str, makers: Mapping[str, NodeProto], inputs: Collection[str]) -> str:
    """Return what a tensor is a copy of, in another type or shape."""
    while name not in inputs and (maker := makers.get(name)) is not None:
        if maker.op_type not in ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
            break
        name = maker.input[0]
    return name


def tell_switches(graph: OnnxGraph, condition: str) -> str:
    """Return the end of a sentence with the options that decide a condition, where inputs do."""
    makers = graph.makers()
    inputs = {spec.name for spec in graph.inputs if math.prod(spec.shape) == 1}
    found = find_switches(condition, makers, inputs, graph.constants.get)
    return f"; {write_switches(found)} decides it" if found else ""


class UnknownTypeError(RefusedError):
    """Nothing is known of an operand: most often what makes it is refused itself."""


class Writer:
    """Collects the nodes that take the place of one; names are unique by its output."""

    def __init__(self, node: NodeProto, graph: OnnxGraph) -> None:
        self.node, self.opset = node, graph.opset
        self.attrs: dict[str, Any] = attributes(node)
        self.nodes: list[NodeProto] = []
        self._graph = graph
        self._prefix = f"{next(name for name in node.output if name)}/{node.op_type}/"
        self._constants = 0

    @property
    def result(self) -> str:
        """Return the name of the first output."""
        return str(self.node.output[0])

    def input(self, index: int) -> str:
        """Return an input's name, empty where it is left out."""
        return str(self.node.input[index]) if index < len(self.node.input) else ""

    def output(self, index: int) -> str:
        """Return an output's name, empty where nobody reads it."""
        return str(self.node.output[index]) if index < len(self.node.output) else ""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the static shape of an input."""
        shape = self._graph.shape_of(name)
        if shape is None:
            raise UnknownTypeError(f"the shape of '{name}' is not known")
        return shape

    def dtype(self, name: str) -> str:
        """Return the element type of an input."""
        return str(helper.tensor_dtype_to_np_dtype(self.element(name)))

    def element(self, name: str) -> int:
        """Return the element type of an input, as ONNX counts them."""
        known = self._graph.types.get(name)
        if known is None:
            raise UnknownTypeError(f"the dtype of '{name}' is not known")
        return known.element

    def value(self, name: str) -> np.ndarray | None:
        """Return the value of a constant input."""
        return self._graph.constants.get(name)

    def number(self, name: str, default: float) -> float:
        """Return an attribute of one number."""
        return float(self.attrs.get(name, default))

    def refuse_odd(self, covered: Mapping[str, Sequence[object]], *others: str) -> None:
        """Refuse attributes with values that are not covered, and what is told of others."""
        odd = [
            f"{name} {self.attrs[name]}"
            for name, values in covered.items()
            if name in self.attrs and self.attrs[name] not in values
        ]
        if found := [*others, *odd]:
            raise RefusedError(f"it has {', '.join(found)}, which is not covered")

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute of text."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def constant(self, value: float) -> str:
        """Return a scalar of `float_dtype`."""
        return self.array(np.array(value, self.float_dtype))

    @property
    def float_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the first input, or float32 where that holds integers."""
        dtype = np.dtype(self.dtype(self.input(0)))
        return dtype if dtype.kind == "f" else np.dtype(np.float32)

    def array(self, value: np.ndarray) -> str:
        """Return a constant tensor."""
        name = f"{self._prefix}constant{self._constants}"
        self._constants += 1
        self._graph.set_constant(name, value)
        return name

    def __call__(self, op: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        """Add a standard operator; `out` names its output, and inputs left out have no names."""
        output = out or f"{self._prefix}{len(self.nodes)}"
        given = max((at + 1 for at, name in enumerate(inputs) if name), default=0)
        self.nodes.append(helper.make_node(op, inputs[:given], [output], **attrs))
        return output

    def like(self, op: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        """Add an operator that the opset may not have, of the type of the node's first input."""
        output = self(op, *inputs, out=out, **attrs)
        first = self._graph.types.get(self.input(0))
        if first is not None:
            self._graph.types[output] = TensorType(element=first.element, shape=first.shape)
        return output

    def own(
        self, op: str, *inputs: str, shape: Sequence[int], out: str, like: str, **attrs: Any
    ) -> str:
        """Add an operator of our own (`ops.py`), whose result is of the dtype of `like`."""
        output = self(op, *inputs, out=out, **attrs)
        self.know(output, like=like, shape=shape)
        return output

    def know(self, name: str, *, like: str, shape: Sequence[int]) -> None:
        """Say of what is written its shape, and that it is of the dtype of `like`."""
        self._graph.types[name] = TensorType(element=self.element(like), shape=tuple(shape))

    def reshape(self, x: str, *shape: int, out: str = "") -> str:
        """Reshape to fixed extents."""
        return self("Reshape", x, self.array(np.array(shape, np.int64)), out=out)

    def total(self, x: str, *axes: int, keepdims: int = 0, out: str = "") -> str:
        """Return the sum along axes, which it leaves out unless they are kept."""
        if self.opset < 13:
            return self("ReduceSum", x, axes=axes, keepdims=keepdims, out=out)
        along = self.array(np.array(axes, np.int64))
        return self("ReduceSum", x, along, keepdims=keepdims, out=out)

    def largest(self, x: str, count: int) -> tuple[str, str]:
        """Return the largest numbers along the last axis, and their places."""
        made = tuple(f"{self._prefix}{len(self.nodes)}/{name}" for name in ("values", "places"))
        counted = self.array(np.array([count], np.int64))
        self.nodes.append(helper.make_node("TopK", [x, counted], made, axis=-1))
        return made[0], made[1]

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Return parts of `x` along an axis as slices, whose form is one in all opsets from 10."""
        parts, begin = [], 0
        for size in sizes:
            parts.append(self.slice(x, begin, begin + size, axis))
            begin += size
        return parts

    def slice(self, x: str, begin: int, end: int, axis: int) -> str:
        """Return x[begin:end] along an axis."""
        if self.opset < 10:
            return self("Slice", x, starts=[begin], ends=[end], axes=[axis])
        ints = (self.array(np.array([v], np.int64)) for v in (begin, end, axis))
        return self("Slice", x, *ints)

    def fast_gelu(self, x: str, out: str = "") -> str:
        """Return Gelu by a hyperbolic tangent, which the standard has from opset 20 on alone."""
        cube = self("Mul", self("Mul", x, x), x)
        inner = self("Add", x, self("Mul", cube, self.constant(0.044715)))
        bent = self("Tanh", self("Mul", inner, self.constant(math.sqrt(2 / math.pi))))
        half = self("Mul", x, self.constant(0.5))
        return self("Mul", half, self("Add", bent, self.constant(1.0)), out=out)

    def activate(self, name: str, x: str, params: Sequence[float], out: str = "") -> str:
        """Return the activation of a fused operator."""
        if name == "Clip" and self.opset < 11:
            return self("Clip", x, min=params[0], max=params[1], out=out)
        if name == "Clip":
            return self("Clip", x, *[self.constant(bound) for bound in params], out=out)
        if name in ("LeakyRelu", "Elu"):
            return self(name, x, out=out, **({"alpha": params[0]} if params else {}))
        if name == "HardSigmoid":
            return self(name, x, alpha=params[0], beta=params[1], out=out)
        return self(name or "Identity", x, out=out)
