"""Region -> the JSON graph that TVM's CLML runtime reads.

The form is the one of TVM 0.27's `JSONSerializer`: inputs first, constants where they are first
read, kernels after their inputs; attributes are typed; `shape` and `dtype` hold an entry for each
output; kernels count their inputs and outputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from adrenoc.clml.region import Operand, Region


def document(region: Region) -> dict[str, Any]:
    """The graph as plain data."""
    return _Writer(region).write()


def document_text(region: Region) -> str:
    """The graph as compact JSON."""
    return json.dumps(document(region), separators=(",", ":"), ensure_ascii=False)


class _Writer:
    def __init__(self, region: Region) -> None:
        self._region = region
        self._nodes: list[dict[str, Any]] = []
        self._ids: dict[str, int] = {}
        """Tensor of the graph -> the node that makes it."""
        self._constant_ids: dict[int, int] = {}
        self._constant_names = {
            id(operand): name
            for operand, (name, _) in zip(
                region.constant_operands(), region.constants(), strict=True
            )
        }

    def write(self) -> dict[str, Any]:
        region = self._region
        for name in region.inputs:
            self._ids[name] = self._add("input", name, region.shapes[name], {})
        for operator in region.operators:
            entries = [[self._id_of(operand), 0, 0] for operand in operator.inputs]
            attrs = {**operator.attrs, "num_inputs": len(entries), "num_outputs": 1}
            node = self._add("kernel", operator.name, operator.shape, attrs)
            self._nodes[node]["inputs"] = entries
            self._ids[operator.output] = node
        leaves = [i for i, node in enumerate(self._nodes) if node["op"] != "kernel"]
        return {
            "nodes": self._nodes,
            "arg_nodes": leaves,
            "heads": [[self._ids[name], 0, 0] for name in region.outputs],
            "node_row_ptr": list(range(len(self._nodes) + 1)),
        }

    def _id_of(self, operand: Operand) -> int:
        if operand.value is None:
            return self._ids[operand.name]
        known = self._constant_ids.get(id(operand))
        if known is None:
            name = self._constant_names[id(operand)]
            known = self._add("const", name, operand.value.shape, {})
            self._constant_ids[id(operand)] = known
        return known

    def _add(self, kind: str, name: str, shape: Sequence[int], attrs: dict[str, Any]) -> int:
        entry = {"shape": [list(shape)], "dtype": [self._region.dtype], **attrs}
        self._nodes.append({"op": kind, "name": name, "attrs": entry})
        return len(self._nodes) - 1
