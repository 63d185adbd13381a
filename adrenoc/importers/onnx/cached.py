"""Attention over keys and values of earlier tokens, as onnxruntime's own domain has it.

Before -> after:
    y, keys, values = com.microsoft.GroupQueryAttention(qkv, past keys, past values, ...)

    keys = adrenoc.AppendRows(past keys, qkv, row)      rotated where the operator rotates inside
    values = adrenoc.AppendRows(past values, qkv, row)
    y = adrenoc.CachedAttention(qkv, row, keys, values)

Norms of the heads of queries and keys (`q_norm_weight`) are computed where these rotate.  `row` is
the number of the first new row, which is how many tokens there were before.

Source: onnxruntime's ContribOperators reference: GroupQueryAttention, and version 1.31 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.importers.onnx.writer import CannotWriteError, Writer

APPEND_ROWS = "adrenoc.AppendRows"
"""Our own operator: cache [1, heads, rows, head], x, first row [1], perhaps cosines and sines, and
perhaps the weights of a norm of each head."""
CACHED_ATTENTION = "adrenoc.CachedAttention"
"""Our own operator: x, first row [1], keys, values; perhaps tables and weights as above."""

FIRST_ROW = "adrenoc_first_row"
"""Attribute of a GroupQueryAttention whose length is the number of its first row."""

_PAST, _LENGTH, _TOTAL, _TABLES, _NORMS = (3, 4), 5, 6, (7, 8), (14, 15)
_NOT_HERE = {
    9: "position_ids",
    10: "attention_bias",
    11: "head_sink",
    12: "k_scale",
    13: "v_scale",
}
"""Inputs that nothing here computes with."""
_PLAIN_ATTRIBUTES = {
    "causal": (1,),
    "k_quant_type": (b"NONE",),
    "kv_cache_bit_width": (0, 16, 32),
    "qk_output": (0,),
    "sliding_window_cache": (0,),
    "smooth_softmax": (0, -1),
    "v_quant_type": (b"NONE",),
}
"""Attribute -> the values that are covered, the default among them."""


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """How queries, keys and values lie: each in a tensor, from a channel on."""

    parts: tuple[tuple[str, int], ...]
    queries: int
    kept: int
    size: int
    tokens: int


def _group_query_attention(write: Writer) -> None:
    _check_covered(write)
    heads = _read_heads(write)
    row = _first_row(write, heads.tokens)
    rotation, tables = _read_rotation(write, heads)
    caches = []
    for number, (past, (x, first)) in enumerate(zip(_PAST, heads.parts[1:], strict=True)):
        turned = rotation if number == 0 else {"rotated": 0, "interleaved": 0}
        gains, normed = _read_norm(write, heads, _NORMS[1] if number == 0 else None)
        caches.append(
            write.own(
                APPEND_ROWS,
                _with_room(write, past, heads),
                x,
                row,
                *(tables if number == 0 else []),
                *gains,
                shape=_cache_shape(write, past, heads),
                out=write.output(1 + number),
                like=x,
                first=first,
                **turned,
                **normed,
            )
        )
    q, first = heads.parts[0]
    window = int(write.number("local_window_size", -1))
    gains, normed = _read_norm(write, heads, _NORMS[0])
    write.own(
        CACHED_ATTENTION,
        q,
        row,
        *caches,
        *tables,
        *gains,
        shape=(*write.shape(q)[:2], heads.queries * heads.size),
        out=write.result,
        like=q,
        heads=heads.queries,
        first=first,
        scale=write.number("scale", 0.0) or heads.size**-0.5,
        cap=write.number("softcap", 0.0),
        window=max(window, 0),
        **rotation,
        **normed,
    )


def _read_heads(write: Writer) -> _Heads:
    query, key, value = (write.input(index) for index in range(3))
    queries, kept = int(write.number("num_heads", 0)), int(write.number("kv_num_heads", 0))
    if len(write.shape(query)) != 3 or bool(key) != bool(value) or not queries or not kept:
        raise CannotWriteError("its queries, keys and values are in no form that is known")
    batch, tokens, width = write.shape(query)
    if batch != 1:
        raise CannotWriteError(f"a batch of {batch}, expected 1: a bundle keeps one cache")
    size = width // (queries if key else queries + 2 * kept)
    starts = (0, queries * size, (queries + kept) * size)
    parts = [(query, 0), (key, 0), (value, 0)] if key else [(query, at) for at in starts]
    if any(not write.input(past) for past in _PAST):
        raise CannotWriteError("it has no past keys and values")
    return _Heads(parts=tuple(parts), queries=queries, kept=kept, size=size, tokens=tokens)


def _check_covered(write: Writer) -> None:
    """Refuse what would be another result."""
    given = [name for index, name in _NOT_HERE.items() if write.input(index)]
    odd = [
        f"{name} {write.attrs[name]}"
        for name, values in _PLAIN_ATTRIBUTES.items()
        if name in write.attrs and write.attrs[name] not in values
    ]
    if write.output(3):
        given.append("output_qk")
    if given or odd:
        raise CannotWriteError(f"it has {', '.join([*given, *odd])}, which is not covered")


def _first_row(write: Writer, tokens: int) -> str:
    """How many tokens there were before: `seqlens_k` is one less than there are in all."""
    length = write.input(_LENGTH)
    if write.shape(length) not in ((1,), (1, 1)):
        raise CannotWriteError(f"seqlens_k has the shape {list(write.shape(length))}, expected [1]")
    flat = length if write.shape(length) == (1,) else write.reshape(length, 1)
    if tokens == 1 or write.number(FIRST_ROW, 0):
        return flat
    return write("Sub", flat, write.array(np.array([tokens - 1], np.int32)))


def _read_rotation(write: Writer, heads: _Heads) -> tuple[dict[str, Any], list[str]]:
    if not write.number("do_rotary", 0):
        return {"rotated": 0, "interleaved": 0}, []
    tables = [write.input(index) for index in _TABLES]
    values = [write.value(name) for name in tables]
    if any(value is None or value.ndim != 2 for value in values):
        raise CannotWriteError("its cosines and sines are computed, expected constants")
    rows, half = values[0].shape if values[0] is not None else (0, 0)
    needed = _cache_shape(write, _PAST[0], heads)[2]
    if rows < needed or 2 * half > heads.size:
        raise CannotWriteError(
            f"its cosines are {rows} x {half}, for a cache of {needed} rows of {heads.size}"
        )
    kept = [write.array(value[:needed]) for value in values if value is not None]
    interleaved = int(write.number("rotary_interleaved", 0))
    return {"rotated": 2 * half, "interleaved": interleaved}, kept


def _read_norm(
    write: Writer, heads: _Heads, position: int | None
) -> tuple[list[str], dict[str, Any]]:
    """The weights of a norm of each head, and what the operator is told of it."""
    name = "" if position is None else write.input(position)
    if not name:
        return [], {"normed": 0, "epsilon": 0.0}
    value = write.value(name)
    if value is None or value.shape != (heads.size,):
        raise CannotWriteError(f"the norm of its heads is by '{name}', expected {heads.size} gains")
    return [name], {"normed": 1, "epsilon": write.number("qk_norm_epsilon", 1e-6)}


def _cache_shape(write: Writer, past: int, heads: _Heads) -> tuple[int, ...]:
    """[1, heads, rows, head]: the rows that were given, or as many as there are tokens then."""
    given = write.shape(write.input(past))
    total = write.value(write.input(_TOTAL))
    if len(given) != 4 or given[1] != heads.kept or given[3] != heads.size:
        raise CannotWriteError(f"a past of the shape {list(given)} for {heads.kept} heads")
    rows = given[2] if total is None else max(given[2], int(total.reshape(-1)[0]))
    return (1, heads.kept, rows, heads.size)


def _with_room(write: Writer, past: int, heads: _Heads) -> str:
    """The past with room for the new rows, where it has none yet."""
    name = write.input(past)
    given, wanted = write.shape(name), _cache_shape(write, past, heads)
    missing = wanted[2] - given[2]
    if not missing:
        return name
    zeros = write.array(np.zeros((1, heads.kept, missing, heads.size), np.dtype(write.dtype(name))))
    return zeros if not given[2] else write("Concat", name, zeros, axis=2)


CACHED: dict[str, Callable[[Writer], None]] = {"GroupQueryAttention": _group_query_attention}
