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
LOWEST = -6e4
"""What bounds scores from below and bounds none that counts: the lowest half, or beyond."""
MOST_STEPS = 24
"""Between two tensors that belong together: chains of exporters are far shorter."""
MOST_MASK_AXES = 4
"""Batch, head, token, row; or batch and head in one."""


@dataclass(frozen=True, kw_only=True)
class FoundMask:
    """A constant that says which rows count: booleans, or numbers that are added.

    With `turned` its true ones do not; numbers are multiplied by `factor` behind it.
    """

    name: str
    turned: bool = False
    factor: float = 1.0


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
            elif node.op_type in ("Cast", "Identity") or parts_heads(self.graph, node):
                name = node.input[0]
            else:
                return None
        return None

    def _mask_before(self, node: onnx.NodeProto) -> str:
        """Return the scores that a node masks or bounds from far below; empty where it does
        something else."""
        constants = self.graph.constants
        if self.cap:  # what is added before the bound is bounded too
            return ""
        if node.op_type == "Add":
            for at in (0, 1):
                if node.input[at] in constants:
                    self.masks.append(FoundMask(name=node.input[at], factor=self.scale))
                    return str(node.input[1 - at])
        if node.op_type == "Where" and node.input[0] in constants:
            for at, other in ((1, 2), (2, 1)):
                filled = constants.get(node.input[other])
                if filled is None or node.input[at] in constants:
                    continue
                if (filled * self.scale <= FAR).all():
                    self.masks.append(FoundMask(name=node.input[0], turned=at == 2))
                    return str(node.input[at])
        if node.op_type == "Max" and len(node.input) == 2:
            for at in (0, 1):
                bound = constants.get(node.input[at])
                if bound is not None and (bound * self.scale <= LOWEST).all():
                    return str(node.input[1 - at])
        return ""


def parts_heads(graph: OnnxGraph, node: onnx.NodeProto) -> bool:
    """Return whether a Reshape takes batch and heads apart or together, and leaves the rest
    alone."""
    if node.op_type != "Reshape":
        return False
    before, after = graph.shape_of(node.input[0]), graph.shape_of(node.output[0])
    return before is not None and after is not None and before[-2:] == after[-2:]


def scalar_factor(graph: OnnxGraph, node: onnx.NodeProto) -> tuple[str, float] | None:
    """Return the tensor that a node multiplies by one number, and the number."""
    if node.op_type not in ("Mul", "Div") or len(node.input) != 2:
        return None
    for at in (0, 1) if node.op_type == "Mul" else (1,):
        value = graph.constants.get(node.input[at])
        if value is not None and value.size == 1 and node.input[1 - at] not in graph.constants:
            number = float(value.reshape(-1)[0])
            factor = number if node.op_type == "Mul" else 1 / number
            return str(node.input[1 - at]), factor
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """Which rows each token sees [tokens, rows], and what is added to scores [heads, tokens, rows].

    `added` is None where nothing is, and nothing where a row is not seen.  `precision` is that of
    the numbers that were added.
    """

    rows: np.ndarray
    added: np.ndarray | None
    precision: float = float(np.finfo(np.float32).eps)

    def bias(self, past: int, *, is_shifted: bool) -> np.ndarray:
        """Return what is added; with `is_shifted` less what each token adds to its own score."""
        tokens, rows = self.rows.shape
        added = np.zeros((1, tokens, rows)) if self.added is None else self.added
        if is_shifted:
            numbers = np.arange(tokens)
            added = added - added[:, numbers, past + numbers][:, :, None]
        shown: np.ndarray = np.where(self.rows, added, 0.0)
        return shown


def read_masks(
    values: Mapping[str, np.ndarray], masks: Sequence[FoundMask], tokens: int, rows: int
) -> Seen | None:
    """Return what masks say together; None where they say something else, as of each head other
    rows."""
    seen, added = np.ones((tokens, rows), bool), np.zeros((1, tokens, rows))
    precision = float(np.finfo(np.float32).eps)
    for mask in masks:
        wide = _spread(values.get(mask.name), tokens, rows)
        if wide is None:
            return None
        if wide.dtype == bool:
            allowed = ~wide if mask.turned else wide
        else:
            scaled = wide.astype(np.float64) * mask.factor
            allowed = scaled > FAR
            added = added + np.where(allowed, scaled, 0.0)
            precision = max(precision, float(np.finfo(wide.dtype).eps))
        if not (allowed == allowed[:1]).all():
            return None
        seen &= allowed[0]
    added = np.where(seen, added, 0.0)
    return Seen(rows=seen, added=added if added.any() else None, precision=precision)


def _spread(value: np.ndarray | None, tokens: int, rows: int) -> np.ndarray | None:
    """Return a mask of a batch of one as [1 or heads, tokens, rows]; None where it is no such
    thing."""
    if value is None or value.dtype.kind not in "bf" or value.ndim > MOST_MASK_AXES:
        return None
    apart = value.reshape(-1, *np.atleast_2d(value).shape[-2:])
    if apart.shape[1] not in (1, tokens) or apart.shape[2] not in (1, rows):
        return None
    return np.broadcast_to(apart, (len(apart), tokens, rows))
