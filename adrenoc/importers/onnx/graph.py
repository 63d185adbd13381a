"""An ONNX graph as the importer works on it: nodes, constants as arrays, static shapes.

Constants live outside protobuf: weights of any size are neither copied nor serialised while
shapes are inferred and constants are folded.
"""

import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.files.spill import spill
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.formats import EXPORT_AGAIN

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
    """How many entries of `axis` there are depends on data; those found come first.

    Beyond them the tensor `source` holds -1 on its `source_axis`.
    """

    source: str
    source_axis: int
    axis: int


@dataclass
class OnnxGraph:
    """A graph whose nodes stand in topological order.

    `types` holds what is known about each tensor, constants included; `refusals` says of a first
    output why its node is left as it is, for the error that lists it, and `untold` where that is
    only because nothing is known of an operand; `counted` holds tensors
    whose extent depends on data, and None for those that are made of them and do not; `sequences`
    holds the tensors in each sequence that is known; `disputed` names the nodes that onnx's
    inference refuses and onnxruntime takes; with `vast` some constant is refused for its size, and
    nothing more may be made of the others; `log` holds what was decided on the way.
    """

    nodes: list[onnx.NodeProto]
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

    def makers(self) -> dict[str, onnx.NodeProto]:
        """Return the node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.output if name}

    def readers(self) -> dict[str, list[onnx.NodeProto]]:
        """Return the nodes that read each tensor, once each."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(name for name in node.input if name):
                found.setdefault(name, []).append(node)
        return found

    def count_reads(self) -> Counter[str]:
        """Return how often each tensor is read, as an output of the model too."""
        return Counter([*self.outputs, *(name for node in self.nodes for name in node.input)])

    def find_maker(self, name: str) -> onnx.NodeProto | None:
        """Return the node that makes a tensor, of those that are there so far."""
        return next((node for node in reversed(self.nodes) if name in node.output), None)

    def scalar(self, name: str) -> float | int | bool:
        """Return the number that a constant holds; of several, the first.

        Raises:
            ModelFormatError: it holds none.
        """
        value = self.constants[name]
        if not value.size:
            raise ModelFormatError(
                f"the constant '{name}' has the shape {list(value.shape)}, expected one number",
                hint="check the model: python -m onnx.bin.checker MODEL",
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


def load_constants(
    graph: onnx.GraphProto, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the initialisers of a graph as arrays, by name; `weights` are those that it lacks the
    data of.

    Raises:
        ModelFormatError: the data of one does not fit its shape.
    """
    # The message keeps its own bytes as long as it lives.
    inner = (tensor for tensor in graph.initializer if tensor.name not in weights)
    return {**weights, **{tensor.name: spill(array_of(tensor)) for tensor in inner}}


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """Return the array that a tensor of the file holds.

    Raises:
        ModelFormatError: its data does not fit its shape.
    """
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except ValueError as error:
        raise ModelFormatError(
            f"the constant '{tensor.name}' of the shape {list(tensor.dims)} does not fit its "
            f"data: {error}",
            hint=EXPORT_AGAIN,
        ) from error


def sort_nodes(graph: onnx.GraphProto) -> bool:
    """Put the nodes of `graph`, and of graphs nested in it, in an order in which each reads what is
    there; whether it was not.

    The standard asks for such an order, and some exporters do not keep it.  Nodes that no order
    serves stay as they are.
    """
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
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return True


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, those of nested graphs (If, Loop) included."""
    for node in nodes:
        yield node
        for graph in inner_graphs(node):
            yield from all_nodes(graph.node)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that a node (If, Loop) holds."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def copy_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return the node with memory of its own: a part of a message keeps all of it, weights too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def is_standard(node: onnx.NodeProto) -> bool:
    """Return whether the operator is the one that the ONNX standard has by this name."""
    return node.domain in STANDARD_DOMAINS


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def first_output(node: onnx.NodeProto) -> str:
    """Return the first output that has a name, or an empty string."""
    return next((str(name) for name in node.output if name), "")


def node_label(node: onnx.NodeProto) -> str:
    """Return how a message names a node: by its name, or by its output where it has none."""
    output = first_output(node) or "?"
    return f"'{node.name}'" if node.name else f"the node of '{output}'"


def make_model(
    node: onnx.NodeProto,
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
