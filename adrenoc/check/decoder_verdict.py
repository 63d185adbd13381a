"""What one token of a decoder takes: bytes through the memory bus, launches, a floor of time."""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.check.verdict import DecoderVerdict, NodeVerdict
from adrenoc.ir.graph import Graph
from adrenoc.passes.lower.plan_memory import size_bytes
from adrenoc.target.roofline import Roofline

_READ_IN_PART = {"take", "append_rows", "cached_attention"}
"""Operators that read a row or so of their constants: a token's embedding, its angles."""


def judge_decoder(
    graph: Graph, nodes: Sequence[NodeVerdict], launches: int, roofline: Roofline
) -> DecoderVerdict | None:
    """The verdict on a plan of one token; None of a graph without caches."""
    if not graph.states:
        return None
    pasts = tuple(graph.states.values())
    cache = sum(size_bytes(graph.operand(name)) for name in pasts)
    weights = sum(n.weight_bytes for n in nodes if not _READ_IN_PART & set(n.operators))
    rate = roofline.bytes_per_us
    return DecoderVerdict(
        rows=graph.tensors[pasts[0]].shape[2],
        weight_bytes=weights,
        cache_bytes=cache,
        launches=launches,
        tokens_per_s=None if rate is None else 1e6 * rate / weights,
        full_tokens_per_s=None if rate is None else 1e6 * rate / (weights + cache),
    )
