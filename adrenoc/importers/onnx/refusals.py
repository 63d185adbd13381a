"""Refuses an ONNX model that is damaged, before anything trusts what it says of itself, and one
with nodes that cannot be imported, in one error for all of them.

Protobuf takes any bytes for text and any number for an enumeration, and the onnx package fails on
them wherever it meets them first.  A node that reads what another refused node makes is not named:
nothing is known of it.

Source: onnx.proto3; the schemas of the onnx package.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper

from adrenoc.base.errors import (
    CustomDomainError,
    RefusedError,
    UnsupportedOperatorError,
)
from adrenoc.base.text.spelling import list_first, list_names
from adrenoc.importers.onnx.graph import (
    STANDARD_DOMAINS,
    OnnxGraph,
    all_nodes,
    damaged,
    first_output,
    inner_graphs,
    is_standard,
    node_label,
)

_ELEMENTS = frozenset(helper.get_all_tensor_dtypes()) - {TensorProto.UNDEFINED}
_MOST_EXTENT = 2**31 - 1
_AXES = frozenset(
    {"axes", "axis", "batch_axis", "perm", "scan_input_axes", "scan_output_axes", "time_axis"}
)
_MOST_AXES = 1024
_FIRST_SCAN_WITHOUT_LENGTHS = 9


_TERM = rb"[A-Za-z ]*(\.\.\.[A-Za-z ]*)?"
_EQUATION = re.compile(rb"%b(,%b)*(->%b)?" % (_TERM, _TERM, _TERM))
_MOST_LETTERS = 1024
_SHOWN_LETTERS = 80
"""Terms of an Einsum, each with one ellipsis at most, and its result."""


def validate_model(model: onnx.ModelProto, *, opset: int) -> None:
    """Check the texts, types, sizes and attributes of `model`. Raises ModelFormatError, naming the
    place, what is there, and what is expected."""
    _check_graph(model.graph, opset)
    _check_order(model.graph, frozenset())
    for function in model.functions:
        _check_texts(function.name, function.domain, *function.input, *function.output)
        for node in function.node:
            _check_node(node, opset, in_function=True)


def _check_texts(*texts: object) -> None:
    """Protobuf hands out what is no UTF-8 as bytes."""
    for text in texts:
        if not isinstance(text, str):
            raise damaged(f"the model is damaged: a name in it is no text but {text!r}")


def _check_graph(graph: onnx.GraphProto, opset: int, *, in_function: bool = False) -> None:
    for value in (*graph.input, *graph.output):
        _check_texts(value.name)
        if not value.name:
            raise damaged("an input or output of a graph has no name")
        _check_type(value)
    for tensor in graph.initializer:
        _check_texts(tensor.name)
        _check_tensor(tensor, f"the constant '{tensor.name}'")
    for node in graph.node:
        _check_node(node, opset, in_function=in_function)


def _check_order(graph: onnx.GraphProto, outside: frozenset[str]) -> None:
    """Check that every node reads what is there by then, and computes what is not. `outside` are
    names of outer graphs; what is inside may be called the same."""
    made = {v.name for v in graph.input}
    if len(made) < len(graph.input):
        names = sorted(v.name for v in graph.input)
        twice = next(a for a, b in pairwise(names) if a == b)
        raise damaged(f"the graph has two inputs '{twice}'")
    made.update(tensor.name for tensor in graph.initializer)
    made.update(tensor.values.name for tensor in graph.sparse_initializer)
    known = {"", *outside, *made}
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise damaged(
                    f"{node.op_type} {node_label(node)} reads '{name}', which nothing before it "
                    "computes"
                )
        for inner in inner_graphs(node):
            _check_order(inner, frozenset(known))
        for name in node.output:
            if name and name in made:
                raise damaged(f"{node.op_type} {node_label(node)} computes '{name}' once more")
            made.add(name)
        known.update(node.output)


def _check_type(value: onnx.ValueInfoProto) -> None:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return
    element = value.type.tensor_type.elem_type
    if element not in _ELEMENTS | {TensorProto.UNDEFINED}:
        raise damaged(f"'{value.name}' has the element type {element}, which ONNX does not have")
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_value > _MOST_EXTENT:
            raise damaged(f"'{value.name}' has an extent of {dim.dim_value}")
        _check_texts(dim.dim_param)


def _check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    if tensor.data_type not in _ELEMENTS:
        raise damaged(f"{where} has the element type {tensor.data_type}")
    if any(not 0 <= d <= _MOST_EXTENT for d in tensor.dims):
        raise damaged(f"{where} has the shape {list(tensor.dims)}")


def _check_node(node: NodeProto, opset: int, *, in_function: bool) -> None:
    _check_texts(node.name, node.op_type, node.domain, *node.input, *node.output)
    label = f"{node.op_type} {node_label(node)}"
    if not any(node.output):
        raise damaged(f"{label} has no output")
    for attribute in node.attribute:
        if attribute.ref_attr_name and not in_function:
            raise damaged(
                f"attribute '{attribute.name}' of {label} refers to '{attribute.ref_attr_name}' of "
                "a function, and it is in none"
            )
        _check_attribute(attribute, label)
    if not in_function and node.domain in STANDARD_DOMAINS:
        _check_schema(node, opset, label)
        _check_nested(node, opset, label)
    for inner in inner_graphs(node):
        _check_graph(inner, opset, in_function=in_function)


def _check_attribute(attribute: AttributeProto, label: str) -> None:
    _check_texts(attribute.name, attribute.ref_attr_name)
    if attribute.ref_attr_name:
        return
    try:
        helper.get_attribute_value(attribute)
    except ValueError as error:
        raise damaged(f"attribute '{attribute.name}' of {label}: {error}") from error
    for value in (attribute.i, *attribute.ints) if attribute.name in _AXES else ():
        if abs(value) > _MOST_AXES:  # onnx's own shape inference crashes on some
            raise damaged(f"attribute '{attribute.name}' of {label} counts to {value}")
    if attribute.name == "batch_dims" and not 0 <= attribute.i <= _MOST_AXES:
        raise damaged(f"attribute 'batch_dims' of {label} is {attribute.i}")
    is_long = len(attribute.s) > _MOST_LETTERS
    if attribute.name == "equation" and (is_long or not _EQUATION.fullmatch(attribute.s)):
        shown = attribute.s[:_SHOWN_LETTERS]
        raise damaged(f"{label} has the equation {shown!r}, which TVM never finishes to read")
    if attribute.type == AttributeProto.TENSOR:
        _check_tensor(attribute.t, f"attribute '{attribute.name}' of {label}")


def _check_schema(node: NodeProto, opset: int, label: str) -> None:
    """Check the counts of inputs and outputs, and the attributes, by the operator's schema."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return  # It is listed with all other operators that are not supported.
    for what, count, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            raise damaged(f"{label} has {count} {what}, expected {least} to {most}")
    # Check that each input that is left out is an optional one: '' stands for those alone.
    for index, name in enumerate(node.input):
        if name:
            continue
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]  # the last may be any number
        if formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            raise damaged(
                f"{label} leaves out input {index} ('{formal.name}'), which {node.op_type} needs"
            )
    given = {a.name: a for a in node.attribute}
    parts = given["num_outputs"].i if "num_outputs" in given else len(node.output)
    if parts != len(node.output):  # onnx's shape inference makes room for all of them
        raise damaged(f"{label} has {len(node.output)} outputs, and says that it has {parts}")
    for name, known in schema.attributes.items():
        if known.required and name not in given:
            raise damaged(f"{label} lacks the attribute '{name}'")
    for name, attribute in given.items():
        wanted = schema.attributes.get(name)
        if wanted is None:
            raise damaged(f"{label} has an attribute '{name}', which {node.op_type} does not know")
        if wanted.type.value != attribute.type:
            raise damaged(
                f"attribute '{name}' of {label} is of type "
                f"{AttributeProto.AttributeType.Name(attribute.type)}, expected {wanted.type.name}"
            )


def _check_nested(node: NodeProto, opset: int, label: str) -> None:
    """Check that the graphs nested in If, Loop and Scan take and give as many as their node."""
    given = {a.name: a for a in node.attribute}
    takes, gives = len(node.input), len(node.output)
    if node.op_type == "If":
        takes = 0
    elif node.op_type == "Loop":
        gives += 1  # whether to go on
    elif node.op_type == "Scan":
        takes -= int(opset < _FIRST_SCAN_WITHOUT_LENGTHS)
        _check_scan(given, takes, gives, label)
    else:
        return
    for name in ("then_branch", "else_branch", "body"):
        if name not in given:
            continue
        body = given[name].g
        for what, count, wanted in (
            ("inputs", len(body.input), takes),
            ("outputs", len(body.output), gives),
        ):
            if count != wanted:
                raise damaged(
                    f"the {name.replace('_', ' ')} of {label} has {count} {what}, expected {wanted}"
                )


def _check_scan(given: dict[str, AttributeProto], takes: int, gives: int, label: str) -> None:
    scanned = given["num_scan_inputs"].i if "num_scan_inputs" in given else 0
    if not 0 < scanned <= takes:
        raise damaged(f"{label} scans {scanned} of its {takes} inputs")
    states = takes - scanned
    if states > gives:
        raise damaged(f"{label} has {states} states, and {gives} outputs")
    for name, attribute in given.items():
        wanted = gives - states if name.startswith("scan_output_") else scanned
        if attribute.type == AttributeProto.INTS and len(attribute.ints) not in (0, wanted):
            raise damaged(f"{label} has {len(attribute.ints)} {name}, expected {wanted}")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A node that cannot be imported, and why; the reason may be empty."""

    node: NodeProto
    reason: str


def find_refused(graph: OnnxGraph, known: Set[str]) -> tuple[list[Refused], frozenset[str]]:
    """Return the nodes that are refused, and the tensors that these make with all that is computed
    of them.

    They are refused for their operator, which is neither the standard's nor one of `known`, or for
    how it is used.  That cannot be told of nodes that read what refused ones make: those are not
    named."""
    refused: list[Refused] = []
    unknown: set[str] = set()
    for node in graph.nodes:
        every, first = list(all_nodes([node])), first_output(node)
        reason = graph.refusals.get(first, "")
        reads_unknown = any(not unknown.isdisjoint(inner.input) for inner in every)
        found = [Refused(node=inner, reason=reason) for inner in every if not is_standard(inner)]
        is_missing = is_standard(node) and node.op_type not in known
        if is_missing or (is_standard(node) and reason and not reads_unknown):
            found.append(Refused(node=node, reason=reason or REMEDIES.get(node.op_type, "")))
        if reads_unknown and first in graph.untold:
            found = []  # supported as far as anybody knows, and would bury those that are not
        refused += found
        if found or reads_unknown:
            unknown.update(name for name in node.output if name)
    return refused, frozenset(unknown)


_OF_ONE_CPU = "com.microsoft.nchwc"
"""Operators over blocks of 8 or 16 channels, as the CPU that wrote the file has lanes."""


def raise_refusals(
    graph: OnnxGraph, refused: Sequence[Refused], failed: Sequence[Refused] = ()
) -> None:
    """Raise one error that counts all refused nodes and names the first; nothing where none are.

    `failed` are nodes of known operators that are used as no translation covers. Raises
    CustomDomainError where some are outside of the standard; UnsupportedOperatorError where all are
    of the standard."""
    foreign = [one for one in refused if not is_standard(one.node)]
    missing = [one for one in refused if is_standard(one.node)]
    parts = [
        ("operators outside of the ONNX standard", foreign),
        ("operators not supported", missing),
        ("operators cannot be imported as it is used here", failed),
    ]
    kinds = [f"{what}: {_counts(nodes)}" for what, nodes in parts if nodes]
    if not kinds:
        return
    where = list_first(_describe(graph, one) for _, nodes in parts for one in nodes)
    message = f"{'; '.join(kinds)}; at {where}"
    if foreign:
        domains = {refused.node.domain for refused in foreign}
        hint = (
            "export without optimisation for one runtime, or cut these nodes off with "
            "onnx.utils.extract_model"
        )
        if domains == {"ai.onnx.ml"}:
            hint = (
                "export trees and other classical models in standard operators, as hummingbird-ml "
                "does, or leave them to onnxruntime"
            )
        elif _OF_ONE_CPU in domains:
            message = (
                f"{message}; onnxruntime optimised the file for one CPU, whose order of weights it "
                "has and does not tell"
            )
            hint = (
                "compile the .onnx file that it was made of; a plain .ort file of that: python -m "
                "onnxruntime.tools.convert_onnx_models_to_ort MODEL.onnx"
            )
        raise CustomDomainError(message, hint=hint)
    raise UnsupportedOperatorError(
        message,
        hint="cut the model before these nodes with onnx.utils.extract_model, or export it with "
        "other operators",
    )


def _counts(refused: Iterable[Refused]) -> str:
    nodes = [one.node for one in refused]
    kinds = Counter(n.op_type if is_standard(n) else f"{n.domain}.{n.op_type}" for n in nodes)
    return ", ".join(f"{kind} ({count}x)" for kind, count in sorted(kinds.items()))


def _describe(graph: OnnxGraph, one: Refused) -> str:
    """Return `'name' (float32 [1, 3], ?): why`: the operands by dtype and shape."""
    types = [graph.types.get(name) for name in one.node.input if name]
    dims = ["of unknown shape" if t is None or t.shape is None else list(t.shape) for t in types]
    pairs = zip(types, dims, strict=True)
    shown = ", ".join("?" if t is None else f"{t.dtype} {shape}" for t, shape in pairs)
    label = node_label(one.node) + (f" ({shown})" if shown else "")
    return label + (f": {one.reason}" if one.reason else "")


_COUNT = "how much it gives depends on data"

_RANDOM = ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_OF_TEXT = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")
REMEDIES = {
    **dict.fromkeys(_RANDOM, "it draws random numbers: make them an input"),
    **dict.fromkeys(_OF_TEXT, "it works on strings: prepare text before the model"),
    "Compress": f"{_COUNT}; with a constant condition it is a Gather, else multiply by a mask",
    "ImageDecoder": "it decodes files: decode before, and feed pixels",
    "Scan": "the number of its steps is not known: fix it by --shape",
    "Unique": f"{_COUNT}: give its input as an output, and do it on the CPU",
}
"""Operator -> the reason, and the nearest rewrite."""


AS_IT_IS = (
    "adrenoc compile MODEL --shape INPUT:1,... for each input compiles the graph as it is, for "
    "one length of its past"
)
"""What to type for a decoder whose attention is in no form that is known."""


@dataclass(kw_only=True)
class NotCovered:
    """Reasons, each with the attentions that it is the reason for."""

    others: list[str] = field(default_factory=list)
    """What is no single attention's."""
    _attentions: dict[str, list[str]] = field(default_factory=dict)

    def add(self, label: str, reason: RefusedError) -> None:
        """Note that an attention is in no form that is known."""
        self._attentions.setdefault(str(reason), []).append(label)

    def raise_if_any(self) -> None:
        """Say all of it. Raises UnsupportedOperatorError where there is anything to say."""
        found = [*self.others]
        found += [reason.format(_name(labels)) for reason, labels in self._attentions.items()]
        if found:
            raise UnsupportedOperatorError("; ".join(found), hint=AS_IT_IS)


def _name(labels: Sequence[str]) -> str:
    names = list_names(labels)
    return f"the attention {names}" if len(labels) == 1 else f"{len(labels)} attentions, {names},"
