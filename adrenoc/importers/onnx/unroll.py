"""Nested graphs of an ONNX node, written out: the branches of If, the steps of Scan and Loop.

A loop is unrolled one iteration at a time, since whether there is a next one may only be known
once the constants of the last one are folded.

Before → after:
    y = Scan(x: [3, 4])  {y_t = Relu(x_t)}      y_0 = Relu(x[0]); ...; y = Concat(y_0, y_1, y_2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.errors import ModelFormatError
from adrenoc.importers.onnx.graph import (
    OnnxGraph,
    TensorType,
    all_nodes,
    array_of,
    attributes,
    copy_node,
    first_output,
    node_label,
)
from adrenoc.importers.onnx.switches import tell_switches

MOST_ITERATIONS = 1024
"""Longer loops stay, and are then refused: each iteration becomes kernels of its own."""

MOST_NODES = 20_000
"""The most nodes that the nested graphs of a model may be written out to."""

MOST_COPIED = 200_000
"""Nodes that writing them out may copy, with all that these hold: of branches that hold two each,
ten levels are a thousand nodes, of which a loop gets to ten and copies all on each trip."""

_FIRST_SCAN_OPSET = 9
"""Before, Scan had an axis of batches that each run by themselves."""


def instantiate(
    graph: OnnxGraph, body: onnx.GraphProto, inputs: Sequence[str], prefix: str
) -> tuple[list[onnx.NodeProto], list[str]]:
    """Return the nodes of a nested graph applied to `inputs`, and the names of its results.

    Names inside may repeat outside: they get `prefix`.
    """
    names = dict(zip((v.name for v in body.input), inputs, strict=True))
    for tensor in body.initializer:
        names[tensor.name] = prefix + tensor.name
        graph.set_constant(prefix + tensor.name, array_of(tensor))
    for node in body.node:
        names.update({name: prefix + name for name in node.output if name})
    nodes = []
    for original in body.node:
        copy = copy_node(original)
        rename(copy, names)
        nodes.append(copy)
    return nodes, [names.get(value.name, value.name) for value in body.output]


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename tensors in a node and in the graphs nested in it."""
    for field_ in (node.input, node.output):
        for index, name in enumerate(field_):
            field_[index] = names.get(name, name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                rename(inner, names)
            for value in attribute.g.output:
                value.name = names.get(value.name, value.name)


def too_many(count: int) -> str:
    """Return why nested graphs of `count` nodes in all are refused."""
    return f"written out, the loops and branches are {count} nodes, expected up to {MOST_NODES}"


def too_long(steps: object) -> str:
    """Return why a loop of so many steps is refused, and what to do instead."""
    return (
        f"it takes {steps} steps, expected up to {MOST_ITERATIONS}: make its body a model of its "
        "own, compile that with --state for what it carries, and run it once a step"
    )


@dataclass(kw_only=True)
class Growth:
    """What nested graphs have become so far."""

    written: int = 0
    copied: int = 0

    def add(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Count nodes that take the place of one."""
        self.written += len(nodes)
        self.copied += sum(1 for _ in all_nodes(nodes))

    def excess(self) -> str:
        """Return why no more may be written out; empty while it may."""
        if self.written > MOST_NODES:
            return too_many(self.written)
        if self.copied > MOST_COPIED:
            return (
                f"the loops and branches hold each other: {self.copied} nodes are "
                f"copied for each trip and branch, expected up to {MOST_COPIED}"
            )
        return ""


def _grows_too_much(graph: OnnxGraph, scan: onnx.NodeProto, steps: int) -> bool:
    """Return whether so many steps of a Scan are too many; the reason is kept as its refusal."""
    body = next(a.g for a in scan.attribute if a.name == "body")
    held = sum(1 for _ in all_nodes(body.node))
    excess = Growth(written=steps * len(body.node), copied=steps * held).excess()
    if excess:
        graph.refusals[first_output(scan)] = excess
    return bool(excess)


def unroll_scan(graph: OnnxGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return the nodes of all steps, or None where their number is not known or is too large."""
    if graph.opset < _FIRST_SCAN_OPSET:
        return _unroll_batches(graph, node)
    return _unroll_steps(graph, node, attributes(node))


def _unroll_steps(
    graph: OnnxGraph, node: onnx.NodeProto, attrs: Mapping[str, Any]
) -> list[onnx.NodeProto] | None:
    body: onnx.GraphProto = attrs["body"]
    count = int(attrs["num_scan_inputs"])
    states, scanned = list(node.input[:-count]), list(node.input[-count:])
    in_axes = list(attrs.get("scan_input_axes") or [0] * count)
    backwards = list(attrs.get("scan_input_directions") or [0] * count)
    steps = _steps(graph, node, scanned, in_axes)
    if steps is None:
        return None
    if _grows_too_much(graph, node, steps):
        return None
    prefix = f"{node.output[0] or node.output[-1]}/scan/"
    nodes: list[onnx.NodeProto] = []
    collected: list[list[str]] = [[] for _ in node.output[len(states) :]]
    for step in range(steps):
        own = f"{prefix}{step}/"
        elements = []
        for index, (name, axis, backward) in enumerate(
            zip(scanned, in_axes, backwards, strict=True)
        ):
            position = f"{own}at{index}"
            graph.set_constant(position, np.array(steps - 1 - step if backward else step))
            elements.append(f"{own}in{index}")
            nodes.append(helper.make_node("Gather", [name, position], [elements[-1]], axis=axis))
        made, results = instantiate(graph, body, [*states, *elements], own)
        nodes += made
        states = results[: len(states)]
        for outputs, name in zip(collected, results[len(states) :], strict=True):
            outputs.append(name)
    out_axes = list(attrs.get("scan_output_axes") or [0] * len(collected))
    reversed_ = list(attrs.get("scan_output_directions") or [0] * len(collected))
    for outputs, axis, backward, name in zip(
        collected, out_axes, reversed_, node.output[len(states) :], strict=True
    ):
        if name:
            nodes += stack(graph, outputs[::-1] if backward else outputs, axis, name)
    for name, state in zip(node.output, states, strict=False):
        if name:
            nodes.append(helper.make_node("Identity", [state], [name]))
    return nodes


def _steps(
    graph: OnnxGraph, node: onnx.NodeProto, scanned: Sequence[str], axes: Sequence[int]
) -> int | None:
    """Return how many steps a Scan takes; None where that is not known or too many.

    Raises:
        ModelFormatError: the tensors lack the axis, or differ along it.
    """
    found = set()
    for name, axis in zip(scanned, axes, strict=True):
        shape = graph.shape_of(name)
        if shape is None:
            return None
        rank = len(shape)
        if not -rank <= axis < rank:
            raise _make_scan_error(node, f"along axis {axis} of '{name}', which has {rank} axes")
        found.add(shape[axis])
    if len(found) != 1:
        raise _make_scan_error(node, f"tensors of {sorted(found)} elements at once")
    steps = found.pop()
    if steps > MOST_ITERATIONS:
        graph.refusals[first_output(node)] = too_long(steps)
    return steps if 0 < steps <= MOST_ITERATIONS else None


def _make_scan_error(node: onnx.NodeProto, what: str) -> ModelFormatError:
    return ModelFormatError(
        f"Scan {node_label(node)} goes {what}",
        hint="check the model: python -m onnx.bin.checker MODEL",
    )


def _unroll_batches(graph: OnnxGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return the steps of a Scan of opset 8, each batch on its own.

    None where lengths are given, or where there are too many batches.

    Raises:
        ModelFormatError: the tensors have different numbers of batches.
    """
    types = [graph.types.get(name) for name in node.input[1:]]
    shapes = [t.shape for t in types if t is not None and t.shape is not None]
    if node.input[0] or len(shapes) != len(types) or not shapes or not all(shapes):
        return None
    batches = {shape[0] for shape in shapes}
    if len(batches) > 1:
        raise _make_scan_error(node, f"over {sorted(batches)} batches at once")
    scanned = shapes[-int(attributes(node)["num_scan_inputs"]) :]
    steps = max((shape[1] for shape in scanned if len(shape) > 1), default=0)
    if shapes[0][0] > MOST_ITERATIONS or _grows_too_much(graph, node, shapes[0][0] * steps):
        return None
    prefix = f"{next(n for n in node.output if n)}/scan/batch"
    nodes: list[onnx.NodeProto] = []
    results: list[list[str]] = [[] for _ in node.output]
    for batch in range(shapes[0][0]):
        own = f"{prefix}{batch}/"
        graph.set_constant(f"{own}at", np.array(batch, np.int64))
        taken = [f"{own}in{index}" for index in range(len(types))]
        for name, source, known in zip(taken, node.input[1:], types, strict=True):
            nodes.append(helper.make_node("Gather", [source, f"{own}at"], [name], axis=0))
            if known is not None and known.shape is not None:
                graph.types[name] = TensorType(element=known.element, shape=known.shape[1:])
        outputs = [f"{own}out{index}" for index in range(len(node.output))]
        scan = helper.make_node("Scan", taken, outputs)
        for attribute in node.attribute:
            scan.attribute.add().CopyFrom(attribute)
            if attribute.name == "directions":
                scan.attribute[-1].name = "scan_input_directions"
        made = _unroll_steps(graph, scan, attributes(scan))
        if made is None:
            return None
        nodes += made
        for collected, name in zip(results, outputs, strict=True):
            collected.append(name)
    for collected, name in zip(results, node.output, strict=True):
        if name:
            nodes += stack(graph, collected, 0, name)
    return nodes


def stack(graph: OnnxGraph, names: Sequence[str], axis: int, result: str) -> list[onnx.NodeProto]:
    """Join tensors along a new axis."""
    axes = f"{result}/stack/axis"
    graph.set_constant(axes, np.array([axis], np.int64))
    nodes, parts = [], []
    for index, name in enumerate(names):
        parts.append(f"{result}/stack/{index}")
        if graph.opset < 13:  # the axes were an attribute
            nodes.append(helper.make_node("Unsqueeze", [name], [parts[-1]], axes=[axis]))
        else:
            nodes.append(helper.make_node("Unsqueeze", [name, axes], [parts[-1]]))
    return [*nodes, helper.make_node("Concat", parts, [result], axis=axis)]


@dataclass(kw_only=True)
class LoopState:
    """How far the unrolling of a Loop has come."""

    iteration: int = 0
    collected: list[list[str]] = field(default_factory=list)


def _cannot_go_on(graph: OnnxGraph, node: onnx.NodeProto, state: LoopState) -> str:
    """Return why it is not known whether a Loop goes on, or why it may not; empty otherwise."""
    limit, condition = node.input[:2]
    for name, what in ((limit, "its trip count"), (condition, "whether it goes on")):
        if name and name not in graph.constants:
            return f"{what} is computed at run time{tell_switches(graph, name)}"
    if state.iteration < MOST_ITERATIONS:
        return ""
    return too_long(graph.scalar(limit) if limit else f"more than {MOST_ITERATIONS}")


def unroll_loop(
    graph: OnnxGraph, node: onnx.NodeProto, state: LoopState
) -> list[onnx.NodeProto] | None:
    """Return the nodes of the next iteration and the loop again, or those of its end.

    None where it is not known whether there is a next iteration, or there are too many.
    """
    body = attributes(node)["body"]
    limit, condition = node.input[0], node.input[1]
    carried = list(node.input[2:])
    unknown = _cannot_go_on(graph, node, state)
    if unknown:
        graph.refusals[first_output(node)] = unknown
        return None
    if limit and isinstance(graph.scalar(limit), float):
        raise ModelFormatError(
            f"Loop {node_label(node)} has a trip count of {graph.scalar(limit)}, expected a whole "
            "number",
            hint="check the model: python -m onnx.bin.checker MODEL",
        )
    goes_on = not condition or bool(graph.scalar(condition))
    if limit and state.iteration >= int(graph.scalar(limit)):
        goes_on = False
    if not state.collected:
        state.collected = [[] for _ in node.output[len(carried) :]]
    if goes_on:
        own = f"{node.output[0] or node.output[-1]}/loop/{state.iteration}/"
        graph.set_constant(f"{own}number", np.array(state.iteration, np.int64))
        graph.set_constant(f"{own}go", np.array(True))
        nodes, results = instantiate(
            graph, body, [f"{own}number", condition or f"{own}go", *carried], own
        )
        state.iteration += 1
        for outputs, name in zip(state.collected, results[1 + len(carried) :], strict=True):
            outputs.append(name)
        again = copy_node(node)
        again.input[1:] = results[: 1 + len(carried)]
        return [*nodes, again]
    nodes = []
    for name, value in zip(node.output, carried, strict=False):
        if name:
            nodes.append(helper.make_node("Identity", [value], [name]))
    for outputs, name in zip(state.collected, node.output[len(carried) :], strict=True):
        if name and not outputs:
            graph.refusals[first_output(node)] = f"it takes no step, so that '{name}' is empty"
            return None
        if name:
            nodes += stack(graph, outputs, 0, name)
    return nodes
