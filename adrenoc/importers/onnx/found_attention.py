"""Attention over a growing past as exporters spell it out: scores, mask, softmax, mix.

    present = Concat(past, new, axis 2)
    scores = MatMul(q * a, transposed(repeated(present keys)) * b) * c + mask
    y = MatMul(Softmax(scores), repeated(present values))

or by the standard's Attention.  Graphs are read folded (`probe.py`): shapes, masks and scales are
constants, and onnxruntime's MultiHeadAttention is spelt out.

Scales, caps and masks between the product of queries and keys and its softmax.

Masks are constants in a graph that was folded for one length of its past (`probe.py`).

What stands around the softmax of an attention: scores of no row before it, the mix behind it.

scores = Concat(scores of rows, a number of each head, last axis)
weights = Slice(Softmax(scores), all but the last)
y = MatMul(weights, values)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

from adrenoc.importers.onnx.graph import OnnxGraph, attributes, is_standard
from adrenoc.importers.onnx.probe import BATCHED, Chain, FoundLatent, LatentFinder, collect_chain

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
    """A constant that says which rows count: booleans, or numbers that are added. With `turned` its
    true ones do not; numbers are multiplied by `factor` behind it."""

    name: str
    turned: bool = False
    factor: float = 1.0


@dataclass(kw_only=True)
class ScoreReader:
    """Scales, caps and masks between a product and its softmax."""

    graph: OnnxGraph
    makers: Mapping[str, NodeProto]
    scale: float = 1.0
    cap: float = 0.0
    masks: list[FoundMask] = field(default_factory=list)

    def read(self, name: str) -> NodeProto | None:
        """Follow a tensor back to the product of queries and keys."""
        for _ in range(MOST_STEPS):
            node = self.makers.get(name)
            if node is None:
                return None
            if node.op_type == "MatMul":
                return node
            factor = _scalar_factor(self.graph, node)
            before = self._mask_before(node)
            if factor is not None:
                name, self.scale = factor[0], self.scale * factor[1]
            elif node.op_type == "Tanh" and not self.cap and self.scale > 0:
                self.cap, self.scale = self.scale, 1.0
                name = node.input[0]
                inner = self.makers.get(name)
                divided = None if inner is None else _scalar_factor(self.graph, inner)
                if divided is None or abs(divided[1] * self.cap - 1) > 1e-5:
                    return None
                name = divided[0]
            elif before:
                name = before
            elif node.op_type in ("Cast", "Identity") or _parts_heads(self.graph, node):
                name = node.input[0]
            else:
                return None
        return None

    def _mask_before(self, node: NodeProto) -> str:
        """Return the scores that a node masks or bounds from far below; else empty."""
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


def _parts_heads(graph: OnnxGraph, node: NodeProto) -> bool:
    """Return whether a Reshape parts or joins batch and heads, and leaves the rest alone."""
    if node.op_type != "Reshape":
        return False
    before, after = graph.shape_of(node.input[0]), graph.shape_of(node.output[0])
    return before is not None and after is not None and before[-2:] == after[-2:]


def _scalar_factor(graph: OnnxGraph, node: NodeProto) -> tuple[str, float] | None:
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
    the numbers that were added."""

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
    """Return what masks say together; None where it is something else, as rows of single heads."""
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
    """Return a mask of a batch of one as [1 or heads, tokens, rows]; None where it is none."""
    if value is None or value.dtype.kind not in "bf" or value.ndim > MOST_MASK_AXES:
        return None
    apart = value.reshape(-1, *np.atleast_2d(value).shape[-2:])
    if apart.shape[1] not in (1, tokens) or apart.shape[2] not in (1, rows):
        return None
    return np.broadcast_to(apart, (len(apart), tokens, rows))


_MOVES = (
    "Reshape",
    "Transpose",
    "Expand",
    "Unsqueeze",
    "Squeeze",
    "Mul",
    "Div",
    "Cast",
    "Identity",
)
"""What stands between a cache and the product that reads it."""


@dataclass(frozen=True, kw_only=True)
class FoundCache:
    """The new rows of a cache [1, heads, tokens, head], and the tensors that hold it with them."""

    past: str
    present: str
    new: str


@dataclass(kw_only=True)
class FoundAttention:
    """One attention: `query` [1, heads, tokens, head], or that without its batch, gives `out`.

    `sinks` are scores of no row, one a head.  With `causal` it masks by itself: rows after each
    token, or, where the past is joined `before` it, rows after as many as there are new tokens.
    Where it is `latent`, keys and values are made of both caches together."""

    query: str
    keys: FoundCache
    values: FoundCache
    out: str
    scale: float = 1.0
    cap: float = 0.0
    masks: list[FoundMask] = field(default_factory=list)
    sinks: np.ndarray | None = None
    causal: bool = False
    before: bool = False
    latent: FoundLatent | None = None


class AttentionFinder:
    """Looks for attentions over `caches`, by what holds them with the new rows."""

    def __init__(
        self, graph: OnnxGraph, caches: Sequence[tuple[str, str]], latents: LatentFinder
    ) -> None:
        self.graph = graph
        self._latents = latents
        self.makers, self.readers = graph.makers(), graph.readers()
        self.caches: dict[str, FoundCache] = {}
        for past, present in caches:
            name = present
            while (node := self.makers.get(name)) is not None and node.op_type == "Identity":
                name = node.input[0]
            new = self._new_rows(past, name)
            if new:
                self.caches[name] = FoundCache(past=past, present=present, new=new)

    def find(self) -> list[FoundAttention]:
        """Return all that are found, in the order of the graph."""
        found = []
        for node in self.graph.nodes:
            one = None
            if not is_standard(node):
                continue
            if node.op_type == "Softmax":
                one = self._of_softmax(node)
            elif node.op_type == "Attention":
                one = self._of_node(node)
            if one is not None:
                found.append(one)
        return found

    def _new_rows(self, past: str, name: str) -> str:
        """Return a cache's new rows, where the tensor `name` has them behind old; else empty."""
        node = self.makers.get(name)
        if node is None or not is_standard(node):
            return ""
        if node.op_type == "Concat":
            axis = attributes(node).get("axis")
            if len(node.input) == 2 and node.input[0] == past and axis in (2, -2):
                return str(node.input[1])
        if node.op_type == "Attention" and len(node.input) > 5:
            at = list(node.input).index(past) if past in node.input else 0
            if at in (4, 5) and list(node.output).index(name) == at - 3:
                return str(node.input[at - 3])
        return ""

    def _of_softmax(self, softmax: NodeProto) -> FoundAttention | None:
        axis = attributes(softmax).get("axis", -1)
        shape = self.graph.shape_of(softmax.input[0])
        if shape is None or axis not in (-1, len(shape) - 1):
            return None
        name, sinks = self._read_sinks(softmax.input[0])
        mixed = self._find_mix(softmax, sunk=sinks is not None)
        values = None if mixed is None else self._cache_behind(mixed.input[1], turned=False)
        scores = ScoreReader(graph=self.graph, makers=self.makers)
        product = scores.read(name)
        if mixed is None or product is None:
            return None
        keys = self._cache_behind(product.input[1], turned=True)
        latent = None
        if values is None or keys is None:
            both = product.input[1], mixed.input[1]
            latent = self._latents.find(self.graph, self.caches, *both, turned=True)
            if latent is None:
                return None
            keys, values = ((self.caches[name], 1.0) for name in latent.sources)
        if values[1] != 1.0:
            return None
        query, before = self._unscaled(product.input[0])
        scale = scores.scale * keys[1] * before
        return FoundAttention(
            query=query,
            latent=latent,
            keys=keys[0],
            values=values[0],
            out=self._take_apart(mixed.output[0]),
            scale=scale,
            cap=scores.cap,
            masks=scores.masks,
            sinks=sinks,
        )

    def _read_sinks(self, name: str) -> tuple[str, np.ndarray | None]:
        """Return the scores of rows that a softmax of `name` takes, and of no row, one a head."""
        node = self.makers.get(name)
        while node is not None and node.op_type in ("Cast", "Identity", "Sub"):
            if node.op_type == "Sub":  # of the largest of each row: the softmax is the same
                most = self.makers.get(node.input[1])
                if most is None or (most.op_type, most.input[0]) != ("ReduceMax", node.input[0]):
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

    def _find_mix(self, softmax: NodeProto, *, sunk: bool) -> NodeProto | None:
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
                instead = self.graph.constants.get(node.input[1])
                if node.input[2] != name or instead is None or instead.any():
                    return None
            elif sunk and self._drops_last(node):
                sunk = False
            elif node.op_type not in ("Cast", "Identity", "Dropout") and not _parts_heads(
                self.graph, node
            ):
                return None
            name = node.output[0]
        return None

    def _drops_last(self, node: NodeProto) -> bool:
        """Return whether a Slice leaves all but the last number of each row."""
        before, after = (self.graph.shape_of(n) for n in (node.input[0], node.output[0]))
        if node.op_type != "Slice" or before is None or after is None:
            return False
        start = self.graph.constants.get(node.input[1]) if len(node.input) > 1 else None
        begins = start is not None and not start.any()
        return begins and after == (*before[:-1], before[-1] - 1)

    def _take_apart(self, name: str) -> str:
        """Return what a tensor [heads, tokens, head] is with its batch, where it alone is read."""
        readers = self.readers.get(name, [])
        if len(readers) != 1 or not _parts_heads(self.graph, readers[0]):
            return name
        apart = str(readers[0].output[0])
        return apart if len(self.graph.shape_of(apart) or ()) == BATCHED else name

    def _of_node(self, node: NodeProto) -> FoundAttention | None:
        """Return the standard's own operator, on heads that are apart."""
        own = attributes(node)
        plain = {"qk_matmul_output_mode": 0, "softmax_precision": 1}
        shape = self.graph.shape_of(node.input[0])
        if any(own.get(name, value) != value for name, value in plain.items()):
            return None
        if shape is None or len(shape) != 4 or len(node.input) > 6:
            return None
        if len(node.output) > 3 and node.output[3]:
            return None
        found = []
        for at, name in enumerate(node.input[1:3], start=1):
            inside = node.output[at] if len(node.output) > at else ""
            held = (
                (self.caches[inside], 1.0)
                if inside in self.caches
                else self._cache_behind(name, turned=False)
            )
            if held is not None and held[1] == 1.0:
                found.append(held[0])
        latent = None
        if len(found) != 2:
            both = node.input[1], node.input[2]
            latent = self._latents.find(self.graph, self.caches, *both, turned=False)
            if latent is None:
                return None
            found = [self.caches[name] for name in latent.sources]
        masks = [FoundMask(name=n) for n in node.input[3:4] if n]
        if any(mask.name not in self.graph.constants for mask in masks):
            return None
        return FoundAttention(
            query=node.input[0],
            latent=latent,
            keys=found[0],
            values=found[1],
            out=node.output[0],
            scale=own.get("scale", shape[3] ** -0.5),
            cap=own.get("softcap", 0.0),
            masks=masks,
            causal=bool(own.get("is_causal", 0)),
            before=len(node.output) < 2,
        )

    def _cache_behind(self, name: str, *, turned: bool) -> tuple[FoundCache, float] | None:
        """Return the cache that a product reads, with what it is multiplied by. How its heads are
        repeated is looked at by numbers: each has to stand for those of a group."""
        chain = collect_chain(self.graph, name, self.caches)
        if chain is None or len(chain.sources) > 1:
            return None
        if any(node.op_type not in _MOVES for node in chain.nodes):
            return None
        scale = self._scale_of_chain(chain, turned=turned)
        return None if scale is None else (self.caches[chain.source], scale)

    def _scale_of_chain(self, chain: Chain, *, turned: bool) -> float | None:
        """Return what a cache is multiplied by; None where it does not come out by its heads."""
        made = self.graph.shape_of(chain.source)
        if made is None:
            return None
        held, seen = chain.try_numbers(made)
        if seen is None or seen.ndim not in (3, 4):
            return None
        seen = seen[None] if seen.ndim == 3 else seen
        expected = np.repeat(held, max(seen.shape[1] // made[1], 1), axis=1)
        if turned:
            expected = expected.transpose(0, 1, 3, 2)
        if seen.shape != expected.shape:
            return None
        ratio = float(np.median(seen.astype(np.float64) / expected))
        if not np.allclose(seen, expected * ratio, rtol=1e-3, atol=1e-6):
            return None
        return 1.0 if abs(ratio - 1) < 1e-7 else ratio

    def _unscaled(self, name: str) -> tuple[str, float]:
        """Return the tensor that is multiplied by numbers, with its batch, and their product."""
        scale = 1.0
        while (node := self.makers.get(name)) is not None:
            factor = _scalar_factor(self.graph, node)
            if factor is not None:
                name, scale = factor[0], scale * factor[1]
            elif _parts_heads(self.graph, node):
                if len(self.graph.shape_of(node.input[0]) or ()) != BATCHED:
                    break
                name = node.input[0]
            else:
                break
        return name, scale
