"""Keys and values that products make of what two caches hold, as of latent attention (MLA).

    keys[h]   = K_h row          of a row that has both caches' numbers, one behind the other
    values[h] = V_h row

However an exporter spells that, the matrices come out where each row is one unit vector.  With
them, scores and results need no keys and values:

    scores = q_h . (K_h row) = (K_h^T q_h) . row          y_h = sum(p V_h row) = V_h sum(p row)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from adrenoc.importers.onnx.graph import OnnxGraph
from adrenoc.importers.onnx.probe import Prober, evaluate_chain

_MOST_NODES = 64
"""Between caches and the product that reads keys or values: exporters need some twenty."""
_BY_HEADS = 4
"""Axes of keys and values with their batch."""


@dataclass(frozen=True, kw_only=True)
class FoundLatent:
    """Two tensors that hold caches, of one head each, and the matrices of all heads.

    `keys` and `values` are [heads, numbers of a row, numbers of a key or value].
    """

    sources: tuple[str, ...]
    keys: np.ndarray
    values: np.ndarray

    @property
    def width(self) -> int:
        """Numbers of a row of both caches."""
        return int(self.keys.shape[1])


@dataclass(kw_only=True)
class LatentFinder:
    """Looks at what is between caches and products, in a graph for as many rows as that takes."""

    prober: Prober
    tokens: int
    _folded: dict[int, OnnxGraph] = field(default_factory=dict)

    def find(
        self, graph: OnnxGraph, caches: Collection[str], keys: str, values: str, *, turned: bool
    ) -> FoundLatent | None:
        """Return the matrices of keys, perhaps turned, and of values; None where there are no such
        ones.

        `caches` are the tensors that hold caches with their new rows, in their order.
        """
        parts = [_collect(graph, name, caches) for name in (keys, values)]
        reached = {source for part in parts if part is not None for source in part.sources}
        sources = tuple(name for name in caches if name in reached)
        if None in parts or len(sources) != 2:
            return None
        shapes = [graph.shape_of(name) or () for name in sources]
        if any(len(shape) != _BY_HEADS or shape[:2] != (1, 1) for shape in shapes):
            return None
        widths = [shape[3] for shape in shapes]
        wide = self._fold(max(sum(widths), self.tokens + 1))
        found = [
            _find_matrix(wide, name, dict(zip(sources, widths, strict=True)), turned=is_turned)
            for name, is_turned in ((keys, turned), (values, False))
        ]
        if found[0] is None or found[1] is None or len(found[0]) != len(found[1]):
            return None
        return FoundLatent(sources=sources, keys=found[0], values=found[1])

    def _fold(self, rows: int) -> OnnxGraph:
        if rows not in self._folded:
            self._folded[rows] = self.prober.fold(self.tokens, rows - self.tokens)
        return self._folded[rows]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Nodes in their order, and the tensors that they begin with."""

    nodes: list[onnx.NodeProto]
    sources: frozenset[str]


def _collect(graph: OnnxGraph, name: str, sources: Collection[str]) -> _Part | None:
    """Return what makes a tensor of `sources` and constants; None where it is made of more."""
    makers = {out: node for node in graph.nodes for out in node.output if out}
    wanted, reached = [name], set()
    nodes: dict[int, onnx.NodeProto] = {}
    while wanted:
        one = wanted.pop()
        if one in sources:
            reached.add(one)
        elif one and one not in graph.constants:
            node = makers.get(one)
            if node is None or len(nodes) == _MOST_NODES:
                return None
            if id(node) not in nodes:
                nodes[id(node)] = node
                wanted += node.input
    if not reached:
        return None
    ordered = [node for node in graph.nodes if id(node) in nodes]
    return _Part(nodes=ordered, sources=frozenset(reached))


def _find_matrix(
    graph: OnnxGraph, name: str, widths: Mapping[str, int], *, turned: bool
) -> np.ndarray | None:
    """Return the matrices [heads, numbers of a row, numbers of a result]; None where there are
    none."""
    part = _collect(graph, name, widths.keys())
    if part is None:
        return None
    first = next(iter(widths))
    rows, whole = (graph.shape_of(first) or ())[2], sum(widths.values())
    unit = _apply(graph, part, name, np.eye(rows, whole), widths, turned=turned)
    noise = np.random.default_rng(0).standard_normal((rows, whole))
    seen = _apply(graph, part, name, noise, widths, turned=turned)
    if unit is None or seen is None:
        return None
    matrix = unit[:, :whole]
    made = noise.astype(unit.dtype).astype(np.float64) @ matrix.astype(np.float64)
    tolerance = 64 * float(np.finfo(unit.dtype).eps) * max(float(np.abs(made).max()), 1e-30)
    return matrix if np.allclose(seen, made, rtol=0, atol=tolerance) else None


def _apply(
    graph: OnnxGraph,
    part: _Part,
    name: str,
    rows: np.ndarray,
    widths: Mapping[str, int],
    *,
    turned: bool,
) -> np.ndarray | None:
    """Return what nodes make of rows: [heads, rows, numbers]; None where they make something
    else."""
    ends = np.cumsum(list(widths.values()))[:-1]
    given = {}
    for source, numbers in zip(widths, np.split(rows, ends, axis=1), strict=True):
        given[source] = numbers[None, None].astype(graph.types[source].dtype)
    seen = evaluate_chain(graph, part.nodes, given, name)
    if seen is None or seen.ndim not in (_BY_HEADS - 1, _BY_HEADS) or seen.dtype.kind != "f":
        return None
    if seen.ndim == _BY_HEADS:
        if len(seen) != 1:
            return None
        seen = seen[0]
    seen = seen.transpose(0, 2, 1) if turned else seen
    return seen if seen.shape[1] == len(rows) else None
