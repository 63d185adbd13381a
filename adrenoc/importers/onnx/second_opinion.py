"""Ask onnxruntime about one node, where it is installed: onnx's own tools have faults.

Its reference fails on valid nodes (on GatherElements where the index is shorter than the data), and
so does its inference.  Where two implementations refuse a node, the model is wrong; where one does,
that one may be.  Where both compute a node, and otherwise, a decision says which of them is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from adrenoc.base.host.onnx_runtime import import_onnxruntime
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, attributes
from adrenoc.importers.onnx.session import open_session, runtime_errors

_NO_VERDICT = ("NotImplemented", "NoSuchFile", "EPFail")
"""Names of its exceptions that say nothing of the node: it has no kernel for it."""


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """The values or the types of the node's results by name; `refusal` is why there are none.

    All are empty where it has no opinion: it is not installed, or lacks the operator.
    """

    values: Mapping[str, np.ndarray] | None = None
    types: Mapping[str, TensorType] | None = None
    refusal: str = ""


def compute_node(node: onnx.NodeProto, feeds: Mapping[str, np.ndarray], opset: int) -> Opinion:
    """Return the results of a node on constants."""
    types = {
        name: TensorType(
            element=onnx.helper.np_dtype_to_tensor_dtype(value.dtype), shape=value.shape
        )
        for name, value in feeds.items()
    }
    return _ask(node, types, feeds, opset, run=True)


def infer_node(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray],
    opset: int,
) -> Opinion:
    """Return the types of the results of a node; the values of `constants` are known."""
    return _ask(node, types, constants, opset, run=False)


def _ask(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    known: Mapping[str, np.ndarray],
    opset: int,
    *,
    run: bool,
) -> Opinion:
    if not _is_installed():
        return Opinion()
    names = [name for name in node.output if name]
    stored = () if run else tuple(known)
    try:
        model = _make_model(node, types, {n: known[n] for n in stored}, opset)
        session = open_session(model, threads=1)
        if run:
            return Opinion(values=dict(zip(names, session.run(names, dict(known)), strict=True)))
        return Opinion(types={o.name: t for o in session.get_outputs() if (t := _type_of(o))})
    except runtime_errors() as error:
        if type(error).__name__ in _NO_VERDICT or "opset" in str(error).lower():
            return Opinion()
        return Opinion(refusal=_read_sentence(error))


def _is_installed() -> bool:
    try:
        import_onnxruntime()
    except ImportError:
        return False
    return True


def _make_model(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    stored: Mapping[str, np.ndarray],
    opset: int,
) -> onnx.ModelProto:
    fed = [name for name in dict.fromkeys(node.input) if name and name not in stored]
    graph = onnx.helper.make_graph(
        [node],
        "node",
        [onnx.ValueInfoProto(name=name, type=types[name].to_proto()) for name in fed],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = min(10, onnx.IR_VERSION)  # older releases refuse the newest
    return model


def _type_of(output: Any) -> TensorType | None:
    """Return the type as onnxruntime writes it, such as `tensor(float)`, with a shape that is
    known."""
    name = str(output.type).removeprefix("tensor(").removesuffix(")").upper()
    known = dict(onnx.TensorProto.DataType.items())
    if name not in known or not all(isinstance(d, int) for d in output.shape):
        return None
    return TensorType(element=known[name], shape=tuple(output.shape))


def _read_sentence(error: Exception) -> str:
    """Its last sentence, without the marks of its own before it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


_WHOLE = 1e-4
"""How near a scaled extent is to a whole number that counts as one."""


def note_differences(graph: OnnxGraph) -> None:
    """Log a decision for each such node."""
    for node in graph.nodes:
        _note_resize(graph, node)


def _note_resize(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    """Aligned corners by a scale: the last sample lies at the scaled extent, a fraction or not."""
    if node.op_type != "Resize" or len(node.input) < 3:
        return
    attrs = attributes(node)
    scales, shape = graph.constants.get(node.input[2]), graph.shape_of(node.input[0])
    if attrs.get("coordinate_transformation_mode") != b"align_corners" or scales is None:
        return
    if not shape:
        return
    axes = attrs.get("axes") or range(len(shape))
    for axis, scale in zip(axes, scales.reshape(-1), strict=False):
        extent = shape[axis % len(shape)]
        scaled = extent * float(scale)
        if math.isfinite(scaled) and abs(scaled - round(scaled)) > _WHOLE:
            graph.log.add(
                node.output[0],
                "corners aligned as ONNX's reference does",
                f"axis {axis} of {extent} elements is scaled to {scaled:.4g}; "
                f"onnxruntime and PyTorch place samples in {int(scaled)}: give sizes in place of "
                "scales to have theirs",
            )
