"""Root-mean-square norms that an exporter wrote out, as one operator.

Before -> after:
    y = g * (x / Sqrt(ReduceMean(x * x) + epsilon))     y = SimplifiedLayerNormalization(x, g)
    y = RMSNormalization(x, g)                          the same

Models in halves widen x before that and narrow what comes out: so does the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import OnnxGraph, attributes, is_standard

NORM = "SimplifiedLayerNormalization"
_LAST = -1


def join_norms(graph: OnnxGraph) -> None:
    """Put one operator in the place of each norm of `graph`."""
    finder = _Finder(graph)
    count = 0
    for at, node in enumerate(graph.nodes):
        if node.op_type == "RMSNormalization" and is_standard(node):
            node.op_type = NORM
            continue
        found = finder.find(node)
        if found is None:
            continue
        attrs = {"axis": _LAST, "epsilon": found.epsilon, "stash_type": 1}
        inputs = [found.read, found.gains]
        graph.nodes[at] = helper.make_node(NORM, inputs, list(node.output), node.name, **attrs)
        count += 1
    if count:
        graph.drop_unused()
        reason = "a factor, a root and a mean of squares are a norm by root mean square"
        graph.log.add(f"{count} norms", "are one operator each", reason)


@dataclass(frozen=True, kw_only=True)
class _Norm:
    """The tensor that a norm reads, its gains, a constant, and what it adds to the mean."""

    read: str
    gains: str
    epsilon: float


class _Finder:
    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.nodes for name in node.output}

    def find(self, node: onnx.NodeProto) -> _Norm | None:
        """Return the norm whose last product a node is, if it is one."""
        for gains, scaled in self._factors(node):
            value = self._graph.constants.get(gains)
            if value is None or value.ndim != 1:
                continue
            narrowed = self._made_by(scaled, "Cast")
            inner = scaled if narrowed is None else narrowed.input[0]
            for read, epsilon in self._scaled(inner):
                source = self._before_cast(read, scaled) if narrowed is not None else read
                shape = self._graph.shape_of(source)
                if shape is not None and shape[-1:] == value.shape:
                    return _Norm(read=source, gains=gains, epsilon=epsilon)
        return None

    def _scaled(self, name: str) -> Iterator[tuple[str, float]]:
        """Yield what a tensor is x / root of, or x times one over the root: x, and epsilon."""
        node = self._makers.get(name)
        if node is None:
            return
        pairs: list[tuple[str, str]] = []
        if node.op_type == "Div":
            pairs = [(node.input[0], node.input[1])]
        for x, inverse in self._factors(node):
            over = self._made_by(inverse, "Reciprocal")
            if over is not None:
                pairs.append((x, over.input[0]))
            divided = self._made_by(inverse, "Div")
            if divided is not None and self._number(divided.input[0]) == 1:
                pairs.append((x, divided.input[1]))
        for x, root in pairs:
            epsilon = self._epsilon(x, root)
            if epsilon is not None:
                yield x, epsilon

    def _epsilon(self, x: str, root: str) -> float | None:
        """Return what is added to the mean of the squares of x, whose root this is; None of
        others."""
        taken = self._made_by(root, "Sqrt")
        raised = None if taken is None else self._made_by(taken.input[0], "Add")
        for at in (0, 1) if raised is not None else ():
            assert raised is not None
            mean, epsilon = self._made_by(raised.input[at], "ReduceMean"), raised.input[1 - at]
            value = self._number(epsilon)
            if mean is not None and value is not None and self._is_over_last(mean):
                square = self._makers.get(mean.input[0])
                if square is not None and self._is_square(square, x):
                    return value
        return None

    def _is_square(self, node: onnx.NodeProto, x: str) -> bool:
        if node.op_type == "Pow":
            return node.input[0] == x and self._number(node.input[1]) == 2
        return node.op_type == "Mul" and list(node.input) == [x, x]

    def _is_over_last(self, mean: onnx.NodeProto) -> bool:
        own = attributes(mean)
        axes = own.get("axes")
        if len(mean.input) > 1 and mean.input[1]:
            axes = self._graph.constants.get(mean.input[1])
        shape = self._graph.shape_of(mean.input[0])
        if axes is None or not own.get("keepdims", 1) or shape is None:
            return False
        return np.asarray(axes).reshape(-1).tolist() in ([_LAST], [len(shape) - 1])

    def _before_cast(self, read: str, narrowed: str) -> str:
        """Return what was widened, where it was of the type that comes out; else what is read
        itself."""
        cast = self._made_by(read, "Cast")
        types = self._graph.types
        if cast is None or types.get(cast.input[0]) is None or types.get(narrowed) is None:
            return ""
        same = types[cast.input[0]].element == types[narrowed].element
        return str(cast.input[0]) if same else ""

    def _factors(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        if node.op_type == "Mul":
            yield node.input[0], node.input[1]
            yield node.input[1], node.input[0]

    def _made_by(self, name: str, op: str) -> onnx.NodeProto | None:
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op and is_standard(node) else None

    def _number(self, name: str) -> float | None:
        value = self._graph.constants.get(name)
        return None if value is None or value.size != 1 else float(value.reshape(-1)[0])
