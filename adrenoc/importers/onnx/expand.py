"""Expands operators by the function bodies that the ONNX standard gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

import onnx

from adrenoc.importers.onnx.graph import OnnxGraph, copy_node, is_standard
from adrenoc.importers.onnx.unroll import rename


def expand_standard_functions(graph: OnnxGraph, op_types: Set[str]) -> dict[str, int]:
    """Replace, in place, nodes of `op_types` that have a function body; count them by type."""
    expanded: Counter[str] = Counter()
    nodes: list[onnx.NodeProto] = []
    for node in graph.nodes:
        wanted = is_standard(node) and (node.op_type in op_types or _has_statistics(node))
        schema = _schema(graph, node) if wanted else None
        body = _body(graph, node, schema) if schema is not None else None
        if schema is None or body is None:
            nodes.append(node)
            continue
        expanded[node.op_type] += 1
        nodes.extend(_instantiate(node, schema, body, f"{node.output[0]}/{node.op_type}/"))
    graph.nodes = nodes
    return dict(expanded)


def _has_statistics(node: onnx.NodeProto) -> bool:
    """Return whether a norm also gives the mean and the deviation, which no norm kernel does."""
    return node.op_type == "LayerNormalization" and any(node.output[1:])


def is_defined(graph: OnnxGraph, node: onnx.NodeProto) -> bool:
    """Return whether the standard defines a node by other operators, in the version that the file
    asks for."""
    if not is_standard(node):
        return False
    schema = _schema(graph, node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(graph: OnnxGraph, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(node.op_type, graph.opset, "")
    except onnx.defs.SchemaError:
        return None


def _body(
    graph: OnnxGraph, node: onnx.NodeProto, schema: onnx.defs.OpSchema
) -> onnx.FunctionProto | None:
    data = b""
    if schema.has_function:
        version = _newest(schema.function_opset_versions, graph.opset)
        data = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        if any(name and name not in graph.types for name in node.input):
            return None  # onnx reads beyond what it is given where a type is not known
        types = [
            graph.types[name].to_proto().SerializeToString() if name in graph.types else b""
            for name in node.input
        ]
        data = schema.get_context_dependent_function_with_opset_version(
            _newest(schema.context_dependent_function_opset_versions, graph.opset),
            node.SerializeToString(),
            types,
        )
    return onnx.FunctionProto.FromString(data) if data else None


def _newest(versions: Sequence[int], opset: int) -> int:
    """Return the newest of `versions` that holds for `opset`."""
    return max((v for v in versions if v <= opset), default=opset)


def _instantiate(
    node: onnx.NodeProto, schema: onnx.defs.OpSchema, body: onnx.FunctionProto, prefix: str
) -> list[onnx.NodeProto]:
    formal = dict(zip(body.input, node.input, strict=False))
    formal.update(zip(body.output, node.output, strict=False))
    for name in body.input[len(node.input) :]:
        formal[name] = ""  # An optional input that the caller leaves out.
    defaults = [a.default_value for a in schema.attributes.values() if a.default_value.name]
    given = {a.name: a for a in (*defaults, *body.attribute_proto, *node.attribute)}
    names = {name: prefix + name for inner in body.node for name in inner.output if name}
    names.update(formal)
    result = []
    for template in body.node:
        copy = copy_node(template)
        rename(copy, names)
        _fill_in(copy, given)
        result.append(copy)
    return result


def _fill_in(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to the function's attributes by their values, in nested graphs too."""
    kept = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _fill_in(inner, given)
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif attribute.ref_attr_name in given:
            value = onnx.AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            kept.append(value)
    kept = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(kept)
