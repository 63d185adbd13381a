"""What a decoder's graph computes of extents, masks and positions alone, for a past of some rows.

Exporters write masks and positions in as many ways as there are exporters; with the extents known
and a mask of ones all of that is constants, whichever way they took.

Keys and values that products make of what two caches hold, as of latent attention (MLA).

    keys[h]   = K_h row          of a row that has both caches' numbers, one behind the other
    values[h] = V_h row

However an exporter spells that, the matrices come out where each row is one unit vector.  With
them, scores and results need no keys and values:

    scores = q_h . (K_h row) = (K_h^T q_h) . row          y_h = sum(p V_h row) = V_h sum(p row)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
from onnx import NodeProto

from adrenoc.bundle.chat import MASK, POSITIONS, TOKENS
from adrenoc.importers.onnx.fold import fold_constants
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, copy_node, is_standard


def choose_pasts(tokens: int, rows: int) -> tuple[int, int]:
    """Return two lengths of a past to look at a graph with, within caches of `rows` if they fit."""
    room = max(rows - tokens, 2)
    return min(5, room - 1), min(9, room)


@dataclass(frozen=True, kw_only=True)
class ExtentProber:
    """A graph whose inputs get other extents: `caches` are its pasts."""

    graph: OnnxGraph
    caches: frozenset[str]
    _known: dict[tuple[tuple[str, ...], int, int], dict[str, np.ndarray]] = field(
        default_factory=dict
    )

    def fold(self, tokens: int, past: int, outputs: Sequence[str] = ()) -> OnnxGraph:
        """Return a folded copy for so many tokens behind so many; of `outputs` alone if given."""
        source = self.graph
        copy = OnnxGraph(
            nodes=[copy_node(node) for node in source.nodes],
            inputs=list(source.inputs),
            outputs=list(outputs or source.outputs),
            opset=source.opset,
            constants=dict(source.constants),
            types=dict(source.types),
        )
        if outputs:
            copy.drop_unused()
        for spec in source.inputs:
            shape = list(spec.shape)
            if spec.name in self.caches:
                shape[2] = past
            elif spec.name == MASK:
                shape[-1] = tokens + past
            elif spec.name in (POSITIONS, TOKENS):
                shape[-1] = tokens
            copy.types[spec.name] = replace(source.types[spec.name], shape=tuple(shape))
            if spec.name == MASK:
                copy.set_constant(MASK, np.ones(shape, spec.dtype))
            elif spec.name == POSITIONS:
                rows = np.arange(past, past + tokens, dtype=spec.dtype)
                copy.set_constant(POSITIONS, np.broadcast_to(rows, shape).copy())
        fold_constants(copy)
        return copy

    def values(self, names: Sequence[str], tokens: int, past: int) -> dict[str, np.ndarray]:
        """Return what tensors that hang on extents alone hold then."""
        key = (tuple(names), tokens, past)
        if key not in self._known:  # layers share masks and tables
            held = self.fold(tokens, past, names).constants
            self._known[key] = {name: held[name] for name in names if name in held}
        return self._known[key]

    def find_hanging(self, names: Iterable[str]) -> list[str]:
        """Find which of `names` are computed of an input, if only of its extents."""
        return [name for name in names if name in self._touched]

    @cached_property
    def _touched(self) -> frozenset[str]:
        touched = {spec.name for spec in self.graph.inputs}
        for node in self.graph.nodes:
            if touched.intersection(node.input):
                touched.update(name for name in node.output if name)
        return frozenset(touched)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The nodes, in their order, that make a tensor, `result`, of others and of constants."""

    graph: OnnxGraph
    nodes: list[NodeProto]
    sources: frozenset[str]
    result: str

    @property
    def source(self) -> str:
        """The only tensor that it begins with."""
        (source,) = self.sources
        return source

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Return the constants that its nodes read."""
        held = self.graph.constants
        return {n: held[n] for node in self.nodes for n in node.input if n in held}

    def evaluate(self, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return what its nodes make of the values `given` for tensors; None where they do more."""
        held = self.constants
        types = {n: self.graph.types[n] for n in held}
        for name, value in given.items():
            element = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            types[name] = TensorType(element=element, shape=value.shape)
        part = OnnxGraph(
            nodes=[copy_node(node) for node in self.nodes],
            inputs=[],
            outputs=[self.result],
            opset=self.graph.opset,
            constants={**held, **given},
            types=types,
        )
        fold_constants(part)
        return part.constants.get(self.result)

    def try_numbers(
        self, shape: Sequence[int], size: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return numbers of about a size, by chance, and what is made of them."""
        numbers = size * np.random.default_rng(0).standard_normal(shape)
        given = numbers.astype(self.graph.types[self.source].dtype)
        return given, self.evaluate({self.source: given})


def collect_chain(graph: OnnxGraph, name: str, sources: Collection[str]) -> Chain | None:
    """Return what makes a tensor of `sources` and constants; None where it is made of more."""
    makers = graph.makers()
    wanted, reached = [name], set()
    nodes: dict[int, NodeProto] = {}
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
    ordered = [node for node in graph.nodes if id(node) in nodes]
    whole = Chain(graph=graph, nodes=ordered, sources=frozenset(reached), result=name)
    return whole if reached else None


def look_back(graph: OnnxGraph, name: str, kinds: Collection[str]) -> Iterator[Chain]:
    """Yield how a tensor is made, by operators of such kinds alone, of each of the same type that
    all of it passes through, from the nearest on."""
    wanted, reached = graph.types.get(name), {name}
    nodes: list[NodeProto] = []
    for node in reversed(graph.nodes) if wanted is not None and wanted.shape else ():
        if reached.isdisjoint(node.output):
            continue
        if not is_standard(node) or node.op_type not in kinds:
            break
        nodes.insert(0, node)
        reached.difference_update(node.output)
        reached.update(n for n in node.input if n and n not in graph.constants)
        if len(reached) == 1 and graph.types.get(*reached) == wanted:
            yield Chain(graph=graph, nodes=list(nodes), sources=frozenset(reached), result=name)


_ROUNDED, _ROUNDED_SUMS = 16, 64
"""How many units in the last place of the largest number a chain may be off; long sums more."""


def is_near(seen: np.ndarray | None, made: np.ndarray, units: int = _ROUNDED) -> bool:
    """Return whether a chain made these numbers, but for what it rounds."""
    if seen is None or seen.shape != made.shape or seen.dtype.kind != "f":
        return False
    tolerance = units * float(np.finfo(seen.dtype).eps) * float(np.abs(made).max())
    return np.allclose(seen, made, rtol=0, atol=tolerance)


_MOST_NODES = 64
"""Between caches and the product that reads keys or values: exporters need some twenty."""
BATCHED = 4
"""Axes of queries, keys and values with their batch."""


@dataclass(frozen=True, kw_only=True)
class FoundLatent:
    """Two tensors that hold caches, of one head each, and the matrices of all heads. `keys` and
    `values` are [heads, numbers of a row, numbers of a key or value]."""

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

    prober: ExtentProber
    tokens: int
    _folded: dict[int, OnnxGraph] = field(default_factory=dict)

    def find(
        self, graph: OnnxGraph, caches: Collection[str], keys: str, values: str, *, turned: bool
    ) -> FoundLatent | None:
        """Return the matrices of keys, perhaps turned, and of values; None where there are no such
        ones. `caches` are the tensors that hold caches with their new rows, in their order."""
        parts = [collect_chain(graph, name, caches) for name in (keys, values)]
        reached = {source for part in parts if part is not None for source in part.sources}
        sources = tuple(name for name in caches if name in reached)
        if None in parts or len(sources) != 2:
            return None
        shapes = [graph.shape_of(name) or () for name in sources]
        if any(len(shape) != BATCHED or shape[:2] != (1, 1) for shape in shapes):
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


def _find_matrix(
    graph: OnnxGraph, name: str, widths: Mapping[str, int], *, turned: bool
) -> np.ndarray | None:
    """Return the matrices [heads, numbers of a row, numbers of a result]; None where none are."""
    chain = collect_chain(graph, name, widths)
    if chain is None:
        return None
    first = next(iter(widths))
    rows, whole = (graph.shape_of(first) or ())[2], sum(widths.values())
    unit = _apply(chain, np.eye(rows, whole), widths, turned=turned)
    noise = np.random.default_rng(0).standard_normal((rows, whole))
    seen = _apply(chain, noise, widths, turned=turned)
    if unit is None:
        return None
    matrix = unit[:, :whole]
    made = noise.astype(unit.dtype).astype(np.float64) @ matrix.astype(np.float64)
    return matrix if is_near(seen, made, _ROUNDED_SUMS) else None


def _apply(
    chain: Chain, rows: np.ndarray, widths: Mapping[str, int], *, turned: bool
) -> np.ndarray | None:
    """Return what nodes make of rows: [heads, rows, numbers]; None where it is something else."""
    ends = np.cumsum(list(widths.values()))[:-1]
    given = {}
    for source, numbers in zip(widths, np.split(rows, ends, axis=1), strict=True):
        given[source] = numbers[None, None].astype(chain.graph.types[source].dtype)
    seen = chain.evaluate(given)
    if seen is None or seen.ndim not in (BATCHED - 1, BATCHED) or seen.dtype.kind != "f":
        return None
    if seen.ndim == BATCHED:
        if len(seen) != 1:
            return None
        seen = seen[0]
    seen = seen.transpose(0, 2, 1) if turned else seen
    return seen if seen.shape[1] == len(rows) else None
