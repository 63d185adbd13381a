"""From the message of an ONNX file to the graph that the importer works on, with static inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.importers.fixed_inputs import fill_ports, tell_fixed
from adrenoc.importers.onnx.graph import (
    STANDARD_DOMAINS,
    OnnxGraph,
    TensorType,
    all_nodes,
    copy_node,
    load_constants,
)
from adrenoc.importers.shapes import OpenInputs, fix_input_shapes, write_options
from adrenoc.importers.signature import ports_of

OPSET_OF_OURS = 17
"""What is written in place of other domains' operators, where the model names no opset."""


def opset_of(model: onnx.ModelProto) -> int:
    """Return the opset of the standard's operators; one of ours where a model has none of them."""
    versions = [o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS]
    nodes = [*model.graph.node, *(node for one in model.functions for node in one.node)]
    has_standard = any(node.domain in STANDARD_DOMAINS for node in all_nodes(nodes))
    return max(versions, default=1 if has_standard else OPSET_OF_OURS)


def prepare(
    model: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Sequence[tuple[str, str]],
    log: DecisionLog,
    suggest: Callable[[OpenInputs], str] = write_options,
) -> OnnxGraph:
    """Return the graph with static shapes of its inputs; what is assumed of these goes into `log`.

    `weights` are initialisers that `model` lacks the data of.  Inputs that are `fixed` are
    constants.  `suggest` writes the hint of an error for inputs whose
    shapes stay open.

    Raises:
        ShapeError: a shape is missing or does not fit.
        ModelFormatError: an output is computed by nothing.
        OptionError: an input that is fixed is unknown, or takes no such value.
    """
    source = model.graph
    settings = fill_ports(ports_of(source), tuple(fixed))
    forms = {**shapes, **{name: array.shape for name, array in settings.items()}}
    inputs, assumed = fix_input_shapes(source, forms, suggest)
    graph = OnnxGraph(
        nodes=[copy_node(node) for node in source.node],
        inputs=inputs,
        outputs=[value.name for value in source.output],
        opset=opset_of(model),
        log=log,
    )
    elements = {value.name: value.type.tensor_type.elem_type for value in source.input}
    for spec in graph.inputs:
        graph.types[spec.name] = TensorType(element=elements[spec.name], shape=spec.shape)
        if spec.name in settings:
            graph.set_constant(spec.name, settings[spec.name])
        elif 0 in spec.shape:  # it holds nothing, which makes it a constant
            graph.set_constant(spec.name, np.empty(spec.shape, spec.dtype))
    graph.inputs = [spec for spec in graph.inputs if spec.name not in graph.constants]
    for name, value in load_constants(source, weights).items():
        graph.set_constant(name, value)
    made = {*graph.types, *(name for node in source.node for name in node.output)}
    for name in graph.outputs:
        if name not in made:
            raise ModelFormatError(
                f"the graph promises the output '{name}', but no node computes it",
                hint="export the model again",
            )
    log.extend([*assumed, *tell_fixed(settings, fixed)])
    _tell_left_out(source, graph)
    return graph


def _tell_left_out(source: onnx.GraphProto, graph: OnnxGraph) -> None:
    known = {spec.name for spec in graph.inputs} | {tensor.name for tensor in source.initializer}
    for name in (value.name for value in source.input if value.name not in known):
        shape = graph.shape_of(name) or ()
        if 0 in shape:
            graph.log.add(name, "left the input out", f"its shape {list(shape)} holds no element")
