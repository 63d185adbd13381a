"""Fold constants and infer static shapes in one walk over an ONNX graph.

TVM's frontend turns shape arithmetic (Shape, Gather, Concat, ...) into run-time operators.  With
static input shapes all of it is constant, so it is computed here, before TVM sees the graph.

Before -> after:
    s = Shape(x); n = Gather(s, 0); t = Concat(n, -1); y = Reshape(x, t)
    y = Reshape(x, [1, 1280])

Constants are computed by ONNX's reference, or by onnxruntime where that fails: such a failure is no
fault of the model, and where nothing else computes the node either, the device does.

Shapes that hang on how many entries data have are stated with the most there may be (`counted.py`);
scattered, the missing entries go nowhere.  Of up to 18 rows u for places i of x [9, 32]:
    y = ScatterElements(x, i, u, axis=0)
    y = Slice(ScatterElements(Concat(x, a row of zeros), Where(found, i, 9), u), 0, 9)
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.errors import ModelFormatError, ShapeError
from adrenoc.importers.imported import CONVERTER_ERRORS
from adrenoc.importers.onnx.constant_budget import ConstantBudget, make_filled
from adrenoc.importers.onnx.contrib import WHAT_IT_TAKES, rewrite_contrib
from adrenoc.importers.onnx.counted import (
    COUNTS,
    begin,
    find_counted_inputs,
    find_one,
    follow,
    is_one_picture,
    mask_missing,
)
from adrenoc.importers.onnx.counted_shapes import assign_masked, state_shape
from adrenoc.importers.onnx.graph import (
    MICROSOFT,
    MOST_ADDRESSED,
    OnnxGraph,
    all_nodes,
    attributes,
    copy_node,
    first_output,
    is_standard,
    node_label,
)
from adrenoc.importers.onnx.infer import compute_node, first_line, infer_types
from adrenoc.importers.onnx.sequences import resolve_sequence
from adrenoc.importers.onnx.unroll import (
    Growth,
    LoopState,
    branch_taken,
    can_select,
    compress_as_gather,
    inline_branch,
    select_branches,
    tell_switches,
    unroll_loop,
    unroll_scan,
)

# fmt: off
_FOLDABLE = frozenset({
    "Abs", "Add", "And", "BatchNormalization", "Cast", "CastLike", "Ceil",
    "Clip", "Concat", "Constant", "ConstantOfShape", "Cos", "CumSum",
    "DequantizeLinear", "Div", "Equal", "Erf", "Exp", "Expand",
    "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
    "Gemm", "Greater", "GreaterOrEqual", "GroupNormalization", "Identity", "InstanceNormalization",
    "LayerNormalization", "Less", "LessOrEqual", "LpNormalization", "MeanVarianceNormalization",
    "Log", "MatMul", "Max", "Mean", "MelWeightMatrix", "Min",
    "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot",
    "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "RotaryEmbedding", "Round",
    "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Sin",
    "Size", "Slice", "Softmax", "Split", "Sqrt", "Squeeze",
    "Sub", "Sum", "Tanh", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where", "Xor",
})
# fmt: on

_Step = Callable[[onnx.NodeProto], list[onnx.NodeProto] | None]

_NESTING = frozenset({"If", "Loop", "Scan"})

_ON_DEVICE = frozenset({"Expand", "OneHot", "Pad", "Tile"})
"""Those that are computed on the device where they are too large for a constant.

Of others TVM makes a constant too, or what reads them would be one: they are refused.
"""

_SLIDING = frozenset({"AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool", "QLinearConv"})
"""Operators of windows, of which one at least has to fit."""

_MOST_SELECTED = 256
"""Ifs whose branches are both computed: in each other, ten of them have a thousand branches."""


def fold_constants(graph: OnnxGraph) -> None:
    """Fold `graph` in place: constants, If with a constant condition, Identity, Dropout. Raises
    ModelFormatError where a node contradicts the types of its inputs."""
    folder = _Folder(graph)
    pending = list(reversed(graph.nodes))
    graph.nodes = []
    while pending:
        pending.extend(reversed(folder.visit(pending.pop())))
    dropped = graph.drop_unused()
    log = graph.log
    for (domain, op_type), count in sorted(folder.rewritten.items()):
        taken = f"written {count} times as standard operators"
        log.add(f"{domain}.{op_type}", taken, WHAT_IT_TAKES.get(op_type, "it is defined by them"))
    if folder.folded:
        taken = f"folded {folder.folded} nodes into constants"
        log.add("graph", taken, "their inputs are constants or static shapes")
    for label in dict.fromkeys(graph.disputed):
        reason = "onnx's shape inference refuses it, and onnxruntime does not"
        log.add(label, "took the types of its results from onnxruntime", reason)
    graph.disputed.clear()
    if folder.opened:
        reason = "their data is float: the product is computed in float, which is exact"
        taken = "stored as floats, not as the integers of the file"
        log.add(f"{folder.opened} weights", taken, reason)
    if dropped:
        log.add("graph", f"dropped {dropped} nodes", "no output of the model needs them")


class _Folder:
    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.folded = 0
        self.opened = 0
        """Weights of integers that became floats."""
        self._alias: dict[str, str] = {}
        self._used = {name for node in all_nodes(graph.nodes) for name in node.input}
        self._used.update(graph.outputs)
        self._inlined = 0
        self._conditions = 0
        self.rewritten: Counter[tuple[str, str]] = Counter()
        """Domains and operators that were written by standard ones, and how often."""
        self._selected: dict[str, onnx.NodeProto] = {}
        self._loops: dict[str, LoopState] = {}
        self._budget = ConstantBudget(graph)
        self._growth = Growth()

    def visit(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Fold, forward or keep `node`; return nodes that take its place and are to be visited."""
        for index, name in enumerate(node.input):
            node.input[index] = self._alias.get(name, name)
        if node.op_type == "Concat" and is_standard(node):
            self._drop_empty_parts(node)
        counted = bool(find_counted_inputs(self.graph, node))
        if counted:
            state_shape(self.graph, node)
        for step in self._steps(node, counted=counted):
            instead = step(node)
            if instead is not None:
                return instead
        infer_types(self.graph, node)
        counts = is_standard(node) and node.op_type in COUNTS
        if counted:
            follow(self.graph, node)
        elif counts and first_output(node) not in self.graph.counted:
            begin(self.graph, node)
        if all(self._is_empty(name) for name in node.output if name):
            self._set_empty(node)
        else:
            self.graph.nodes.append(node)
        return []

    def _steps(self, node: onnx.NodeProto, *, counted: bool) -> tuple[_Step, ...]:
        if not is_standard(node):  # It may compute anything, whatever its name.
            return () if counted else (self._rewrite_contributed,)
        if counted:
            return (self._scatter, self._pass_on)
        return (self._replace, self._pass_on, self._compute)

    def _rewrite_contributed(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        written = rewrite_contrib(self.graph, node)
        if written is not None:
            self.rewritten[node.domain or MICROSOFT, node.op_type] += 1
        return written

    def _scatter(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        assigned = assign_masked(self.graph, node)
        return scatter_found(self.graph, node, mask_missing) if assigned is None else assigned

    def _replace(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Return other nodes that say the same, or None."""
        branching = self._selected.pop(first_output(node), None)
        unlike = can_select(self.graph, node) if branching is not None else ""
        if branching is not None and unlike:
            self.graph.refusals[first_output(branching)] = unlike + tell_switches(
                self.graph, branching.input[0]
            )
            return [branching]
        standard = self._rewrite_contributed(node)
        if standard is not None:
            return standard
        written = self._write_out(node)
        self._growth.add(written or ())
        return resolve_sequence(self.graph, node) if written is None else written

    def _pass_on(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        source = self._find_forwarded(node)
        if source and node.output[0] not in self.graph.outputs:
            self._alias[node.output[0]] = source
            return []
        if source and node.op_type != "Identity":
            return [onnx.helper.make_node("Identity", [source], [node.output[0]])]
        return None

    def _compute(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Return an empty list where the node became constants."""
        graph = self.graph
        if node.op_type in ("Shape", "Size") and self._fold_shape(node):
            return []
        if node.op_type == "OptionalHasElement":
            self._set(node.output[0], np.array(any(n in graph.types for n in node.input)))
            return []
        if is_one_picture(graph, node):
            self._set(node.output[0], find_one(graph, node))
            return []
        constant = all(not name or name in graph.constants for name in node.input)
        if constant and node.op_type in _FOLDABLE:
            excess = self._budget.excess(graph, node)
            if not excess:
                return self._evaluate(node)
            if node.op_type not in _ON_DEVICE:
                graph.refusals[first_output(node)], graph.vast = excess, True
        return None

    def _find_forwarded(self, node: onnx.NodeProto) -> str:
        """Return the input that a node only passes on, or an empty string."""
        if len(node.output) > (2 if node.op_type == "Dropout" else 1):
            return ""
        if node.op_type == "Dropout":
            training = node.input[2] if len(node.input) > 2 else ""
            mask_used = any(name in self._used for name in node.output[1:])
            trains = self.graph.constants.get(training, np.array(bool(training)))
            if mask_used or trains.any():
                return ""
            self.graph.log.add(node.output[0], "removed Dropout", "it passes its input on")
            return str(node.input[0])
        if node.op_type in ("Optional", "OptionalGetElement"):
            held = node.input[0] if node.input else ""
            return held if held in self.graph.types else ""
        alone = node.op_type == "Concat" and len(node.input) == 1
        none = node.op_type in ("ScatterElements", "ScatterND") and self._is_empty(node.input[1])
        passes = alone or none or node.op_type == "Identity" or self._is_idle_cast(node)
        return str(node.input[0]) if passes else ""

    def _is_idle_cast(self, node: onnx.NodeProto) -> bool:
        """Return whether a Cast is to what its operand is of."""
        known = self.graph.types.get(node.input[0]) if node.op_type == "Cast" else None
        return known is not None and known.element == attributes(node).get("to")

    def _fold_shape(self, node: onnx.NodeProto) -> bool:
        shape = self.graph.shape_of(node.input[0])
        if shape is None:
            return False
        attrs = attributes(node)
        if node.op_type == "Size":
            value = np.array(int(np.prod(shape)), dtype=np.int64)
        else:
            window = slice(attrs.get("start", 0), attrs.get("end"))
            value = np.array(shape, dtype=np.int64)[window]
        self._set(node.output[0], value)
        return True

    def _evaluate(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Return an empty list where the node became constants."""
        found = evaluate(self.graph, node)
        if found.trouble:
            taken = "left for the device to compute, though its inputs are constants"
            self.graph.log.add(
                first_output(node),
                taken if found.values is None else "folded by onnxruntime",
                f"onnx's reference of {node.op_type} fails on it: {found.trouble}",
            )
        if found.values is None:
            return None
        for name, value in zip(node.output, found.values, strict=False):
            self._set(name, value)
        self.opened += node.op_type == "DequantizeLinear" and found.values[0].ndim > 1
        return []

    def _set(self, name: str, value: np.ndarray) -> None:
        self.graph.set_constant(name, value)
        self.folded += 1
        self._budget.take(value.size)

    def _drop_empty_parts(self, node: onnx.NodeProto) -> None:
        """Leave out operands of a Concat that hold no element."""
        kept = [name for name in node.input if not self._is_empty(name)]
        if kept:
            node.input[:] = kept

    def _is_empty(self, name: str) -> bool:
        shape = self.graph.shape_of(name)
        if shape is None or 0 not in shape or min(shape) < 0:
            return False
        return math.prod(extent or 1 for extent in shape) <= MOST_ADDRESSED

    def _set_empty(self, node: onnx.NodeProto) -> None:
        """What holds no element is known, whatever computes it, but where no window fits."""
        if node.op_type in _SLIDING and not self._is_empty(node.input[0]):
            shape = self.graph.types[node.output[0]].shape
            raise ShapeError(
                f"tensor '{node.output[0]}' has the shape {list(shape or ())}: a window is larger "
                "than what it slides over",
                hint="compile for a larger input: --shape NAME:D,D,...",
            )
        for name in node.output:
            known = self.graph.types.get(name)
            if known is not None and known.shape is not None:
                self._set(name, np.empty(known.shape, known.dtype))

    def _write_out(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Return what takes the place of If, Loop, Scan or Compress; None where it has to stay."""
        if node.op_type in _NESTING and self._growth.excess():
            self.graph.refusals.setdefault(first_output(node), self._growth.excess())
        if first_output(node) in self.graph.refusals:
            return None
        if node.op_type == "If":
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
            self.graph.log.add(node.output[0], taken, "the number of its iterations is known")
        return nodes

    def _branches(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Return an If without its nested graphs; None where it is refused."""
        prefix = f"{first_output(node)}/{self._inlined}/"
        self._inlined += 1
        if node.input[0] in self.graph.constants:
            taken = f"inlined the {branch_taken(self.graph, node).replace('_', ' ')} of an If"
            reason = "its condition is constant"
            nodes = inline_branch(self.graph, node, prefix)
        elif self._conditions == _MOST_SELECTED:
            self.graph.refusals[first_output(node)] = (
                f"more than {_MOST_SELECTED} conditions are known at run time alone"
            )
            return None
        else:
            self._conditions += 1
            taken = "computed both branches of an If, then selected"
            decides = tell_switches(self.graph, node.input[0])
            reason = f"its condition is known at run time alone{decides}"
            nodes = select_branches(self.graph, node, prefix)
            self._selected.update({name: node for name in node.output if name})
        self.graph.log.add(first_output(node), taken, reason)
        return nodes


Mask = Callable[[OnnxGraph, str, str, int], str]
"""Puts a number into the missing entries of a tensor: graph, tensor, label, number."""


def scatter_found(
    graph: OnnxGraph, node: onnx.NodeProto, mask: Mask
) -> list[onnx.NodeProto] | None:
    """Return what takes the place of a ScatterElements or ScatterND by counted indices, or None."""
    if node.op_type not in ("ScatterElements", "ScatterND") or len(node.input) < 3:
        return None
    data, indices, updates = node.input[:3]
    known, places = graph.types.get(data), graph.types.get(indices)
    one, other = graph.counted.get(indices), graph.counted.get(updates)
    if known is None or not known.shape or places is None or not places.shape:
        return None
    if graph.counted.get(data) is not None or one is None or other is None:
        return None
    by_row = node.op_type == "ScatterND"
    if one != other or (by_row and (places.shape[-1] != 1 or one.axis == len(places.shape) - 1)):
        return None
    axis = 0 if by_row else attributes(node).get("axis", 0) % len(known.shape)
    extent, prefix = known.shape[axis], f"{node.output[0]}/found/"
    shape = (*known.shape[:axis], 1, *known.shape[axis + 1 :])
    graph.set_constant(f"{prefix}beyond", np.zeros(shape, known.dtype))
    for name, number in (("first", 0), ("end", extent), ("axis", axis)):
        graph.set_constant(f"{prefix}{name}", np.array([number], np.int64))
    scatter = copy_node(node)
    masked = mask(graph, indices, f"from_{extent}", extent), mask(graph, updates, "updates", 0)
    scatter.input[:] = [f"{prefix}longer", *masked]
    scatter.output[:] = [f"{prefix}whole"]
    window = [f"{prefix}{name}" for name in ("whole", "first", "end", "axis")]
    return [
        helper.make_node("Concat", [data, f"{prefix}beyond"], [f"{prefix}longer"], axis=axis),
        scatter,
        helper.make_node("Slice", window, [node.output[0]]),
    ]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The values of a node's outputs, in order; None where nothing here can compute it. `trouble`
    is what the reference said, where it failed."""

    values: tuple[np.ndarray, ...] | None
    trouble: str = ""


def evaluate(graph: OnnxGraph, node: onnx.NodeProto) -> Evaluated:
    """Compute a node whose inputs are all constants. Raises ModelFormatError where neither the
    reference nor onnxruntime can, which has a reason to give."""
    whole = make_filled(graph, node)
    if whole is not None:
        return Evaluated(values=(whole,))
    feeds = {name: graph.constants[name] for name in node.input if name}
    try:
        return Evaluated(values=_run_reference(node, feeds, graph.opset))
    except CONVERTER_ERRORS as error:
        trouble = first_line(error)
    opinion = compute_node(node, feeds, graph.opset)
    if opinion.refusal:
        raise ModelFormatError(
            f"{node.op_type} {node_label(node)} has constant inputs, but cannot be computed: "
            f"{opinion.refusal}",
            hint="check the model: python -m onnx.bin.checker MODEL",
        )
    if opinion.values is None:
        return Evaluated(values=None, trouble=trouble)
    values = tuple(np.asarray(opinion.values[name]) for name in node.output if name)
    return Evaluated(values=values, trouble=trouble)


def _run_reference(
    node: onnx.NodeProto, feeds: dict[str, np.ndarray], opset: int
) -> tuple[np.ndarray, ...]:
    from onnx.reference import ReferenceEvaluator

    axes = attributes(node).get("axes")
    if node.op_type in ("Squeeze", "Unsqueeze") and axes is not None:
        # The reference fails on the attribute of old opsets; as an input it reads it.
        node = onnx.helper.make_node(node.op_type, [node.input[0], "axes"], node.output)
        feeds = {**feeds, "axes": np.array(axes, np.int64)}
        opset = 13
    evaluator = ReferenceEvaluator(node, opsets={"": opset})
    with np.errstate(all="ignore"):  # infinities and NaN are values like others
        return tuple(np.asarray(value) for value in evaluator.run(None, feeds))
