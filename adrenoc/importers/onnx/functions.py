"""Functions that an ONNX model defines for itself, inlined.

Before -> after:
    F(a) = Relu(Neg(a)); y = F(x)        n = Neg(x); y = Relu(n)
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.text.spelling import list_first
from adrenoc.importers.onnx.graph import all_nodes
from adrenoc.importers.onnx_wire import MOST_NODES

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
