"""Folds constants and infers static shapes in one walk over an ONNX graph.

TVM's frontend turns shape arithmetic (Shape, Gather, Concat, ...) into run-time operators.  With
static input shapes all of it is constant, so it is computed here, before TVM sees the graph.

Before → after:
    s = Shape(x); n = Gather(s, 0); t = Concat(n, -1); y = Reshape(x, t)
    y = Reshape(x, [1, 1280])
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from adrenoc.decision import Decision
from adrenoc.errors import ModelFormatError
from adrenoc.importers.frontend import CONVERTER_ERRORS
from adrenoc.importers.onnx_branch import (
    branch_taken,
    can_select,
    compress_as_gather,
    inline_branch,
    select_branches,
)
from adrenoc.importers.onnx_contrib import DOMAIN, rewrite_contrib
from adrenoc.importers.onnx_graph import (
    MOST_ELEMENTS,
    OnnxGraph,
    TensorType,
    all_nodes,
    attributes,
    first_output,
    node_label,
)
from adrenoc.importers.onnx_suppress import suppressed_rows
from adrenoc.importers.onnx_unroll import LoopState, unroll_loop, unroll_scan

# Constants up to this many elements are shown to shape inference: shapes, axes, scales.
_SHAPE_OPERAND_MAX_ELEMENTS = 4096

# Operators for which the onnx package infers no shape; theirs is that of their input.
_SAME_SHAPE = frozenset({"GroupNormalization", "MeanVarianceNormalization", "RMSNormalization"})

# fmt: off
_FOLDABLE = frozenset({
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil",
    "Clip", "Concat", "Constant", "ConstantOfShape", "Cos", "CumSum",
    "DequantizeLinear", "Div", "Equal", "Erf", "Exp", "Expand",
    "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
    "Gemm", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Log", "MatMul", "Max", "Mean", "MelWeightMatrix", "Min",
    "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot",
    "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Round",
    "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Sin",
    "Size", "Slice", "Softmax", "Split", "Sqrt", "Squeeze",
    "Sub", "Sum", "Tanh", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where", "Xor",
})
# fmt: on


_GROWING = frozenset({"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Tile"})
"""Those whose result may be any number of times as large as what they take."""


def fold_constants(graph: OnnxGraph) -> list[Decision]:
    """Fold `graph` in place: constants, If with a constant condition, Identity, Dropout.

    Raises:
        ModelFormatError: a node contradicts the types of its inputs.
    """
    folder = _Folder(graph)
    pending = list(reversed(graph.nodes))
    graph.nodes = []
    while pending:
        pending.extend(reversed(folder.visit(pending.pop())))
    dropped = graph.drop_unused()
    decisions = [*folder.decisions, *folder.contrib_decisions()]
    if folder.folded:
        decisions.append(
            Decision(
                subject="graph",
                taken=f"folded {folder.folded} nodes into constants",
                reason="their inputs are constants or static shapes",
            )
        )
    if dropped:
        decisions.append(
            Decision(
                subject="graph",
                taken=f"dropped {dropped} nodes",
                reason="no output of the model needs them",
            )
        )
    return decisions


class _Folder:
    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.decisions: list[Decision] = []
        self.folded = 0
        self._alias: dict[str, str] = {}
        self._used = {name for node in all_nodes(graph.nodes) for name in node.input}
        self._used.update(graph.outputs)
        self._inlined = 0
        self._rewritten: Counter[str] = Counter()
        self._selected: dict[str, onnx.NodeProto] = {}
        self._loops: dict[str, LoopState] = {}

    def visit(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Fold, forward or keep `node`; return nodes that take its place and are to be visited."""
        for index, name in enumerate(node.input):
            node.input[index] = self._alias.get(name, name)
        for step in (self._replaced, self._passed_on, self._computed):
            instead = step(node)
            if instead is not None:
                return instead
        if node.op_type == "Concat":
            self._drop_empty_parts(node)
        self._infer(node)
        if all(self._is_empty(name) for name in node.output if name):
            self._set_empty(node)
        else:
            self.graph.nodes.append(node)
        return []

    def _replaced(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Other nodes that say the same, or None."""
        branching = self._selected.pop(first_output(node), None)
        unlike = can_select(self.graph, node) if branching is not None else ""
        if branching is not None and unlike:
            self.graph.refusals[first_output(branching)] = unlike
            return [branching]
        standard = rewrite_contrib(self.graph, node)
        if standard is not None:
            self._rewritten[node.op_type] += 1
            return standard
        return self._written_out(node)

    def _passed_on(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        source = self._forwarded(node)
        if source and node.output[0] not in self.graph.outputs:
            self._alias[node.output[0]] = source
            return []
        if source and node.op_type != "Identity":
            return [onnx.helper.make_node("Identity", [source], [node.output[0]])]
        return None

    def _computed(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """An empty list where the node became constants."""
        graph = self.graph
        if node.op_type in ("Shape", "Size") and self._fold_shape(node):
            return []
        if node.op_type == "OptionalHasElement":
            self._set(node.output[0], np.array(any(n in graph.types for n in node.input)))
            return []
        constant = all(not name or name in graph.constants for name in node.input)
        if constant and node.op_type in _FOLDABLE:
            if node.op_type in _GROWING:
                self._infer(node)
                if self._is_vast(node):
                    return None
            self._evaluate(node)
            return []
        return None

    def _is_vast(self, node: onnx.NodeProto) -> bool:
        shapes = [t.shape for name in node.output if (t := self.graph.types.get(name)) is not None]
        return any(shape is not None and math.prod(shape) > MOST_ELEMENTS for shape in shapes)

    def contrib_decisions(self) -> list[Decision]:
        """What was written by standard operators, by type."""
        return [
            Decision(
                subject=f"{DOMAIN}.{op_type}",
                taken=f"written {count} times as standard operators",
                reason="onnxruntime defines it by them",
            )
            for op_type, count in sorted(self._rewritten.items())
        ]

    def _forwarded(self, node: onnx.NodeProto) -> str:
        """The input that a node only passes on, or an empty string."""
        if node.op_type == "Dropout":
            training = node.input[2] if len(node.input) > 2 else ""
            mask_used = any(name in self._used for name in node.output[1:])
            if mask_used or (training and not _is_false(self.graph.constants.get(training))):
                return ""
            self.decisions.append(
                Decision(
                    subject=node.output[0],
                    taken="removed Dropout",
                    reason="it passes its input on",
                )
            )
            return str(node.input[0])
        if node.op_type in ("Optional", "OptionalGetElement"):
            held = node.input[0] if node.input else ""
            return held if held in self.graph.types else ""
        return str(node.input[0]) if node.op_type == "Identity" else ""

    def _fold_shape(self, node: onnx.NodeProto) -> bool:
        known = self.graph.types.get(node.input[0])
        if known is None or known.shape is None:
            return False
        attrs = attributes(node)
        if node.op_type == "Size":
            value = np.array(int(np.prod(known.shape)), dtype=np.int64)
        else:
            window = slice(attrs.get("start", 0), attrs.get("end"))
            value = np.array(known.shape, dtype=np.int64)[window]
        self._set(node.output[0], value)
        return True

    def _evaluate(self, node: onnx.NodeProto) -> None:
        from onnx.reference import ReferenceEvaluator

        feeds = {name: self.graph.constants[name] for name in node.input if name}
        opset = self.graph.opset
        axes = attributes(node).get("axes")
        if node.op_type in ("Squeeze", "Unsqueeze") and axes is not None:
            # The reference fails on the attribute of old opsets; as an input it reads it.
            node = onnx.helper.make_node(node.op_type, [node.input[0], "axes"], node.output)
            feeds["axes"] = np.array(axes, np.int64)
            opset = 13
        try:
            evaluator = ReferenceEvaluator(node, opsets={"": opset})
            with np.errstate(all="ignore"):  # infinities and NaN are values like others
                values = evaluator.run(None, feeds)
        except CONVERTER_ERRORS as error:
            raise ModelFormatError(
                f"{node.op_type} {node_label(node)} has constant inputs, but cannot be computed: "
                f"{_first_line(error)}",
                hint="check the model: python -m onnx.bin.checker MODEL",
            ) from error
        for name, value in zip(node.output, values, strict=False):
            self._set(name, np.asarray(value))

    def _set(self, name: str, value: np.ndarray) -> None:
        self.graph.set_constant(name, value)
        self.folded += 1

    def _infer(self, node: onnx.NodeProto) -> None:
        graph = self.graph
        if node.domain not in ("", "ai.onnx"):
            return
        try:
            schema = onnx.defs.get_schema(node.op_type, self._schema_opset(node), "")
        except onnx.defs.SchemaError:
            return  # The check for unsupported operators lists it with all others.
        types = {n: graph.types[n].to_proto() for n in node.input if n in graph.types}
        data = {n: numpy_helper.from_array(v, n) for n, v in self._small(node).items()}
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
            RuntimeError,
            ValueError,
        ) as error:
            seen = ", ".join(
                f"'{n}' {list(graph.types[n].shape or ())}" for n in node.input if n in graph.types
            )
            raise ModelFormatError(
                f"{node.op_type} {node_label(node)} does not fit its inputs {seen}: "
                f"{_first_line(error)}",
                hint="check the model (python -m onnx.bin.checker MODEL) and any --shape option",
            ) from error
        for name, proto in found.items():
            if proto.tensor_type.elem_type:  # inference may leave it open
                graph.types[name] = _from_proto(proto)
        result = graph.types.get(node.output[0])
        if node.op_type == "STFT" and result is not None:
            graph.types[node.output[0]] = self._stft_type(node, result)
        if node.op_type == "MaxUnpool" and len(node.input) > 2 and result is not None:
            graph.types[node.output[0]] = self._with_constant_shape(result, node.input[2])
        if node.op_type == "NonMaxSuppression":
            self._pad_rows(node)
        if node.op_type in _SAME_SHAPE and (result is None or result.shape is None):
            graph.types[node.output[0]] = graph.types[node.input[0]]

    def _pad_rows(self, node: onnx.NodeProto) -> None:
        rows, name = suppressed_rows(self.graph, node), node.output[0]
        if rows is None:
            self.graph.refusals[name] = (
                "how much it gives depends on data: let the model give it as an output (with a "
                "constant number of boxes a class), and select on the CPU"
            )
            return
        self.graph.types[name] = TensorType(element=onnx.TensorProto.INT64, shape=(rows, 3))
        self.decisions.append(
            Decision(
                subject=name,
                taken=f"gives {rows} rows; those beyond the last found hold -1",
                reason="how many NonMaxSuppression finds depends on data, and shapes are fixed",
            )
        )

    def _with_constant_shape(self, known: TensorType, name: str) -> TensorType:
        shape = self.graph.constants.get(name)
        if known.shape is not None or shape is None:
            return known
        return TensorType(element=known.element, shape=tuple(int(d) for d in shape))

    def _drop_empty_parts(self, node: onnx.NodeProto) -> None:
        """Leave out operands of a Concat that hold no element."""
        kept = [name for name in node.input if not self._is_empty(name)]
        if kept:
            node.input[:] = kept

    def _is_empty(self, name: str) -> bool:
        known = self.graph.types.get(name)
        return known is not None and known.shape is not None and 0 in known.shape

    def _set_empty(self, node: onnx.NodeProto) -> None:
        """What holds no element is known, whatever computes it."""
        for name in node.output:
            known = self.graph.types.get(name)
            if known is not None and known.shape is not None:
                self._set(name, np.empty(known.shape, known.dtype))

    def _stft_type(self, node: onnx.NodeProto, inferred: TensorType) -> TensorType:
        """The type of an STFT: inference overlooks that half of the frequencies is the default."""
        if inferred.shape is None or not attributes(node).get("onesided", 1):
            return inferred
        frame = self.graph.constants.get(node.input[3]) if len(node.input) > 3 else None
        window = self.graph.types.get(node.input[2]) if len(node.input) > 2 else None
        extents = (window.shape if window is not None else None) or (0,)
        length = int(frame.reshape(-1)[0]) if frame is not None else extents[0]
        shape = (*inferred.shape[:2], length // 2 + 1, 2)
        return TensorType(element=inferred.element, shape=shape)

    def _schema_opset(self, node: onnx.NodeProto) -> int:
        """The opset whose shape inference to ask.

        Before opset 22 that of pools counts windows which start behind the data when rounding up;
        the runtimes never did.
        """
        opset = self.graph.opset
        if node.op_type in ("AveragePool", "MaxPool"):
            return max(opset, min(22, onnx.defs.onnx_opset_version()))
        return opset

    def _small(self, node: onnx.NodeProto) -> Mapping[str, np.ndarray]:
        constants = self.graph.constants
        return {
            n: constants[n]
            for n in node.input
            if n in constants and constants[n].size <= _SHAPE_OPERAND_MAX_ELEMENTS
        }

    def _written_out(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """What takes the place of If, Loop, Scan or Compress, or None where it has to stay."""
        if node.op_type == "If" and first_output(node) not in self.graph.refusals:
            return self._branches(node)
        if node.op_type == "Loop":
            key = node.output[0] or node.output[-1]
            state = self._loops.setdefault(key, LoopState())
            nodes = unroll_loop(self.graph, node, state)
            count = state.iteration
            done = nodes is not None and not any(n.op_type == "Loop" for n in nodes)
        elif node.op_type == "Scan":
            nodes = unroll_scan(self.graph, node)
            count, done = 0, nodes is not None
        elif node.op_type == "Compress":
            return compress_as_gather(self.graph, node)
        else:
            return None
        if done:
            taken = f"unrolled {node.op_type}" + (f" into {count} iterations" if count else "")
            reason = "the number of its iterations is known"
            self.decisions.append(Decision(subject=node.output[0], taken=taken, reason=reason))
        return nodes

    def _branches(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """An If without its nested graphs."""
        prefix = f"{first_output(node)}/{self._inlined}/"
        self._inlined += 1
        if node.input[0] in self.graph.constants:
            taken = f"inlined the {branch_taken(self.graph, node).replace('_', ' ')} of an If"
            reason = "its condition is constant"
            nodes = inline_branch(self.graph, node, prefix)
        else:
            taken = "computed both branches of an If, then selected"
            reason = "its condition is known at run time alone"
            nodes = select_branches(self.graph, node, prefix)
            self._selected.update({name: node for name in node.output if name})
        self.decisions.append(Decision(subject=first_output(node), taken=taken, reason=reason))
        return nodes


def _from_proto(proto: onnx.TypeProto) -> TensorType:
    tensor = proto.tensor_type
    shape: tuple[int, ...] | None = None
    if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
        shape = tuple(d.dim_value for d in tensor.shape.dim)
    return TensorType(element=tensor.elem_type, shape=shape)


def _is_false(value: np.ndarray | None) -> bool:
    return value is not None and not value.any()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
