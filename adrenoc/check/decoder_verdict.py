"""What one token of a decoder takes: bytes through the memory bus, launches, a floor of time."""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.check.verdict import DecoderVerdict, NodeVerdict
from adrenoc.ir.graph import Graph
from adrenoc.passes.lower.plan_memory import size_bytes
from adrenoc.target.roofline import Roofline

CACHE_AXES = 4
"""Batch, heads, rows, numbers of a head."""
_READ_IN_PART = {"take", "append_rows", "cached_attention"}
"""Operators that read a row or so of their constants: a token's embedding, its angles."""


def judge_decoder(
    graph: Graph, nodes: Sequence[NodeVerdict], launches: int, roofline: Roofline
) -> DecoderVerdict | None:
    """Return the verdict on a plan of one token; None of a graph without caches."""
    if not graph.states:
        return None
    pasts = tuple(graph.states.values())
    cache = sum(size_bytes(graph.operand(name)) for name in pasts)
    weights = sum(n.weight_bytes for n in nodes if not _READ_IN_PART & set(n.operators))
    shapes = [graph.tensors[name].shape for name in pasts]
    rows = [shape[2] for shape in shapes if len(shape) == CACHE_AXES]
    rate = roofline.bytes_per_us
    return DecoderVerdict(
        rows=max(rows, default=0),
        weight_bytes=weights,
        cache_bytes=cache,
        launches=launches,
        tokens_per_s=_tokens_per_s(rate, weights),
        full_tokens_per_s=_tokens_per_s(rate, weights + cache),
    )


def _tokens_per_s(rate: float | None, size: int) -> float | None:
    """Return the most tokens a second of `size` bytes each; None of no bytes, or at no stated
    rate."""
    return 1e6 * rate / size if rate is not None and size else None
