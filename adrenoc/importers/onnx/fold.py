"""Fold constants and infer static shapes in one walk over an ONNX graph.

TVM's frontend turns shape arithmetic (Shape, Gather, Concat, ...) into run-time operators.  With
static input shapes all of it is constant, so it is computed here, before TVM sees the graph.

Before -> after:
    s = Shape(x); n = Gather(s, 0); t = Concat(n, -1); y = Reshape(x, t)
    y = Reshape(x, [1, 1280])

Constants are computed by ONNX's reference, or by onnxruntime where that fails: such a failure is no
fault of the model, and where nothing else computes the node either, the device does.

Shapes that hang on how many entries data have are stated with the most there may be (`counted.py`).

A file of some hundred bytes can ask for all memory that there is, by Tile, Range and their like, so
that constants have limits.  What convolutions and products read as weights may be large all the
same, as models without their training data are distributed (the onnx package has VGG-19 so, of 143
million elements): weights have room by this machine's memory, other constants by the size of the
file.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
from onnx import NodeProto

from adrenoc.base.errors import ModelFormatError, ShapeError
from adrenoc.base.host.memory import available_bytes
from adrenoc.importers import imported
from adrenoc.importers.imported import CONVERTER_ERRORS
from adrenoc.importers.onnx.contrib import WHAT_IT_TAKES, rewrite_contrib
from adrenoc.importers.onnx.counted import (
    COUNTS,
    begin,
    find_counted_inputs,
    find_one,
    follow,
    is_one_picture,
    scatter_found,
)
from adrenoc.importers.onnx.counted_shapes import assign_masked, state_shape
from adrenoc.importers.onnx.graph import (
    MICROSOFT,
    MOST_ADDRESSED,
    OnnxGraph,
    all_nodes,
    attributes,
    damaged,
    first_output,
    is_standard,
    node_label,
    tell_switches,
)
from adrenoc.importers.onnx.infer import compute_node, first_line, infer_types
from adrenoc.importers.onnx.unroll import (
    Growth,
    LoopState,
    branch_taken,
    can_select,
    compress_as_gather,
    inline_branch,
    resolve_sequence,
    select_branches,
    unroll_loop,
    unroll_scan,
)

_GROWING = frozenset(
    {"ConstantOfShape", "EyeLike", "Expand", "MelWeightMatrix", "OneHot", "Pad", "Range", "Tile"}
)
"""Those whose result may be any number of times as large as what they take."""

_LEAST_ELEMENTS, _TIMES = 2**27, 8
"""What constants may be computed to, in elements: so many, and so many times those of the file."""

_FEW = 2**16
"""Elements of shapes, axes and tables: they are always computed."""

MOST_WEIGHTS = 2**29
"""Elements of weights that a file only describes: 2 GiB, more than any phone gives a model."""

_BYTES_A_WEIGHT = 16
"""What compiling takes for an element: the constant, its copies as TVM's, packed, and written.
Measured: VGG-19 takes 1.5 GB in half, 2.2 GB in float, for 144 million."""

_WEIGHTS: dict[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvInteger": (1,),
    "ConvTranspose": (1, 2),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "GRU": (1, 2),
    "LSTM": (1, 2),
    "MatMul": (0, 1),
    "MatMulInteger": (1,),
    "QLinearConv": (3,),
    "QLinearMatMul": (3,),
    "RNN": (1, 2),
}
"""Operators with weights, and which operands these are."""

# fmt: off
_PASS_ON = frozenset({
    "Add", "Cast", "DequantizeLinear", "Div", "Flatten", "Identity", "Mul", "QuantizeLinear",
    "Reshape", "Squeeze", "Sub", "Transpose", "Unsqueeze",
})
# fmt: on
"""Operators whose result has as many elements, and is a weight where theirs is."""


class ConstantBudget:
    """Elements that constants may still be computed to."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._left = _LEAST_ELEMENTS + _TIMES * sum(v.size for v in graph.constants.values())
        self._weights = min(MOST_WEIGHTS, available_bytes() // _BYTES_A_WEIGHT)
        self._readers = graph.readers()

    def take(self, count: int) -> None:
        """A constant of so many elements is there now."""
        self._left -= count

    def excess(self, graph: OnnxGraph, node: NodeProto) -> str:
        """Return why what a node makes of constants is too much for one; empty where it is not."""
        most_grown = imported.MOST_GROWN
        sizes = {name: graph.constants[name].size for name in node.input if name}
        if node.op_type == "Range":
            start, limit, step = (float(graph.scalar(name)) for name in node.input)
            count = (limit - start) / step if step else 0
            if count <= most_grown:
                return ""
            return self._weight_excess(node, count)
        most = math.prod(max(1, sizes[name]) for name in node.input if name)
        if node.op_type not in _GROWING and most <= (most_grown if self._left > 0 else _FEW):
            return ""
        count = _count_elements(graph, node)
        if count > most_grown and count > sum(sizes.values()):
            return self._weight_excess(node, count)
        return imported.too_much(count) if count > max(self._left, _FEW) else ""

    def _weight_excess(self, node: NodeProto, count: float) -> str:
        if not any(self._is_weight(name) for name in node.output):
            return imported.too_much(count)
        if count > self._weights:
            return (
                f"it makes {count:.0f} elements of weights, and there is room for {self._weights} "
                f"more (up to {MOST_WEIGHTS} in all, and {_BYTES_A_WEIGHT} bytes of free memory "
                "for each)"
            )
        # From here on they are as if the file held them.
        self._weights -= int(count)
        self._left += (_TIMES + 1) * int(count)
        return ""

    def _is_weight(self, name: str) -> bool:
        """Return whether a tensor gets to an operator as its weights."""
        seen, waiting = {name}, [name]
        while waiting:
            for node in self._readers.get(waiting.pop(), ()):
                places = _WEIGHTS.get(node.op_type, ())
                if any(i < len(node.input) and node.input[i] in seen for i in places):
                    return True
                fresh = (
                    [n for n in node.output if n not in seen] if node.op_type in _PASS_ON else []
                )
                seen.update(fresh)
                waiting.extend(fresh)
        return False


def make_filled(graph: OnnxGraph, node: NodeProto) -> np.ndarray | None:
    """Return a large constant of one number, which takes memory once it is copied; else None."""
    if node.op_type != "ConstantOfShape":
        return None
    extents = _extents(graph, node)
    if min(extents, default=0) < 0 or math.prod(extents) <= _FEW:
        return None
    value = attributes(node).get("value")
    fill = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    return np.broadcast_to(fill.reshape(-1)[0], extents)


def _extents(graph: OnnxGraph, node: NodeProto) -> tuple[int, ...]:
    return tuple(int(d) for d in graph.constants[node.input[0]].reshape(-1))


def _count_elements(graph: OnnxGraph, node: NodeProto) -> int:
    """Return how many elements the largest result has, as far as it is known."""
    if node.op_type == "ConstantOfShape":
        return math.prod(_extents(graph, node))
    with contextlib.suppress(ModelFormatError):  # computing takes vectors of one as scalars
        infer_types(graph, node)
    types = [graph.types.get(name) for name in node.output]
    return max((math.prod(t.shape or ()) for t in types if t is not None), default=0)


# fmt: off
_FOLDABLE = frozenset({
    "Abs", "Add", "And", "BatchNormalization", "Cast", "CastLike", "Ceil", "Clip", "Concat",
    "Constant", "ConstantOfShape", "Cos", "CumSum", "DequantizeLinear", "Div", "Equal", "Erf",
    "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gemm",
    "Greater", "GreaterOrEqual", "GroupNormalization", "Identity", "InstanceNormalization",
    "LayerNormalization", "Less", "LessOrEqual", "Log", "LpNormalization", "MatMul", "Max", "Mean",
    "MeanVarianceNormalization", "MelWeightMatrix", "Min", "Mod", "Mul", "Neg", "NonZero", "Not",
    "OneHot", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Relu", "Reshape", "RotaryEmbedding", "Round", "ScatterElements",
    "ScatterND", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Slice", "Softmax", "Split", "Sqrt",
    "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
})
# fmt: on

_Step = Callable[[NodeProto], list[NodeProto] | None]

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
        self._selected: dict[str, NodeProto] = {}
        self._loops: dict[str, LoopState] = {}
        self._budget = ConstantBudget(graph)
        self._growth = Growth()

    def visit(self, node: NodeProto) -> list[NodeProto]:
        """Fold, forward or keep `node`; return nodes that take its place and are to be visited."""
        for index, name in enumerate(node.input):
            node.input[index] = self._alias.get(name, name)
        if node.op_type == "Concat" and is_standard(node):
            # Leave out operands of a Concat that hold no element.
            kept = [name for name in node.input if not self._is_empty(name)]
            if kept:
                node.input[:] = kept
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

    def _steps(self, node: NodeProto, *, counted: bool) -> tuple[_Step, ...]:
        if not is_standard(node):  # It may compute anything, whatever its name.
            return () if counted else (self._rewrite_contributed,)
        if counted:
            return (self._scatter, self._pass_on)
        return (self._replace, self._pass_on, self._compute)

    def _rewrite_contributed(self, node: NodeProto) -> list[NodeProto] | None:
        written = rewrite_contrib(self.graph, node)
        if written is not None:
            self.rewritten[node.domain or MICROSOFT, node.op_type] += 1
        return written

    def _scatter(self, node: NodeProto) -> list[NodeProto] | None:
        assigned = assign_masked(self.graph, node)
        return scatter_found(self.graph, node) if assigned is None else assigned

    def _replace(self, node: NodeProto) -> list[NodeProto] | None:
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

    def _pass_on(self, node: NodeProto) -> list[NodeProto] | None:
        source = self._find_forwarded(node)
        if source and node.output[0] not in self.graph.outputs:
            self._alias[node.output[0]] = source
            return []
        if source and node.op_type != "Identity":
            return [onnx.helper.make_node("Identity", [source], [node.output[0]])]
        return None

    def _compute(self, node: NodeProto) -> list[NodeProto] | None:
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

    def _find_forwarded(self, node: NodeProto) -> str:
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

    def _is_idle_cast(self, node: NodeProto) -> bool:
        """Return whether a Cast is to what its operand is of."""
        known = self.graph.types.get(node.input[0]) if node.op_type == "Cast" else None
        return known is not None and known.element == attributes(node).get("to")

    def _fold_shape(self, node: NodeProto) -> bool:
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

    def _evaluate(self, node: NodeProto) -> list[NodeProto] | None:
        """Return an empty list where the node became constants."""
        values, trouble = evaluate(self.graph, node)
        if trouble:
            taken = "left for the device to compute, though its inputs are constants"
            self.graph.log.add(
                first_output(node),
                taken if values is None else "folded by onnxruntime",
                f"onnx's reference of {node.op_type} fails on it: {trouble}",
            )
        if values is None:
            return None
        for name, value in zip(node.output, values, strict=False):
            self._set(name, value)
        self.opened += node.op_type == "DequantizeLinear" and values[0].ndim > 1
        return []

    def _set(self, name: str, value: np.ndarray) -> None:
        self.graph.set_constant(name, value)
        self.folded += 1
        self._budget.take(value.size)

    def _is_empty(self, name: str) -> bool:
        shape = self.graph.shape_of(name)
        if shape is None or 0 not in shape or min(shape) < 0:
            return False
        return math.prod(extent or 1 for extent in shape) <= MOST_ADDRESSED

    def _set_empty(self, node: NodeProto) -> None:
        """Know what holds no element, whatever computes it, but where no window fits."""
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

    def _write_out(self, node: NodeProto) -> list[NodeProto] | None:
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

    def _branches(self, node: NodeProto) -> list[NodeProto] | None:
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


def evaluate(graph: OnnxGraph, node: NodeProto) -> tuple[tuple[np.ndarray, ...] | None, str]:
    """Return the values of a node whose inputs are all constants, None where nothing here
    can tell, and what the reference said where it failed. Raises ModelFormatError where neither the
    reference nor onnxruntime can, which has a reason to give."""
    whole = make_filled(graph, node)
    if whole is not None:
        return (whole,), ""
    feeds = {name: graph.constants[name] for name in node.input if name}
    try:
        return _run_reference(node, feeds, graph.opset), ""
    except CONVERTER_ERRORS as error:
        trouble = first_line(error)
    opinion = compute_node(node, feeds, graph.opset)
    if opinion.refusal:
        raise damaged(
            f"{node.op_type} {node_label(node)} has constant inputs, but cannot be computed: "
            f"{opinion.refusal}"
        )
    if opinion.values is None:
        return None, trouble
    values = tuple(np.asarray(opinion.values[name]) for name in node.output if name)
    return values, trouble


def _run_reference(
    node: NodeProto, feeds: dict[str, np.ndarray], opset: int
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
