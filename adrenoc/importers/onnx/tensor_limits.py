"""Refuses tensors that no kernel could hold: of text, of too many elements or axes, or of none."""

from __future__ import annotations

import math

from onnx import TensorProto

from adrenoc.base.errors import ShapeError, UnsupportedOperatorError
from adrenoc.importers.onnx.graph import MOST_AXES, MOST_ELEMENTS, OnnxGraph

_ONLY_CONSTANT = frozenset(
    value
    for name, value in TensorProto.DataType.items()
    if name.startswith(("BFLOAT", "FLOAT4", "FLOAT8", "INT2", "INT4", "UINT2", "UINT4"))
)


def check_text(graph: OnnxGraph) -> None:
    """Refuse outputs that hold text."""
    for name in graph.outputs:
        if name in graph.constants and graph.constants[name].dtype.kind in "OSU":
            raise _make_text_error(f"output '{name}'")


def _make_text_error(what: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"{what} holds text; adrenoc computes tensors of numbers",
        hint="cut that part off with onnx.utils.extract_model",
    )


def check_dtypes(graph: OnnxGraph) -> None:
    """Refuse tensors of text, and of numbers that only constants can hold, which are folded."""
    read = {n for node in graph.nodes for n in node.input if n not in graph.constants}
    for name in sorted(read.union(graph.outputs)):
        known = graph.types.get(name)
        if known is not None and known.element == TensorProto.STRING:
            raise _make_text_error(f"tensor '{name}'")
        if known is not None and known.element in _ONLY_CONSTANT:
            raise UnsupportedOperatorError(
                f"tensor '{name}' holds {TensorProto.DataType.Name(known.element).lower()}, which "
                "no OpenCL device computes",
                hint="export the model in float32 or float16",
            )


def check_extents(graph: OnnxGraph) -> None:
    """Refuse tensors that hold too much, or nothing and are not operands that say so."""
    constants = graph.constants
    read = {n for node in graph.nodes for n in node.input if n not in constants}
    for name in sorted(read.union(graph.outputs)):
        shape = graph.shape_of(name) or (1,)
        if len(shape) > MOST_AXES:
            raise ShapeError(
                f"tensor '{name}' has {len(shape)} dimensions; expected up to {MOST_AXES}",
                hint="cut the model before that tensor with onnx.utils.extract_model",
            )
        if min(shape) < 0:
            raise ShapeError(
                f"tensor '{name}' has the shape {list(shape)}: a window is larger than what it "
                "slides over",
                hint="compile for a larger input: --shape NAME:D,D,...",
            )
        if 0 in shape:
            raise ShapeError(
                f"tensor '{name}' has the shape {list(shape)}: it holds no element, and "
                "no kernel can compute it",
                hint="cut the model before that tensor with onnx.utils.extract_model",
            )
        if math.prod(shape) > MOST_ELEMENTS:
            raise ShapeError(
                f"tensor '{name}' has the shape {list(shape)}, which is {math.prod(shape)} "
                f"elements; expected up to {MOST_ELEMENTS}",
                hint="compile for a smaller input: --shape NAME:D,D,..., or cut the model before "
                "that tensor with onnx.utils.extract_model",
            )
