"""Make the message of an ONNX file the graph that the importer works on, with static inputs.

Before -> after:
    F(a) = Relu(Neg(a)); y = F(x)       functions that the model defines for itself are inlined:
                                        n = Neg(x); y = Relu(n)
    logits, present = If(use_cache_branch) {then: with past} {else: without}
                                        of a decoder with two graphs the nodes of `then` are taken
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.decoder_names import PAST_BRANCH
from adrenoc.importers.fixed_inputs import fill_ports, tell_fixed
from adrenoc.importers.onnx.branch import branch_taken, inline_branch
from adrenoc.importers.onnx.graph import (
    STANDARD_DOMAINS,
    OnnxGraph,
    TensorType,
    all_nodes,
    copy_node,
    load_constants,
)
from adrenoc.importers.onnx_wire import MOST_NODES
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


Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto, log: DecisionLog) -> onnx.ModelProto:
    """`model` with its own functions inlined.

    Raises:
        ModelFormatError: one calls itself, or they grow out of measure.
    """
    from onnx import checker, inliner, version_converter

    _check_sizes(model)
    names = list_first(sorted({f.name for f in model.functions}), between=", ")
    log.add("graph", "inlined its functions", f"it defines {names}")
    try:
        # A function may be of another opset than its model: `True` brings it to the model's.
        inlined = inliner.inline_local_functions(model, True)
        as_written = inliner.inline_local_functions(_with_one_opset(model))
    except (
        RuntimeError,
        ValueError,
        checker.ValidationError,
        version_converter.ConvertError,
    ) as error:
        raise _make_error(f"the functions of the model cannot be inlined: {error}") from error
    if _forms(inlined) != _forms(as_written):
        raise _make_error(
            f"among the functions of the model ({names}) are some of another opset than the "
            "model's, in which their operators mean something else; ONNX wants them alike"
        )
    return inlined


def _with_one_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions said to be of its own opsets, as onnxruntime takes
    them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    versions = {one.domain: one.version for one in model.opset_import}
    for function in copy.functions:
        for one in function.opset_import:
            one.version = versions.get(one.domain, one.version)
    return copy


def _forms(model: onnx.ModelProto) -> list[tuple[str, list[bytes]]]:
    """Operators and attributes, in order."""
    return [
        (node.op_type, [a.SerializeToString() for a in node.attribute if not a.HasField("g")])
        for node in all_nodes(model.graph.node)
    ]


def _check_sizes(model: onnx.ModelProto) -> None:
    """Check that no function calls itself, and that inlining ends with a model of some size."""
    bodies = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    sizes: dict[Key, int] = {}
    for key in bodies:
        path = [key]
        while path:  # depth first, without recursion
            called = [k for k in map(_key, all_nodes(bodies[path[-1]])) if k in bodies]
            missing = next((k for k in called if k not in sizes), None)
            if missing is None:
                sizes[path[-1]] = _size(bodies[path[-1]], sizes)
                path.pop()
            elif missing in path:
                raise _make_error(f"the function '{missing[1]}' of the model calls itself")
            else:
                path.append(missing)
    # Thirty that call each other twice are 2^30.
    count = _size(model.graph.node, sizes)
    if count > MOST_NODES:
        raise _make_error(
            f"the model has {count} nodes with its functions inlined, expected up to {MOST_NODES}"
        )


def _size(nodes: Iterable[onnx.NodeProto], sizes: dict[Key, int]) -> int:
    return sum(sizes.get(_key(node), 1) for node in all_nodes(nodes))


def _key(node: onnx.NodeProto) -> Key:
    return (node.domain, node.op_type, node.overload)


def _make_error(text: str) -> ModelFormatError:
    return ModelFormatError(text, hint="check the model: python -m onnx.bin.checker MODEL")


def take_past_branch(graph: OnnxGraph) -> None:
    """Fix the input that chooses, and have the nodes of the branch with a past in `graph`.

    A past of no rows is what the other branch is for.
    """
    if PAST_BRANCH not in graph.constants and all(s.name != PAST_BRANCH for s in graph.inputs):
        return
    graph.inputs = [spec for spec in graph.inputs if spec.name != PAST_BRANCH]
    graph.set_constant(PAST_BRANCH, np.array([True]))
    nodes, taken = [], "is true"
    for node in graph.nodes:
        if node.op_type == "If" and node.input[0] == PAST_BRANCH:
            taken = f"is true: the {branch_taken(graph, node).replace('_', ' ')} alone is compiled"
            nodes += inline_branch(graph, node, "")
        else:
            nodes.append(node)
    graph.nodes = nodes
    reason = "it computes the first tokens too, over a past of no rows"
    graph.log.add(PAST_BRANCH, taken, reason)
