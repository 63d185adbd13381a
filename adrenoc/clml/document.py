"""The JSON graph that TVM's CLML runtime reads.

The form is the one of TVM 0.27's `JSONSerializer`: inputs first, constants where they are first
read, kernels after their inputs; attributes are typed; `shape` and `dtype` hold an entry for each
output; kernels count their inputs and outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from adrenoc.clml.region import Operand, Region


class GraphWriter:
    """Builds a graph node by node; every node has one output."""

    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []

    def leaf(self, kind: str, name: str, shape: Sequence[int], dtype: str) -> int:
        """Add an `input` or a `const`; returns the node's index."""
        self._nodes.append(
            {"op": kind, "name": name, "attrs": {"shape": [list(shape)], "dtype": [dtype]}}
        )
        return len(self._nodes) - 1

    def kernel(
        self,
        name: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        dtype: str,
        attrs: Mapping[str, Any],
    ) -> int:
        """Add an operator; returns the node's index."""
        node = self.leaf("kernel", name, shape, dtype)
        self._nodes[node]["inputs"] = [[index, 0, 0] for index in inputs]
        self._nodes[node]["attrs"].update({**attrs, "num_inputs": len(inputs), "num_outputs": 1})
        return node

    def finish(self, outputs: Sequence[int]) -> dict[str, Any]:
        """Return the whole graph as plain data."""
        leaves = [i for i, node in enumerate(self._nodes) if node["op"] != "kernel"]
        return {
            "nodes": self._nodes,
            "arg_nodes": leaves,
            "heads": [[index, 0, 0] for index in outputs],
            "node_row_ptr": list(range(len(self._nodes) + 1)),
        }


def document(region: Region) -> dict[str, Any]:
    """Return the graph of a region as plain data."""
    writer = GraphWriter()
    names = {
        id(operand): name
        for operand, (name, _) in zip(region.constant_operands(), region.constants(), strict=True)
    }
    by_tensor = {
        name: writer.leaf("input", name, region.shapes[name], region.dtype)
        for name in region.inputs
    }
    by_constant: dict[int, int] = {}

    def index_of(operand: Operand) -> int:
        if operand.value is None:
            return by_tensor[operand.name]
        key = id(operand)
        if key not in by_constant:
            shape = operand.value.shape
            by_constant[key] = writer.leaf("const", names[key], shape, region.dtype)
        return by_constant[key]

    for operator in region.operators:
        inputs = [index_of(operand) for operand in operator.inputs]
        attrs = operator.attrs
        if region.sum_dtype:
            attrs = {**attrs, "sum_dtype": region.sum_dtype}
        by_tensor[operator.output] = writer.kernel(
            operator.name, inputs, operator.shape, region.dtype, attrs
        )
    return writer.finish([by_tensor[name] for name in region.outputs])


def document_text(region: Region) -> str:
    """Return the graph of a region as compact JSON."""
    return plain_text(document(region))


def plain_text(graph: dict[str, Any]) -> str:
    """Return a graph as compact JSON."""
    return json.dumps(graph, separators=(",", ":"), ensure_ascii=False)
