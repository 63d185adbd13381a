"""Finds the inputs of a model that alone decide an If: settings, such as a rate or a flag."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx

from adrenoc.importers.onnx.graph import OnnxGraph

_MOST_NODES = 64
"""Behind a condition that is a setting's there are few."""

_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def find_switches(
    condition: str,
    makers: Mapping[str, onnx.NodeProto],
    inputs: Collection[str],
    value_of: Callable[[str], np.ndarray | None],
) -> dict[str, str]:
    """Return the inputs that a condition is computed of, each with a value that it is compared
    with.

    `inputs` are those of one number.  The value is empty where nothing says one.  None are found
    where the condition hangs on more than these and constants, or on a long computation.
    """
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
        if maker is None or len(seen) > _MOST_NODES or _has_graph(maker):
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

    `weights` are the initialisers that the graph lacks the data of.
    """
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


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") for attribute in node.attribute)


def _compared(
    node: onnx.NodeProto,
    makers: Mapping[str, onnx.NodeProto],
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


def _behind(name: str, makers: Mapping[str, onnx.NodeProto], inputs: Collection[str]) -> str:
    """Return what a tensor is a copy of, in another type or shape."""
    while name not in inputs and (maker := makers.get(name)) is not None:
        if maker.op_type not in ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
            break
        name = maker.input[0]
    return name


def tell_switches(graph: OnnxGraph, condition: str) -> str:
    """Return the end of a sentence with the options that decide a condition or a count, where
    inputs alone do."""
    makers = {name: one for one in graph.nodes for name in one.output}
    inputs = {spec.name for spec in graph.inputs if math.prod(spec.shape) == 1}
    found = find_switches(condition, makers, inputs, graph.constants.get)
    return f"; {write_switches(found)} decides it" if found else ""
