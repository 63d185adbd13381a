"""Limits constants that a file of a few bytes describes: Tile, Range and their like.

A file of some hundred bytes can ask for all memory that there is.  What convolutions and products
read as weights may be large all the same, as models without their training data are distributed
(the onnx package has VGG-19 so, of 143 million elements): weights have room by this machine's
memory, other constants by the size of the file.
"""

import contextlib
import math

import numpy as np
import onnx

from adrenoc.base.errors import ModelFormatError
from adrenoc.base.host.memory import available_bytes
from adrenoc.importers import imported
from adrenoc.importers.onnx.graph import OnnxGraph, attributes
from adrenoc.importers.onnx.infer import infer_types

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

    def excess(self, graph: OnnxGraph, node: onnx.NodeProto) -> str:
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

    def _weight_excess(self, node: onnx.NodeProto, count: float) -> str:
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


def make_filled(graph: OnnxGraph, node: onnx.NodeProto) -> np.ndarray | None:
    """Return a large constant of one number, which takes memory once it is copied; else None."""
    if node.op_type != "ConstantOfShape":
        return None
    extents = _extents(graph, node)
    if min(extents, default=0) < 0 or math.prod(extents) <= _FEW:
        return None
    value = attributes(node).get("value")
    fill = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    return np.broadcast_to(fill.reshape(-1)[0], extents)


def _extents(graph: OnnxGraph, node: onnx.NodeProto) -> tuple[int, ...]:
    return tuple(int(d) for d in graph.constants[node.input[0]].reshape(-1))


def _count_elements(graph: OnnxGraph, node: onnx.NodeProto) -> int:
    """Return how many elements the largest result has, as far as it is known."""
    if node.op_type == "ConstantOfShape":
        return math.prod(_extents(graph, node))
    with contextlib.suppress(ModelFormatError):  # computing takes vectors of one as scalars
        infer_types(graph, node)
    types = [graph.types.get(name) for name in node.output]
    return max((math.prod(t.shape or ()) for t in types if t is not None), default=0)
