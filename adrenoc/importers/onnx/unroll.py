"""Nested graphs of an ONNX node, written out: the branches of If, the steps of Scan and Loop.

A loop is unrolled one iteration at a time, since whether there is a next one may only be known
once the constants of the last one are folded.

Before → after:
    y = Scan(x: [3, 4])  {y_t = Relu(x_t)}      y_0 = Relu(x[0]); ...; y = Concat(y_0, y_1, y_2)

An If or a Compress that a constant decides is the branch or the Gather that it then is.

Before -> after:
    y = If(c) {then: Relu(x)} {else: Neg(x)}      c constant: y = Relu(x)
                                                  else: y = Where(c, Relu(x), Neg(x))

Both branches of a condition that is known at run time alone are computed: operators of ONNX have
no side effects, and the one that is not taken is dropped element by element, NaN included.

Exporters collect the results of a loop in a list.  Once the loop is unrolled, what is taken from
the list, or joined, is known, so that sequences are the tensors in them:
    s = SequenceInsert(SequenceInsert(SequenceEmpty(), a), b)
    y = ConcatFromSequence(s)                                   y = Concat(a, b)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from adrenoc.base.errors import ModelFormatError
from adrenoc.importers.onnx.graph import (
    OnnxGraph,
    TensorType,
    all_nodes,
    array_of,
    attributes,
    copy_node,
    damaged,
    first_output,
    node_label,
    tell_switches,
)

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
    graph: OnnxGraph,
    body: onnx.GraphProto,
    inputs: Sequence[str],
    prefix: str,
    known: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[NodeProto], list[str]]:
    """Return the nodes of a nested graph applied to `inputs`, and the names of its results.

    Names inside may repeat outside: they get `prefix`.  What is `known` inside is there already,
    under another name."""
    names = dict(zip((v.name for v in body.input), inputs, strict=True))
    for tensor in body.initializer:
        names[tensor.name] = prefix + tensor.name
        if tensor.name not in known:
            graph.set_constant(prefix + tensor.name, array_of(tensor))
    for node in body.node:
        names.update({name: prefix + name for name in node.output if name})
    names.update(known)
    nodes = []
    for original in body.node:
        if first_output(original) not in known:
            copy = copy_node(original)
            rename(copy, names)
            nodes.append(copy)
    return nodes, [names.get(value.name, value.name) for value in body.output]


def _find_steady(
    body: onnx.GraphProto,
    carried: Iterable[tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]],
    own: str,
) -> dict[str, str]:
    """Return what is the same in all steps, with its name in the first, where names begin with
    `own`: constants, and what is computed of them, of tensors outside, and of those of `carried`,
    pairs of an input and an output, that each step hands on as they are."""
    copies = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    moving = {value.name for value in body.input}
    for taken, given in carried:
        if taken.name in (given.name, copies.get(given.name)):
            moving.remove(taken.name)
    steady = {tensor.name: own + tensor.name for tensor in body.initializer}
    for node in body.node:
        if any(name in moving for inner in all_nodes([node]) for name in inner.input):
            moving.update(node.output)
        else:
            steady.update({name: own + name for name in node.output if name})
    return steady


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
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


_APART = (
    "make a loop's body a model of its own, compile that with --state for what it carries, and run "
    "it once a step"
)


def too_many(count: int) -> str:
    """Return why nested graphs of `count` nodes in all are refused, and what to do instead."""
    return (
        f"written out, the loops and branches are {count} nodes, expected up to {MOST_NODES}: "
        f"{_APART}"
    )


def too_long(steps: object) -> str:
    """Return why a loop of so many steps is refused, and what to do instead."""
    return f"it takes {steps} steps, expected up to {MOST_ITERATIONS}: {_APART}"


@dataclass(kw_only=True)
class Growth:
    """What nested graphs have become so far."""

    written: int = 0
    copied: int = 0

    def add(self, nodes: Sequence[NodeProto]) -> None:
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


def _grows_too_much(graph: OnnxGraph, scan: NodeProto, steps: int) -> bool:
    """Return whether so many steps of a Scan are too many; the reason is kept as its refusal."""
    body = next(a.g for a in scan.attribute if a.name == "body")
    held = sum(1 for _ in all_nodes(body.node))
    excess = Growth(written=steps * len(body.node), copied=steps * held).excess()
    if excess:
        graph.refusals[first_output(scan)] = excess
    return bool(excess)


def unroll_scan(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Return the nodes of all steps, or None where their number is not known or is too large."""
    if graph.opset < _FIRST_SCAN_OPSET:
        return _unroll_batches(graph, node)
    return _unroll_steps(graph, node, attributes(node))


def _unroll_steps(
    graph: OnnxGraph, node: NodeProto, attrs: Mapping[str, Any]
) -> list[NodeProto] | None:
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
    nodes: list[NodeProto] = []
    collected: list[list[str]] = [[] for _ in node.output[len(states) :]]
    carried, steady = len(states), dict[str, str]()
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
        made, results = instantiate(graph, body, [*states, *elements], own, steady)
        if not step:
            pairs = zip(body.input, body.output[:carried], strict=False)
            steady = _find_steady(body, pairs, own)
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
    graph: OnnxGraph, node: NodeProto, scanned: Sequence[str], axes: Sequence[int]
) -> int | None:
    """Return how many steps a Scan takes; None where that is not known or too many. Raises
    ModelFormatError where the tensors lack the axis, or differ along it."""
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


def _make_scan_error(node: NodeProto, what: str) -> ModelFormatError:
    return damaged(f"Scan {node_label(node)} goes {what}")


def _unroll_batches(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Return the steps of a Scan of opset 8, each batch on its own.

    None where lengths are given, or where there are too many batches. Raises ModelFormatError where
    the tensors have different numbers of batches."""
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
    nodes: list[NodeProto] = []
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


def stack(graph: OnnxGraph, names: Sequence[str], axis: int, result: str) -> list[NodeProto]:
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
    steady: dict[str, str] = field(default_factory=dict)
    """What the body computes that is the same in all iterations, with its name."""


def _cannot_go_on(graph: OnnxGraph, node: NodeProto, state: LoopState) -> str:
    """Return why it is not known whether a Loop goes on, or why it may not; empty otherwise."""
    limit, condition = node.input[:2]
    for name, what in ((limit, "its trip count"), (condition, "whether it goes on")):
        if name and name not in graph.constants:
            return f"{what} is computed at run time{tell_switches(graph, name)}"
    if state.iteration < MOST_ITERATIONS:
        return ""
    return too_long(graph.scalar(limit) if limit else f"more than {MOST_ITERATIONS}")


def unroll_loop(graph: OnnxGraph, node: NodeProto, state: LoopState) -> list[NodeProto] | None:
    """Return the nodes of the next iteration and the loop again, or those of its end. None where it
    is not known whether there is a next iteration, or there are too many."""
    body = attributes(node)["body"]
    limit, condition = node.input[0], node.input[1]
    carried = list(node.input[2:])
    unknown = _cannot_go_on(graph, node, state)
    if unknown:
        graph.refusals[first_output(node)] = unknown
        return None
    if limit and isinstance(graph.scalar(limit), float):
        raise damaged(
            f"Loop {node_label(node)} has a trip count of {graph.scalar(limit)}, expected a whole "
            "number"
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
            graph, body, [f"{own}number", condition or f"{own}go", *carried], own, state.steady
        )
        if not state.iteration:
            pairs = zip(body.input[2:], body.output[1:], strict=False)
            state.steady = _find_steady(body, pairs, own)
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


def inline_branch(graph: OnnxGraph, node: NodeProto, prefix: str) -> list[NodeProto]:
    """Return the nodes of the branch that a constant condition takes. Names inside get `prefix`,
    which may be empty where they are no others of the graph."""
    nodes, results = instantiate(graph, _branch(node, branch_taken(graph, node)), (), prefix)
    for source, name in zip(results, node.output, strict=True):
        if source != name:
            nodes.append(helper.make_node("Identity", [source], [name]))
    return nodes


def branch_taken(graph: OnnxGraph, node: NodeProto) -> str:
    """Return the attribute that holds the branch which a constant condition takes."""
    taken = bool(graph.scalar(node.input[0]))
    return "then_branch" if taken else "else_branch"


def select_branches(graph: OnnxGraph, node: NodeProto, prefix: str) -> list[NodeProto]:
    """Return the nodes of both branches, and a Where for each output. The last ones take inputs
    whose types only the walk over the first ones finds; `can_select` judges them then."""
    condition = f"{prefix}condition"
    graph.set_constant(f"{prefix}scalar", np.zeros(0, np.int64))
    nodes = [helper.make_node("Reshape", [node.input[0], f"{prefix}scalar"], [condition])]
    sides = []
    for key in ("then_branch", "else_branch"):
        made, results = instantiate(graph, _branch(node, key), (), f"{prefix}{key}/")
        nodes += made
        sides.append(results)
    for name, *pair in zip(node.output, *sides, strict=True):
        if name:
            nodes.append(helper.make_node("Where", [condition, *pair], [name]))
    return nodes


def can_select(graph: OnnxGraph, where: NodeProto) -> str:
    """Return why a Where of `select_branches` cannot choose its tensors; empty where it can."""
    types = [graph.types.get(name) for name in where.input[1:]]
    if any(t is None or t.shape is None for t in types):
        return "its condition is known at run time alone, and the shape of a branch is not known"
    one, other = types
    if one == other:
        return ""
    shown = " and ".join(f"{t.dtype} {list(t.shape or ())}" for t in types if t is not None)
    return (
        f"its condition is known at run time alone, and its branches give '{where.output[0]}' as "
        f"{shown}: let both give one shape"
    )


def _branch(node: NodeProto, key: str) -> onnx.GraphProto:
    return next(a.g for a in node.attribute if a.name == key)


def compress_as_gather(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Return Compress with a constant condition as the Gather that it then is, else None."""
    condition = graph.constants.get(node.input[1])
    if condition is None:
        return None
    prefix = f"{first_output(node)}/taken"
    graph.set_constant(prefix, np.flatnonzero(condition))
    axis, source, nodes = attributes(node).get("axis"), node.input[0], []
    if axis is None:
        graph.set_constant(f"{prefix}/flat", np.array([-1], np.int64))
        flat = f"{prefix}/from"
        nodes = [helper.make_node("Reshape", [source, f"{prefix}/flat"], [flat])]
        source, axis = flat, 0
    gather = helper.make_node("Gather", [source, prefix], [node.output[0]], axis=axis)
    return [*nodes, gather]


Nodes = list[NodeProto]


def resolve_sequence(graph: OnnxGraph, node: NodeProto) -> Nodes | None:
    """Return the nodes in place of one that reads a sequence; None for those that stay.

    Nodes that make sequences are noted and stay: nobody needs them once all readers are resolved,
    and what still needs them is refused by their names."""
    if any(name in graph.sequences for name in node.output):
        return None
    rule = _RULES.get(node.op_type)
    return None if rule is None else rule(graph, node)


def _construct(graph: OnnxGraph, node: NodeProto) -> None:
    graph.sequences[node.output[0]] = tuple(node.input)


def _insert(graph: OnnxGraph, node: NodeProto) -> None:
    held = graph.sequences.get(node.input[0])
    at = None if held is None else _position(graph, node, 2, len(held), len(held))
    if held is not None and at is not None:
        graph.sequences[node.output[0]] = (*held[:at], node.input[1], *held[at:])


def _erase(graph: OnnxGraph, node: NodeProto) -> None:
    held = graph.sequences.get(node.input[0])
    at = None if not held else _position(graph, node, 1, len(held) - 1, len(held))
    if held is not None and at is not None and at < len(held):
        graph.sequences[node.output[0]] = (*held[:at], *held[at + 1 :])


def _sequence_at(graph: OnnxGraph, node: NodeProto) -> Nodes | None:
    held = graph.sequences.get(node.input[0])
    at = None if not held else _position(graph, node, 1, len(held), len(held))
    if held is None or at is None or at == len(held):
        return None
    return [helper.make_node("Identity", [held[at]], [node.output[0]])]


def _length(graph: OnnxGraph, node: NodeProto) -> Nodes | None:
    held = graph.sequences.get(node.input[0])
    if held is None:
        return None
    graph.set_constant(node.output[0], np.array(len(held), np.int64))
    return []


def _concat(graph: OnnxGraph, node: NodeProto) -> Nodes | None:
    held = graph.sequences.get(node.input[0])
    if not held:
        return None
    attrs = attributes(node)
    axis = attrs["axis"]
    if attrs.get("new_axis", 0):
        return stack(graph, held, axis, node.output[0])
    return [helper.make_node("Concat", held, [node.output[0]], axis=axis)]


def _split(graph: OnnxGraph, node: NodeProto) -> Nodes | None:
    """Take one part for each element of the axis, or for each size that is given."""
    shape, attrs = graph.shape_of(node.input[0]), attributes(node)
    axis = attrs.get("axis", 0)
    if not shape or not -len(shape) <= axis < len(shape):
        return None
    total = shape[axis]
    given = node.input[1] if len(node.input) > 1 else ""
    if given and given not in graph.constants:
        return None
    if given:
        sizes = graph.constants[given]
        chunk = max(1, int(sizes.reshape(-1)[0])) if not sizes.shape else 0
        cuts = range(chunk, total, chunk) if chunk else np.cumsum(sizes)[:-1].tolist()
    else:
        cuts = range(1, total)
    if len(cuts) >= MOST_ITERATIONS:
        return None
    parts, nodes = [], []
    for index, (begin, end) in enumerate(zip((0, *cuts), (*cuts, total), strict=True)):
        parts.append(f"{node.output[0]}/part{index}")
        single = not given and not attrs.get("keepdims", 1)
        place = np.array(index) if single else np.arange(begin, end)
        graph.set_constant(f"{parts[-1]}/at", place)
        operands = [node.input[0], f"{parts[-1]}/at"]
        nodes.append(helper.make_node("Gather", operands, [parts[-1]], axis=axis))
    graph.sequences[node.output[0]] = tuple(parts)
    return [*nodes, node]


def _position(
    graph: OnnxGraph, node: NodeProto, index: int, default: int, length: int
) -> int | None:
    """Return the position that an input says, from 0 to `length`; None where that is not known."""
    name = node.input[index] if index < len(node.input) else ""
    if not name:
        return default
    if name not in graph.constants:
        return None
    at = int(graph.scalar(name))
    at = at + length if at < 0 else at
    return at if 0 <= at <= length else None


_RULES: dict[str, Callable[[OnnxGraph, NodeProto], Nodes | None]] = {
    "ConcatFromSequence": _concat,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
