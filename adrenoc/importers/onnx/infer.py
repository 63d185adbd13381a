"""Types of the results of ONNX nodes: the onnx package's inference, and what it overlooks.

Ask onnxruntime about one node, where it is installed: onnx's own tools have faults.

Its reference fails on valid nodes (on GatherElements where the index is shorter than the data), and
so does its inference.  Where two implementations refuse a node, the model is wrong; where one does,
that one may be.  Where both compute a node, and otherwise, a decision says which of them is taken.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from adrenoc.base.errors import ModelFormatError
from adrenoc.base.host.extras import import_onnxruntime, runtime_errors
from adrenoc.importers.onnx.graph import (
    STANDARD_DOMAINS,
    OnnxGraph,
    TensorType,
    all_nodes,
    attributes,
    first_output,
    make_model,
    node_label,
)
from adrenoc.importers.onnx.session import open_session

_NO_VERDICT = ("NotImplemented", "NoSuchFile", "EPFail")
"""Names of its exceptions that say nothing of the node: it has no kernel for it."""


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """The values or the types of the node's results by name; `refusal` is why there are none. All
    are empty where it has no opinion: it is not installed, or lacks the operator."""

    values: Mapping[str, np.ndarray] | None = None
    types: Mapping[str, TensorType] | None = None
    refusal: str = ""


def compute_node(node: NodeProto, feeds: Mapping[str, np.ndarray], opset: int) -> Opinion:
    """Return the results of a node on constants."""
    types = {
        name: TensorType(
            element=onnx.helper.np_dtype_to_tensor_dtype(value.dtype), shape=value.shape
        )
        for name, value in feeds.items()
    }
    return _ask(node, types, feeds, opset, run=True)


def _ask(
    node: NodeProto,
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
        model = make_model(node, types, {n: known[n] for n in stored}, opset)
        session = open_session(model, threads=1)
        if run:
            return Opinion(values=dict(zip(names, session.run(names, dict(known)), strict=True)))
        return Opinion(types={o.name: t for o in session.get_outputs() if (t := _type_of(o))})
    except runtime_errors() as error:
        if type(error).__name__ in _NO_VERDICT or "opset" in str(error).lower():
            return Opinion()
        # Its last sentence.
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        return Opinion(refusal=lines[-1] if lines else type(error).__name__)


def _is_installed() -> bool:
    try:
        import_onnxruntime()
    except ImportError:
        return False
    return True


def _type_of(output: Any) -> TensorType | None:
    """Return the type as onnxruntime writes it, such as `tensor(float)`, with a known shape."""
    name = str(output.type).removeprefix("tensor(").removesuffix(")").upper()
    known = dict(onnx.TensorProto.DataType.items())
    if name not in known or not all(isinstance(d, int) for d in output.shape):
        return None
    return TensorType(element=known[name], shape=tuple(output.shape))


_WHOLE = 1e-4
"""How near a scaled extent is to a whole number that counts as one."""


def note_differences(graph: OnnxGraph) -> None:
    """Log resizes by a scale with aligned corners: the last sample is at the scaled extent."""
    for node in graph.nodes:
        if node.op_type != "Resize" or len(node.input) < 3:
            continue
        attrs = attributes(node)
        scales, shape = graph.constants.get(node.input[2]), graph.shape_of(node.input[0])
        is_aligned = attrs.get("coordinate_transformation_mode") == b"align_corners"
        if not is_aligned or scales is None or not shape:
            continue
        axes = attrs.get("axes") or range(len(shape))
        for axis, scale in zip(axes, scales.reshape(-1), strict=False):
            extent = shape[axis % len(shape)]
            scaled = extent * float(scale)
            if math.isfinite(scaled) and abs(scaled - round(scaled)) > _WHOLE:
                graph.log.add(
                    node.output[0],
                    "corners aligned as ONNX's reference does",
                    f"axis {axis} of {extent} elements is scaled to {scaled:.4g}; onnxruntime and "
                    f"PyTorch place samples in {int(scaled)}: give sizes in place of scales to "
                    "have theirs",
                )


# Constants up to this many elements are shown to shape inference: shapes, axes, scales.
_SHAPE_OPERAND_MAX_ELEMENTS = 4096

FIRST_OPSETS = {"LayerNormalization": 17, "RMSNormalization": 23}
"""Where operators begin that rewrites and optimised models use in opsets that lack them."""

# Operators for which the onnx package infers no shape; theirs is that of their input.
_SAME_SHAPE = frozenset({"GroupNormalization", "MeanVarianceNormalization", "RMSNormalization"})

_AXES_FROM_THE_END = frozenset({"Concat", "Squeeze", "Unsqueeze"})
"""Operators that count axes from the end since opset 11, and are the same before.  Source: onnx
1.23 and onnxruntime, sixteen operators with axes tried in opset 9."""

_SHAPELESS = frozenset({"GreaterOrEqual", "LessOrEqual"})
"""Operators of which inference tells no shape from opset 12 to 15.  Source: onnx 1.23, operators of
all versions tried."""

_RESIZING = frozenset({"Resize", "Upsample"})
_LARGEST_FACTOR = 1e9
"""Of a resize: as an axis has room for."""

_NEEDS_A_TYPE = frozenset({"EyeLike", "RegexFullMatch"})
"""Operators whose inference ends the process where the type of their input is not known, as that of
an outer tensor which a nested graph reads.  Source: onnx 1.23, all operators tried."""


def infer_types(graph: OnnxGraph, node: NodeProto) -> None:
    """Find the types of the results of `node` from those of its inputs, as far as they are known.
    Raises ModelFormatError where the node contradicts the types of its inputs."""
    if node.domain not in STANDARD_DOMAINS:
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, _schema_opset(graph, node), "")
    except onnx.defs.SchemaError:
        return  # It is listed with all other operators that are not supported.
    if schema.deprecated:  # inference refuses GroupNormalization-18, which runtimes compute
        _complete(graph, node)
        return
    if _ends_the_process(graph, node):
        return
    types = {n: graph.types[n].to_proto() for n in node.input if n in graph.types}
    data = {n: numpy_helper.from_array(v, n) for n, v in _small(graph, node).items()}
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            node,
            types,
            data,
            opset_imports=[onnx.helper.make_opsetid("", graph.opset)],
            ir_version=onnx.IR_VERSION,
        )
    except KeyError:
        return  # A nested graph reads a tensor of this one, which inference does not see.
    except (
        onnx.shape_inference.InferenceError,
        onnx.checker.ValidationError,
        IndexError,
        RuntimeError,
        ValueError,
    ) as error:
        if first_output(node) not in graph.refusals and not _take_second_opinion(graph, node):
            raise _misfit(graph, node, error) from error
        return
    for name, proto in found.items():
        if proto.tensor_type.elem_type:  # inference may leave it open
            tensor = proto.tensor_type
            shape: tuple[int, ...] | None = None
            if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
                shape = tuple(d.dim_value for d in tensor.shape.dim)
            graph.types[name] = TensorType(element=tensor.elem_type, shape=shape)
    _complete(graph, node)


def _ends_the_process(graph: OnnxGraph, node: NodeProto) -> bool:
    """Return whether inference aborts on a node, as it does on some extents below zero."""
    if any(min(graph.types[n].shape or (), default=0) < 0 for n in node.input if n in graph.types):
        return True  # What has such an extent is refused by name.
    # The types are found once the nested graphs are part of this one.
    inner = {one.op_type for one in all_nodes([node])}
    return node.op_type not in _NEEDS_A_TYPE and not inner.isdisjoint(_NEEDS_A_TYPE)


def _misfit(graph: OnnxGraph, node: NodeProto, error: Exception) -> ModelFormatError:
    seen = ", ".join(
        f"'{n}' {list(graph.types[n].shape or ())}" for n in node.input if n in graph.types
    )
    return ModelFormatError(
        f"{node.op_type} {node_label(node)} does not fit its inputs {seen}: {first_line(error)}",
        hint="check the model (python -m onnx.bin.checker MODEL) and any --shape option",
    )


def _take_second_opinion(graph: OnnxGraph, node: NodeProto) -> bool:
    """Return whether onnxruntime finds, and notes, the types of a node that inference refuses."""
    names = [name for name in node.input if name]
    if not all(name in graph.types for name in names) or any(
        a.HasField("g") for a in node.attribute
    ):
        return False
    types = {name: graph.types[name] for name in names}
    found = _ask(node, types, _small(graph, node), graph.opset, run=False).types
    if not found:
        return False
    graph.types.update(found)
    graph.disputed.append(node_label(node))
    return True


def _complete(graph: OnnxGraph, node: NodeProto) -> None:
    """Add what inference overlooks."""
    name = node.output[0]
    result = graph.types.get(name)
    if node.op_type == "STFT" and result is not None:
        graph.types[name] = _stft_type(graph, node, result)
    if node.op_type == "MaxUnpool" and len(node.input) > 2 and result is not None:
        wanted = graph.constants.get(node.input[2])
        if result.shape is None and wanted is not None:
            shape = tuple(int(d) for d in wanted.reshape(-1))
            graph.types[name] = TensorType(element=result.element, shape=shape)
    source = graph.types.get(node.input[0]) if node.input else None
    if node.op_type in _RESIZING and result is not None and source is not None:
        graph.types[name] = _resized_type(graph, node, source, result)
    if node.op_type in _SAME_SHAPE and (result is None or result.shape is None) and source:
        graph.types[name] = source


def scaled_extent(extent: int, factor: float) -> int:
    """Return the extent that a resize makes by a factor: their product in float32, cut off.

    So does onnxruntime, and so do exporters mean it: five times 1.8 is nine, although the float
    that is nearest to 1.8 lies below it."""
    return int(np.float32(extent) * np.float32(factor))


def _resized_type(
    graph: OnnxGraph, node: NodeProto, source: TensorType, inferred: TensorType
) -> TensorType:
    """Return the type of what is resized by factors: inference multiplies them in doubles."""
    at = 1 if len(node.input) == 2 else 2
    factors = graph.constants.get(node.input[at]) if len(node.input) > at else None
    if factors is None or not factors.size or source.shape is None:
        return inferred
    shape = list(source.shape)
    axes = attributes(node).get("axes") or range(len(shape))
    for axis, factor in zip(axes, factors.reshape(-1).tolist(), strict=True):
        if not 0 < factor <= _LARGEST_FACTOR:
            raise ModelFormatError(
                f"{node.op_type} {node_label(node)} has the factor {factor:g} for axis {axis} of "
                f"{shape[axis]} elements; expected a number above 0, up to {_LARGEST_FACTOR:g}",
                hint="export the model again; python -m onnx.bin.checker MODEL looks it over",
            )
        shape[axis] = scaled_extent(shape[axis], factor)
    return TensorType(element=inferred.element, shape=tuple(shape))


def _stft_type(graph: OnnxGraph, node: NodeProto, inferred: TensorType) -> TensorType:
    """Return an STFT's type: inference overlooks that half of the frequencies is the default."""
    if inferred.shape is None or not attributes(node).get("onesided", 1):
        return inferred
    frame = node.input[3] if len(node.input) > 3 else ""
    extents = (graph.shape_of(node.input[2]) if len(node.input) > 2 else None) or (0,)
    length = int(graph.scalar(frame)) if frame in graph.constants else extents[0]
    shape = (*inferred.shape[:2], length // 2 + 1, 2)
    return TensorType(element=inferred.element, shape=shape)


def _schema_opset(graph: OnnxGraph, node: NodeProto) -> int:
    """Return the opset whose shape inference to ask.

    Optimised models hold norms that are newer than their opset, which onnxruntime always had.
    Before opset 22 that of pools counts windows which start behind the data when rounding up; the
    runtimes never did.  Before opset 11 that of some operators has no axes from the end, which
    exporters write and the runtimes take."""
    if node.op_type in _AXES_FROM_THE_END:
        return max(graph.opset, 11)
    if node.op_type in _SHAPELESS and graph.opset >= 12:
        return max(graph.opset, 16)
    if node.op_type in ("AveragePool", "MaxPool"):
        return max(graph.opset, min(22, onnx.defs.onnx_opset_version()))
    return max(graph.opset, FIRST_OPSETS.get(node.op_type, 0))


def _small(graph: OnnxGraph, node: NodeProto) -> Mapping[str, np.ndarray]:
    constants = graph.constants
    return {
        n: constants[n]
        for n in node.input
        if n in constants and constants[n].size <= _SHAPE_OPERAND_MAX_ELEMENTS
    }


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its type."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@dataclass(frozen=True, kw_only=True)
class NodeWriter:
    """Adds nodes that make nothing counted to a graph, with names that begin alike."""

    graph: OnnxGraph
    prefix: str

    def __call__(self, op: str, *inputs: str, out: str = "", whole: str = "", **attrs: Any) -> str:
        """Add a node; return its result, which is called `out` behind the prefix, or `whole`."""
        result = whole or self.prefix + out
        node = onnx.helper.make_node(op, inputs, [result], **attrs)
        self.graph.nodes.append(node)
        self.graph.counted[result] = None
        infer_types(self.graph, node)
        return result

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant."""
        self.graph.set_constant(self.prefix + name, value)
        return self.prefix + name
