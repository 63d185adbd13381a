"""Latent attention (MLA) as attention over the rows that its caches hold.

Before -> after:
    keys, values = products of the rows of two caches     (other tensors hold both caches' rows)
    y = attention(q, keys, values)                        y = V attention(K^T q, rows, rows)

Rows have the numbers of both caches, one behind the other, and stand for the keys and the values of
all heads: so each of both caches holds them, and both are of one head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.found_attention import FoundAttention
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType
from adrenoc.importers.onnx.position_tables import PositionTables


def widen_caches(graph: OnnxGraph, joined: OnnxGraph, one: FoundAttention) -> None:
    """Have both caches of a latent attention hold rows of both, in a file's graph and in ours."""
    assert one.latent is not None
    for cache in (one.keys, one.values):
        for at, spec in enumerate(graph.inputs):
            if spec.name == cache.past:
                shape = (*spec.shape[:-1], one.latent.width)
                graph.inputs[at] = replace(spec, shape=shape)
                known = replace(graph.types[cache.past], shape=shape)
                graph.types[cache.past] = joined.types[cache.present] = known


def read_latent(
    nodes: list[onnx.NodeProto], tables: PositionTables, one: FoundAttention
) -> tuple[str, str]:
    """Return what looks for rows in place of queries [1, heads, tokens, numbers], and new rows."""
    assert one.latent is not None
    graph, tokens = tables.graph, tables.tokens
    heads = len(one.latent.keys)
    queries, rows = tables.name("latent queries"), tables.name("latent rows")
    # [heads, numbers of a key, numbers of a row]
    turned = tables.intern(one.latent.keys.transpose(0, 2, 1))
    nodes.append(helper.make_node("MatMul", [one.query, turned], [queries]))
    nodes.append(helper.make_node("Concat", [one.keys.new, one.values.new], [rows], axis=-1))
    element = graph.types[one.query].element
    for name, count in ((queries, heads), (rows, 1)):
        shape = (1, count, tokens, one.latent.width)
        graph.types[name] = TensorType(element=element, shape=shape)
    return queries, rows


def hand_out_latent(
    nodes: list[onnx.NodeProto],
    tables: PositionTables,
    one: FoundAttention,
    mixed: str,
    reshape: Callable[..., onnx.NodeProto],
) -> None:
    """The result of each head out of the rows that it mixed."""
    assert one.latent is not None
    heads, width, numbers = one.latent.values.shape
    apart, turned, made = (tables.name(n) for n in ("by heads", "heads first", "latent values"))
    nodes.append(reshape(mixed, apart, 1, tables.tokens, heads, width))
    nodes.append(helper.make_node("Transpose", [apart], [turned], perm=[0, 2, 1, 3]))
    matrix = tables.intern(np.ascontiguousarray(one.latent.values))
    nodes.append(helper.make_node("MatMul", [turned, matrix], [made]))
    known = tables.graph.shape_of(one.out) or (1, heads, tables.tokens, numbers)
    nodes.append(reshape(made, one.out, *known))
