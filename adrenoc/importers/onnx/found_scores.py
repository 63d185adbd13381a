"""Scales, caps and masks between the product of queries and keys and its softmax.

Masks are constants in a graph that was folded for one length of its past (`probe.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from adrenoc.importers.onnx.graph import OnnxGraph

FAR = -1e4
"""What is added to scores that are not to count is below."""
MOST_STEPS = 24
"""Between two tensors that belong together: chains of exporters are far shorter."""


@dataclass(frozen=True, kw_only=True)
class FoundMask:
    """A constant that says which rows count: booleans, or numbers that are added.

    With `turned` its true ones do not.
    """

    name: str
    turned: bool = False


@dataclass(kw_only=True)
class Scores:
    """Scales, caps and masks between a product and its softmax."""

    graph: OnnxGraph
    makers: Mapping[str, onnx.NodeProto]
    scale: float = 1.0
    cap: float = 0.0
    masks: list[FoundMask] = field(default_factory=list)

    def read(self, name: str) -> onnx.NodeProto | None:
        """Follow a tensor back to the product of queries and keys."""
        for _ in range(MOST_STEPS):
            node = self.makers.get(name)
            if node is None:
                return None
            if node.op_type == "MatMul":
                return node
            factor = scalar_factor(self.graph, node)
            before = self._mask_before(node)
            if factor is not None:
                name, self.scale = factor[0], self.scale * factor[1]
            elif node.op_type == "Tanh" and not self.cap and self.scale > 0:
                self.cap, self.scale = self.scale, 1.0
                name = node.input[0]
                inner = self.makers.get(name)
                divided = None if inner is None else scalar_factor(self.graph, inner)
                if divided is None or abs(divided[1] * self.cap - 1) > 1e-5:
                    return None
                name = divided[0]
            elif before:
                name = before
            elif node.op_type in ("Cast", "Identity"):
                name = node.input[0]
            else:
                return None
        return None

    def _mask_before(self, node: onnx.NodeProto) -> str:
        """The scores that a node masks; empty where it does something else."""
        constants = self.graph.constants
        if node.op_type == "Add":
            for at in (0, 1):
                if node.input[at] in constants and self.scale == 1.0:
                    self.masks.append(FoundMask(name=node.input[at]))
                    return str(node.input[1 - at])
        if node.op_type == "Where" and node.input[0] in constants and self.scale == 1.0:
            for at, other in ((1, 2), (2, 1)):
                filled = constants.get(node.input[other])
                if filled is not None and node.input[at] not in constants and (filled <= FAR).all():
                    self.masks.append(FoundMask(name=node.input[0], turned=at == 2))
                    return str(node.input[at])
        return ""


def scalar_factor(graph: OnnxGraph, node: onnx.NodeProto) -> tuple[str, float] | None:
    """The tensor that a node multiplies by one number, and the number."""
    if node.op_type not in ("Mul", "Div") or len(node.input) != 2:
        return None
    for at in (0, 1) if node.op_type == "Mul" else (1,):
        value = graph.constants.get(node.input[at])
        if value is not None and value.size == 1 and node.input[1 - at] not in graph.constants:
            number = float(value.reshape(-1)[0])
            factor = number if node.op_type == "Mul" else 1 / number
            return str(node.input[1 - at]), factor
    return None


def read_mask(
    values: Mapping[str, np.ndarray], masks: Sequence[FoundMask], tokens: int, rows: int
) -> np.ndarray | None:
    """Which rows each token sees, [tokens, rows]; None where a mask says something else."""
    seen = np.ones((tokens, rows), bool)
    for mask in masks:
        value = values.get(mask.name)
        if value is None:
            return None
        if value.dtype == bool:
            allowed = ~value if mask.turned else value
        elif (hidden := value <= FAR).any() or not value.any():
            if value[~hidden].any():
                return None
            allowed = ~hidden
        else:
            return None
        try:
            wide = np.broadcast_to(allowed, (*allowed.shape[:-2], tokens, rows))
        except ValueError:
            return None
        flat = wide.reshape(-1, tokens, rows)
        if not (flat == flat[:1]).all():
            return None
        seen &= flat[0]
    return seen
