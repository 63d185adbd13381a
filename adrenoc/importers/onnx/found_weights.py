"""What stands around the softmax of an attention: scores of no row before it, the mix behind it.

scores = Concat(scores of rows, a number of each head, last axis)
weights = Slice(Softmax(scores), all but the last)
y = MatMul(weights, values)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from adrenoc.importers.onnx.found_scores import MOST_STEPS, parts_heads
from adrenoc.importers.onnx.graph import OnnxGraph, attributes


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Looks around a softmax of a folded graph."""

    graph: OnnxGraph
    makers: Mapping[str, onnx.NodeProto]
    readers: Mapping[str, Sequence[onnx.NodeProto]]

    def read_sinks(self, name: str) -> tuple[str, np.ndarray | None]:
        """Return the scores of rows that a softmax of `name` takes, and those of no row, one a
        head."""
        node = self.makers.get(name)
        while node is not None and node.op_type in ("Cast", "Identity", "Sub"):
            if node.op_type == "Sub" and not self._is_largest(node.input[1], node.input[0]):
                return name, None
            name = node.input[0]
            node = self.makers.get(name)
        if node is None or node.op_type != "Concat" or len(node.input) != 2:
            return name, None
        value = self.graph.constants.get(node.input[1])
        axis = attributes(node).get("axis")
        if value is None or axis not in (-1, value.ndim - 1) or value.shape[-1] != 1:
            return name, None
        of_tokens = value.reshape(-1, value.shape[-2]) if value.ndim > 1 else value[:, None]
        if not (of_tokens == of_tokens[:, :1]).all():
            return name, None
        return str(node.input[0]), of_tokens[:, 0].astype(np.float32)

    def _is_largest(self, name: str, x: str) -> bool:
        """Return whether a tensor is the largest of each row of another one: the softmax is the
        same."""
        node = self.makers.get(name)
        return node is not None and node.op_type == "ReduceMax" and node.input[0] == x

    def find_mix(self, softmax: onnx.NodeProto, *, sunk: bool) -> onnx.NodeProto | None:
        """Return the product of the weights and the values; where `sunk` one weight is cut off."""
        name = softmax.output[0]
        for _ in range(MOST_STEPS):
            readers = self.readers.get(name, [])
            checked = [one for one in readers if one.op_type == "IsNaN"]
            others = [one for one in readers if one.op_type != "IsNaN"]
            if len(others) != 1:
                return None
            node = others[0]
            if node.op_type == "MatMul":
                return node if node.input[0] == name and not sunk else None
            if node.op_type == "Where" and checked and node.input[0] == checked[0].output[0]:
                if node.input[2] != name or not self._is_zero(node.input[1]):
                    return None
            elif sunk and self._drops_last(node):
                sunk = False
            elif node.op_type not in ("Cast", "Identity", "Dropout") and not parts_heads(
                self.graph, node
            ):
                return None
            name = node.output[0]
        return None

    def _is_zero(self, name: str) -> bool:
        value = self.graph.constants.get(name)
        return value is not None and not value.any()

    def _drops_last(self, node: onnx.NodeProto) -> bool:
        """Return whether a Slice leaves all but the last number of each row."""
        before, after = (self.graph.shape_of(n) for n in (node.input[0], node.output[0]))
        if node.op_type != "Slice" or before is None or after is None:
            return False
        start = self.graph.constants.get(node.input[1]) if len(node.input) > 1 else None
        begins = start is not None and not start.any()
        return begins and after == (*before[:-1], before[-1] - 1)
